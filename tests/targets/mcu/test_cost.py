"""Estimates of instructions: loops that are not alike, what is known, and products."""

from __future__ import annotations

import pytest

from modelcc.ir.loop import For, Stmt
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.program import Program
from modelcc.targets.mcu.cost import step_costs, step_products
from modelcc.targets.mcu.kinds import kind_of
from modelcc.targets.mcu.machine import MODELS
from modelcc.targets.mcu.timing import TIMINGS, Counts, counted, instructions
from modelcc.targets.mcu.walk import LoopWalk, moved_bytes
from tests.embedded import embedded, keyword_spotter


class _Statements(LoopWalk):
    """Counts stores."""

    def own(self, s: Stmt, seen: set[object], varying: frozenset[str] | None) -> Counts:
        return counted(store=int(type(s).__name__ == "Store"))


def stores(text: str) -> int:
    function = parse_function(text)
    return _Statements().function(function, ())["store"]


def test_branches_and_bounds_are_followed() -> None:
    assert stores("""
func @f(%y: mut f32[4096]) {
  for i in 0 .. 10 {
    for j in 0 .. i {
      store %y[0] = f32(1.0)
      store %y[1] = f32(1.0)
    }
    if predicate(i - 7 >= 0) { store %y[0] = f32(2.0) }
  }
}
""") == 2 * 45 + 3  # fmt: skip


@pytest.mark.parametrize("trips", [25, 100, 1000])
def test_some_iterations_stand_for_others(trips: int) -> None:
    found = stores(f"""
func @f(%y: mut f32[4096]) {{
  for i in 0 .. {trips} {{
    if predicate(i - 1 >= 0, {trips - 2} - i >= 0) {{
      store %y[i] = f32(2.0)
    }} else {{
      store %y[2*i] = f32(2.0)
      store %y[2*i] = f32(3.0)
    }}
  }}
}}
""")
    assert found == pytest.approx(trips + 2, rel=0.05)


def test_copies_are_recognised() -> None:
    body = parse_function("""
func @f(%x: i8[64], %y: mut i8[64]) {
  for i in 0 .. 8 { store %y[i + 3] = load %x[i] }
  for i in 0 .. 8 { store %y[2*i] = load %x[i] }
  for i in 0 .. 8 { store %y[i] = i8(3) }
}
""").body
    loops = [s for s in body if isinstance(s, For)]
    assert [moved_bytes(loop) for loop in loops] == [(1, True), None, (1, False)]


def program() -> Program:
    return embedded(keyword_spotter(), "cortex-m4").program


def test_products_of_a_model() -> None:
    products = 9 * 5 * (8 * 9 + 2 * (8 * 9 + 8 * 8))
    assert sum(step_products(program()).values()) == products


@pytest.mark.parametrize("name", ["cortex-m0plus", "cortex-m55", "riscv32imc"])
def test_cycles_of_every_processor(name: str) -> None:
    model = embedded(keyword_spotter(), name)
    for counts in step_costs(model.program, model.machine).values():
        assert 0 < instructions(counts) < 1e6
        assert TIMINGS[name].estimate(counts) > 0.5 * instructions(counts)


def test_every_microcontroller_has_a_timing() -> None:
    assert TIMINGS.keys() == MODELS.keys()


def test_unknown_instructions_are_plain() -> None:
    assert dict(kind_of("frobnicate", "", "arm")) == {"plain": 1}
