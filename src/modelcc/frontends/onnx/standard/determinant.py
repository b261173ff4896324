"""Det: Gaussian elimination with row exchanges, unrolled for small matrices."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.index import product
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.gather import GatherElements
from modelcc.ops.generate import Full
from modelcc.ops.reduce import ArgMax
from modelcc.ops.shape import Expand
from modelcc.ops.views import part, reshaped

LARGEST = 32


def det(call: Call) -> str:
    *batch, rows, columns = call.shape()
    if rows != columns:
        call.fail(f"the matrices of {call.type()} are not square")
    if rows == 0:
        return call.emit(Full(tuple(batch), 1.0, call.dtype()))
    if not isinstance(rows, int) or rows > LARGEST:
        unsupported(f"matrices of {rows} rows; up to {LARGEST} are supported")
    rest = reshaped(call.value(0), product(batch), rows, rows)
    result: Value | None = None
    for size in range(rows, 0, -1):
        factor, rest = _step(call, rest, size)
        result = factor if result is None else result * factor
    assert result is not None
    return reshaped(result, *batch).name


def _step(call: Call, x: Value, size: int) -> tuple[Value, Value]:
    """The determinant's factor from the first column, and the remaining submatrix."""
    count = x.type.shape[0]
    if size == 1:
        return x, x
    column = part(x, 2, 0, 1)
    best = of(ArgMax(1, True), of(ew.Abs(), column))
    pivot_row = of(GatherElements(1), x, of(Expand((count, 1, size)), best))
    number = call.literal(np.arange(size).reshape(1, size, 1))
    moved = where(of(ew.Equal(), number, best), part(x, 1, 0, 1), x)
    pivot, rest = part(pivot_row, 2, 0, 1), part(pivot_row, 2, 1, size - 1)
    divisor = where(of(ew.Equal(), pivot, pivot.lift(0.0)), 1.0, pivot)
    below = part(moved, 1, 1, size - 1)
    factors = part(below, 2, 0, 1) / divisor
    left = part(below, 2, 1, size - 1) - factors * rest
    same = of(ew.Equal(), best, best.lift(0))
    return where(same, pivot, -pivot), left


DETERMINANT = table(Det=det)
