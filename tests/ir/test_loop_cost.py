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
    assert cost.bytes == 4 * (size + 8)


def test_nested_loops_multiply() -> None:
    add = Store("y", 0, ScalarCall("add", (Reduce("add", X), Const(1.0, F32)), F32))
    inner = For("j", i, minimum(i + 4, n), (add,))
    cost = function_cost(function(For("i", 0, n, (inner,), 4)), {"n": 8})
    assert cost.flops == 2 * 4 * (1 + 15)


def test_integers_are_no_flops() -> None:
    count = Store("y", 0, ScalarCall("add", (IndexOf(i, I64), IndexOf(i, I64)), I64))
    assert function_cost(function(For("i", 0, n, (count,))), {"n": 9}).flops == 0
