"""Counted operations and bytes against those counted by hand."""

from __future__ import annotations

import pytest

from modelcc.ir.index import Sym, minimum
from modelcc.ir.loop import (
    Buffer,
    Const,
    For,
    Function,
    IndexOf,
    Load,
    MulAdd,
    Parameter,
    Reduce,
    ScalarCall,
    Store,
)
from modelcc.ir.loop_cost import function_cost
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import F32, I64

n, i, j = Sym("n"), Sym("i"), Sym("j")
X = Load("x", i, F32, 16)


def function(*body: For) -> Function:
    buffers = (Parameter(Buffer("x", F32, n)), Parameter(Buffer("y", F32, 8), True))
    return Function("f", buffers, ("n",), body)


@pytest.mark.parametrize("size", [0, 16, 20])
def test_vectors_count_their_lanes_and_tails_whole(size: int) -> None:
    square = Store("y", i, MulAdd(X, X, Const(1.0, F32, 16)))
    cost = function_cost(function(For("i", 0, n, (square,), 16)), {"n": size})
    assert cost.flops == 2 * 16 * -(-size // 16)
    assert cost.bytes == (4 * (size + 8) if size else 0)


def test_nested_loops_multiply() -> None:
    add = Store("y", 0, ScalarCall("add", (Reduce("add", X), Const(1.0, F32)), F32))
    inner = For("j", i, minimum(i + 4, n), (add,))
    cost = function_cost(function(For("i", 0, n, (inner,), 4)), {"n": 8})
    assert cost.flops == 2 * 4 * (1 + 15)


def test_integers_are_no_flops() -> None:
    count = Store("y", 0, ScalarCall("add", (IndexOf(i, I64), IndexOf(i, I64)), I64))
    assert function_cost(function(For("i", 0, n, (count,))), {"n": 9}).flops == 0


TOUCHES = {
    "rows of a table": ("""for i in 0 .. m {
        index r = load %i[i]
        for j in 0 .. 16 step 4 { store %y[16*i + j] = load %x[16*r + j] x4 }
      }""", {"x": 5 * 16, "y": 5 * 16, "i": 5}),
    "more rows than there are": ("""for i in 0 .. 200*m {
        index r = load %i[0]
        for j in 0 .. 16 { store %y[j] = load %x[16*r + j] }
      }""", {"x": 100 * 16, "y": 10 * 16, "i": 10}),
    "a part": ("for j in 0 .. 16 { store %y[j] = load %x[j + 16*m] }", {"x": 16, "y": 16, "i": 0}),
    "either side": ("""for j in 0 .. 16 {
        if predicate(j - m >= 0) { store %y[j] = load %x[j] } else { store %y[j] = load %x[j + 40] }
      }""", {"x": 32, "y": 32, "i": 0}),
    "a loop as long as another one is far": ("""for i in 0 .. 4 {
        for j in 0 .. i { store %y[j] = load %x[j] }
      }""", {"x": 1600, "y": 160, "i": 0}),
    "copies beside": ("""grid g in 0 .. m {
        shared %t: f32[4]
        thread j in 0 .. 1 {
          copy %t[0] = %x[4*g] x4
          commit
          wait 0
        }
      }""", {"x": 1600, "y": 0, "i": 0}),
}  # fmt: skip
"""Elements that kernels touch of 100 rows of 16, ten rows of results, and ten indices, m = 5."""


@pytest.mark.parametrize("name", TOUCHES)
def test_bytes_are_those_that_can_be_touched(name: str) -> None:
    body, elements = TOUCHES[name]
    text = f"func @f(%x: f32[1600], %i: i64[10], %y: mut f32[160]; m) {{\n{body}\n}}"
    found = function_cost(parse_function(text), {"m": 5})
    assert found.bytes == 4 * elements["x"] + 4 * elements["y"] + 8 * elements["i"]
