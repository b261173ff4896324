"""The reference interpreter agrees with NumPy and refuses what is out of range."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from loop_programs import CASES, Case, check, i, n

from modelcc.ir.index import Index
from modelcc.ir.loop import Alloc, Buffer, Const, For, Function, If, Load, Parameter, Store
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.types import BOOL, F32


def run(function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    arrays = [arguments[p.buffer.name] for p in function.parameters]
    interpret_loops(function, arrays, [sizes[name] for name in function.sizes])


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees_with_numpy(case: Case) -> None:
    check(case, run)


def copy(offset: int, active: Index | None = None) -> Function:
    parameters = (Parameter(Buffer("x", F32, n)), Parameter(Buffer("y", F32, n), True))
    store = Store("y", i, Load("x", i + offset, F32, 4, active=active))
    return Function("copy", parameters, ("n",), (For("i", 0, n, (store,), 4),))


@pytest.mark.parametrize("offset", [-1, 1])
def test_reading_outside_of_a_buffer_is_an_error(offset: int) -> None:
    x, y = np.zeros((2, 8), np.float32)
    with pytest.raises(IndexError, match="of a buffer of 8 float32"):
        interpret_loops(copy(offset), [x, y], [8])


def test_inactive_lanes_may_lie_outside() -> None:
    x, y = np.ones((2, 8), np.float32)
    interpret_loops(copy(2, n - i - 2), [x, y], [8])
    np.testing.assert_array_equal(y, [1, 1, 1, 1, 1, 1, 0, 0])


def test_arguments_have_to_fit() -> None:
    x, y = np.zeros((2, 8), np.float32)
    with pytest.raises(ValueError, match=r"@copy: %x needs a contiguous array of 8 f32"):
        interpret_loops(copy(0), [x.astype(np.float64), y], [8])
    with pytest.raises(ValueError, match=r"array of 9 f32, but got float32\[8\]"):
        interpret_loops(copy(0), [x, y], [9])


def test_inputs_cannot_be_written() -> None:
    function = Function("f", (Parameter(Buffer("x", F32, 1)),), (), (Store("x", 0, Const(1, F32)),))
    with pytest.raises(ValueError, match="read-only"):
        interpret_loops(function, [np.zeros(1, np.float32)], [])


def test_local_buffers_start_undefined() -> None:
    local = Buffer("t", F32, 2, "local")
    body = (Alloc(local), If(Const(False, BOOL), (), (Store("y", 0, Load("t", 1, F32)),)))
    y = np.zeros(1, np.float32)
    interpret_loops(Function("f", (Parameter(Buffer("y", F32, 1), True),), (), body), [y], [])
    assert np.isnan(y[0])
