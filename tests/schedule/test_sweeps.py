"""Kernels in loops go through their tiles there and back, which changes nothing but the order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelcc.ir.index import Sym, evaluate
from modelcc.ir.loop import (
    BindIndex,
    Buffer,
    For,
    Function,
    IndexOf,
    Load,
    Parameter,
    ScalarCall,
    Store,
)
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import F32
from modelcc.schedule.sweeps import there_and_back

P, J, T = Sym("p"), Sym("i"), Sym("t")


def tiles(count: int = 5) -> Function:
    """``y = w * x[t]`` in ``count`` tiles of 4 elements."""
    place = 4 * P + J
    product = ScalarCall("mul", (Load("w", place, F32), Load("x", T, F32)), F32)
    inner = For("i", 0, 4, (Store("y", place, product),))
    parameters = (
        Parameter(Buffer("w", F32, 4 * count)),
        Parameter(Buffer("x", F32, 3)),
        Parameter(Buffer("y", F32, 4 * count), True),
    )
    return Function("tiles", parameters, ("t",), (For("p", 0, count, (inner,), 1, "parallel"),))


@pytest.mark.parametrize("t", [0, 1, 2])
@pytest.mark.parametrize("count, threads", [(5, 1), (6, 2), (6, 3)])
def test_results_stay(t: int, count: int, threads: int) -> None:
    function = there_and_back(tiles(count), "t", threads)
    assert function != tiles(count)
    verify_function(function)
    w, x = np.arange(4 * count, dtype=np.float32), np.array([2, 3, 5], np.float32)
    y = np.zeros(4 * count, np.float32)
    interpret_loops(function, [w, x, y], [t])
    np.testing.assert_array_equal(y, w * x[t])


@pytest.mark.parametrize(
    "count, threads, t, order",
    [
        (5, 1, 0, [0, 1, 2, 3, 4]),
        (5, 1, 1, [4, 3, 2, 1, 0]),
        (6, 2, 0, [0, 1, 2, 3, 4, 5]),
        (6, 2, 3, [2, 1, 0, 5, 4, 3]),
    ],
)
def test_each_thread_turns_its_tiles_where_the_counter_is_odd(
    count: int, threads: int, t: int, order: list[int]
) -> None:
    (loop,) = there_and_back(tiles(count), "t", threads).body
    assert isinstance(loop, For)
    bind = loop.body[0]
    assert isinstance(bind, BindIndex) and bind.symbol == "p"
    assert isinstance(bind.value, IndexOf)
    place = bind.value.index
    assert [evaluate(place, {loop.variable: n, "t": t}) for n in range(count)] == order


def test_other_functions_stay() -> None:
    function = tiles()
    assert there_and_back(function, "t", 2) is function
    assert there_and_back(function, "t", 5) is function
    assert there_and_back(function, "s", 1) is function
    (loop,) = function.body
    assert isinstance(loop, For)
    for changed in (replace(loop, kind="serial"), replace(loop, stop=1), replace(loop, stop=T)):
        other = replace(function, body=(changed,))
        assert there_and_back(other, "t", 1) is other
    twice = replace(function, body=(loop, loop))
    assert there_and_back(twice, "t", 1) is twice
