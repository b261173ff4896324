"""Partial sums and counters of launches, in blocks of steps of their own, planned and not."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelcc.ir.loop_parser import parse_function
from modelcc.ir.program import Launch, Program, Step, leaves
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.types import BOOL, F32, TensorType
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


def test_each_block_clears_counters_once() -> None:
    found = with_working_memory(program())
    verify_program(found)
    launches = [s for s in leaves(found.steps) if isinstance(s, Launch)]
    cleared = [s for s in launches if s.callee == "clear_arrivals"]
    assert [s.sizes for s in cleared] == [(2,), (1,), (2,)]
    assert len({s.arguments for s in cleared}) == 3
    for launch in launches:
        if launch not in cleared:
            assert launch.arguments[-1] in {s.arguments[0] for s in cleared}
            assert launch.partial == launch.arguments[-1:]
    parts = [s.arguments[2] for s in launches if s not in cleared]
    assert len(set(parts)) == 4


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
