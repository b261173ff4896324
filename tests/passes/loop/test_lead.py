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


@pytest.mark.parametrize("text", [ROWS, UP, BACK, BRANCH])
def test_the_lead_is_just_enough(text: str) -> None:
    function = parse_function(text)
    least = lead(function, ["y"], ["x"])
    assert least is not None
    assert _same_as_apart(function, least)
    if least:
        assert not _same_as_apart(function, least - 1)


def _same_as_apart(function: Function, between: int) -> bool:
    """Whether a result that begins so many bytes before the operand is what it is elsewhere."""
    run = compile_loops(function)
    sizes = {p.buffer.name: evaluate(p.buffer.size, {}) for p in function.parameters}
    x = np.random.default_rng(0).integers(-50, 50, sizes["x"], np.int8)
    apart = np.zeros(sizes["y"], np.int8)
    run([x.copy(), apart], ())
    memory = np.zeros(max(between + sizes["x"], sizes["y"]), np.int8)
    memory[between : between + x.size] = x
    run([memory[between : between + x.size], memory[: apart.size]], ())
    return bool((memory[: apart.size] == apart).all())
