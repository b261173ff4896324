"""How far a result must begin before an operand: against running the loops in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.passes.loop.lead import lead

ROWS = """
func @rows(%x: shared i8[96], %y: shared mut i8[80]) {
  for i in 0 .. 10 {
    for k in 0 .. 8 {
      store %y[8*i + k] = add(load %x[8*i + k], load %x[8*i + k + 16])
    }
  }
}
"""
UP = """
func @up(%x: shared i8[40], %y: shared mut i8[80]) {
  for i in 0 .. 40 {
    let %a = load %x[i]
    store %y[2*i] = %a
    store %y[2*i + 1] = %a
  }
}
"""
BACK = """
func @back(%x: shared i8[80], %y: shared mut i8[80]) {
  for i in 0 .. 80 {
    store %y[i] = load %x[79 - i]
  }
}
"""
BRANCH = """
func @border(%x: shared i8[64], %y: shared mut i8[64]) {
  for i in 0 .. 64 {
    register %a = i8(1)
    if predicate(i - 8 >= 0) {
      %a = add(load %x[i - 8], load %x[i])
    }
    store %y[i] = %a
  }
}
"""
TABLE = """
func @table(%x: shared i8[64], %y: shared mut i8[64], %t: shared i8[256]) {
  for i in 0 .. 64 {
    let %a = add(convert[i32](load %x[i]), i32(128))
    index place = %a
    store %y[i] = load %t[place]
  }
}
"""


DOWN = """
func @down(%x: shared i8[96], %y: shared mut i8[80]) {
  for i in 0 .. 10 {
    for k in 0 .. 8 {
      store %y[8*(9 - i) + k] = add(load %x[8*(9 - i) + k], load %x[8*(9 - i) + k + 16])
    }
  }
}
"""


@pytest.mark.parametrize("text", [ROWS, UP, BACK, BRANCH, DOWN, TABLE])
def test_the_lead_is_just_enough(text: str) -> None:
    function = parse_function(text)
    least = lead(function, ["y"], ["x"])
    assert least is not None
    for distance, towards in ((least.before, 1), (least.behind, -1)):
        assert _same_as_apart(function, towards * distance)
        if distance:
            assert not _same_as_apart(function, towards * (distance - 1))


def test_rows_from_the_last_to_the_first_go_behind() -> None:
    found = lead(parse_function(DOWN), ["y"], ["x"])
    assert found is not None
    assert found.behind < 32 < found.before


def _same_as_apart(function: Function, between: int) -> bool:
    """Whether a result that begins so many bytes before the operand is what it is elsewhere;
    with a negative number, behind it."""
    run = compile_loops(function)
    sizes = {p.buffer.name: evaluate(p.buffer.size, {}) for p in function.parameters}
    x = np.random.default_rng(0).integers(-50, 50, sizes["x"], np.int8)
    apart = np.zeros(sizes["y"], np.int8)
    more = [np.arange(256).astype(np.int8)] if "t" in sizes else []
    run([x.copy(), apart, *more], ())
    source, target = max(0, between), max(0, -between)
    memory = np.zeros(max(source + x.size, target + apart.size), np.int8)
    shared = memory[target : target + apart.size]
    memory[source : source + x.size] = x
    run([memory[source : source + x.size], shared, *more], ())
    return bool((shared == apart).all())
