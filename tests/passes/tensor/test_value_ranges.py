"""What integers of a tensor program can be, counters of loops among them."""

from __future__ import annotations

import pytest

from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.passes.tensor.check_indices import CheckIndices

LOOP = """
  repeat [{counter} < {trips}] carry({s}: f32[] = %s then {s}.next last {s}.last) {{
    kernel @Place() -> ({s}.i: i64[]) {{
      {s}.i: i64[] = [] index({counter}):i64
    }}
    kernel @Gather({s}.i: i64[], %x: f32[k]) -> ({s}.next: f32[]) {{
      {s}.next: f32[] = [] (let g = {s}.i[] below [8] in %x[g])
    }}
  }}"""


def checked(*loops: tuple[str, str]) -> int:
    """How many of the loops, each given by counter and trips, check the counter as an index."""
    text = "".join(
        LOOP.format(counter=counter, trips=trips, s=f"%s{n}")
        for n, (counter, trips) in enumerate(loops)
    )
    program = parse_tensor_program(
        f"program @main(%x: f32[k], %s: f32[]) -> (%s0.last) dims(k in 8:8, n in 0:6) {{{text}}}",
        {},
    )
    return print_tensor_program(CheckIndices()(program)).count("below [8]")


@pytest.mark.parametrize(("trips", "count"), [("8", 0), ("n + 2", 0), ("9", 1), ("n + 3", 1)])
def test_indices_made_of_counters_are_checked_where_they_can_be_out_of_range(
    trips: str, count: int
) -> None:
    assert checked(("t", trips)) == count


def test_loops_one_after_the_other_may_count_alike() -> None:
    assert checked(("t", "8"), ("t", "8")) == 0
    assert checked(("t", "9"), ("t", "8")) == 2
    assert checked(("t", "9"), ("u", "8")) == 1


SIDE = """
    kernel @Side() -> (%i: i64[]) {
      %i: i64[] = [] 3
    }"""
OTHERS = {
    "kernel within": ("    kernel @Side() -> (%i: i64[]) {\n      %i: i64[] = [] 7\n    }", 0),
    "kernel beyond": ("    kernel @Side() -> (%i: i64[]) {\n      %i: i64[] = [] 8\n    }", 1),
    "algorithm": (
        """    algorithm (%given: i64[1]) -> (%i: i64[]) {
      func @Taken(%x0: i64[1], %y0: mut i64[1]) {
        store %y0[0] = load %x0[0]
      }
    }""",
        1,
    ),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("swapped", [False, True])
def test_both_sides_of_a_branch_count(other: str, swapped: bool) -> None:
    """An index that one side may have out of range is checked, however that side is written."""
    text, count = OTHERS[other]
    then, otherwise = (text, SIDE) if swapped else (SIDE, text)
    program = parse_tensor_program(
        f"""program @main(%x: f32[k], %c: bool[], %given: i64[1]) -> (%y) dims(k in 8:8) {{
  if %c -> (%i: i64[]) {{
{then}
  }} else {{
{otherwise}
  }}
  kernel @Gather(%i: i64[], %x: f32[k]) -> (%y: f32[]) {{
    %y: f32[] = [] (let g = %i[] below [8] in %x[g])
  }}
}}""",
        {},
    )
    assert print_tensor_program(CheckIndices()(program)).count("below [8]") == count
