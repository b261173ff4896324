"""Partial sums and counters of launches, in blocks of steps of their own, planned and not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from modelcc.ir.errors import ModelError, RunError
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.program import Launch, Program, Step, leaves
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.tensor import View
from modelcc.ir.types import BOOL, F32, I32, TensorType
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.place_transfers import place_transfers
from modelcc.passes.program.plan_memory import plan_memory
from modelcc.targets.gpu.working_memory import with_working_memory

SUMS = """func @sums(%x: f32[8], %y: mut f32[8], %parts: mut f32[8], %c: mut i32[COUNT]) {
  grid g in 0 .. COUNT {
    grid p in 0 .. 4 {
      thread t in 0 .. WIDTH {
        store %parts[WIDTH*4*g + WIDTH*p + t] = load %x[WIDTH*4*g + WIDTH*p + t]
        arrive %c[g] of 4 {
          register %sum = f32(0.0)
          for i in 0 .. 4*WIDTH {
            %sum = add(%sum, load %parts[WIDTH*4*g + i])
          }
          for i in 0 .. 4 {
            store %y[WIDTH*4*g + 4*t + i] = %sum
          }
        }
      }
    }
  }
}
"""


def sums(name: str, count: int) -> Any:
    """Of each of ``count`` parts of 8 numbers, in the place of each."""
    text = SUMS.replace("COUNT", str(count)).replace("4*WIDTH", str(8 // count))
    text = text.replace("WIDTH*4", str(8 // count)).replace("WIDTH", str(2 // count))
    return parse_function(text.replace("@sums", f"@{name}"))


def program() -> Program:
    """Sums of all, three times within a loop, and then once more or halves' sums."""
    row, flag = TensorType((8,), F32), TensorType((1,), BOOL)
    body = (Launch("all", ("v", "next")), Launch("halves", ("v", "unused")))
    loop = Repeat[Step]("i", 3, (Carry("v", "x", "next", "last"),), (), body)
    sides = (Launch("all", ("last", "y")),), (Launch("halves", ("last", "y")),)
    types = dict.fromkeys(("x", "v", "next", "unused", "last", "y"), row) | {"go": flag}
    steps = (loop, Branch[Step]("go", ("y",), *sides))
    callees = sums("all", 1), sums("halves", 2)
    return Program("p", ("x", "go"), ("y",), steps, types, callees)


def test_all_launches_have_the_same_counters() -> None:
    """As many as the one that has most of them, and partial sums of their own."""
    found = with_working_memory(program())
    verify_program(found)
    launches = [s for s in leaves(found.steps) if isinstance(s, Launch)]
    assert found.arrivals == ("arrivals",) and found.types["arrivals"] == TensorType((2,), I32)
    assert all(launch.arguments[-1:] == launch.partial == found.arrivals for launch in launches)
    assert len({launch.arguments[2] for launch in launches}) == len(launches) == 4
    assert found.callees == program().callees


def test_counters_are_for_arrivals_alone() -> None:
    """And all that arrive are awaited by somebody."""
    found = with_working_memory(program())
    copy = parse_function("""func @copy(%y: mut i32[2]) {
      grid g in 0 .. 1 { thread t in 0 .. 1 { store %y[0] = i32(1) } } }""")
    wrong = replace(
        found,
        steps=(*found.steps, Launch("copy", ("arrivals",), partial=("arrivals",))),
        callees=(*found.callees, copy),
    )
    with pytest.raises(ModelError, match="'arrivals' is for arrivals, and none are at %y"):
        verify_program(wrong)
    seen = replace(found, steps=(*found.steps, View("seen", "arrivals")))
    with pytest.raises(ModelError, match="'arrivals' is for arrivals alone"):
        verify_program(replace(seen, types={**found.types, "seen": TensorType((2,), I32)}))
    text = SUMS.replace("arrive %c[g] of 4", "arrive %c[g] of 8").replace("@sums", "@all")
    text = text.replace("COUNT", "1").replace("4*WIDTH", "8").replace("WIDTH*4", "8")
    late = parse_function(text.replace("WIDTH", "2"))
    given = replace(found, callees=(late, found.callees[1]))
    with pytest.raises((ModelError, RunError)):
        interpret_program(given, {"x": np.zeros(8, np.float32), "go": np.array([True])})


def test_blocks_compute_what_is_meant_before_and_after_memory_is_planned() -> None:
    given = place_transfers(with_working_memory(program()))
    verify_program(given)
    planned = apply_plan(given, plan_memory(given))
    verify_program(planned)
    x = np.arange(8, dtype=np.float32)
    for go in (True, False):
        wanted = np.full(8, 28 * 8 * 8 * (8 if go else 4), np.float32)
        for one in (given, planned):
            feeds = {"x": x, "go": np.array([go])}
            np.testing.assert_array_equal(interpret_program(one, feeds)["y"], wanted)
    assert parse_program(print_program(planned), constants_by_digest(planned)) == planned


def test_nothing_changes_where_nothing_is_missing() -> None:
    alone = parse_function("""func @f(%y: mut f32[1]) {
      grid g in 0 .. 1 { thread t in 0 .. 1 { store %y[0] = f32(1.0) } } }""")
    types = {"y": TensorType((1,), F32)}
    given = Program("p", (), ("y",), (Launch("f", ("y",)),), types, (alone,))
    assert with_working_memory(given) is given
