"""Kernels in loops go through their tiles there and back, which changes nothing but the order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelcc.ir.index import Sym
from modelcc.ir.loop import BindIndex, Buffer, Call, For, Function, Load, Parameter, Store
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import F32
from modelcc.targets.cpu.sweeps import there_and_back

P, J, T = Sym("p"), Sym("i"), Sym("t")


def tiles() -> Function:
    """``y = w * x[t]`` in 5 tiles of 4 elements."""
    place = 4 * P + J
    product = Call("mul", (Load("w", place, F32), Load("x", T, F32)), F32)
    inner = For("i", 0, 4, (Store("y", place, product),))
    parameters = (
        Parameter(Buffer("w", F32, 20)),
        Parameter(Buffer("x", F32, 3)),
        Parameter(Buffer("y", F32, 20), True),
    )
    return Function("tiles", parameters, ("t",), (For("p", 0, 5, (inner,), 1, "parallel"),))


@pytest.mark.parametrize("t", [0, 1, 2])
def test_results_stay(t: int) -> None:
    function = there_and_back(tiles(), "t")
    verify_function(function)
    w, x = np.arange(20, dtype=np.float32), np.array([2, 3, 5], np.float32)
    y = np.zeros(20, np.float32)
    interpret_loops(function, [w, x, y], [t])
    np.testing.assert_array_equal(y, w * x[t])


def test_tiles_are_reversed_where_the_counter_is_odd() -> None:
    (loop,) = there_and_back(tiles(), "t").body
    assert isinstance(loop, For)
    bind = loop.body[0]
    assert isinstance(bind, BindIndex) and bind.symbol == "p"
    assert "t mod 2" in str(bind.value)


def test_other_functions_stay() -> None:
    function = tiles()
    assert there_and_back(function, "s") is function
    (loop,) = function.body
    assert isinstance(loop, For)
    for changed in (replace(loop, kind="serial"), replace(loop, stop=1), replace(loop, stop=T)):
        other = replace(function, body=(changed,))
        assert there_and_back(other, "t") is other
    twice = replace(function, body=(loop, loop))
    assert there_and_back(twice, "t") is twice
