"""Det: Gaussian elimination with row exchanges, written out for matrices of a few rows."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.parts import sliced
from modelcc.frontends.onnx.shape import reshaped
from modelcc.ir.index import product
from modelcc.ops import elementwise as ew
from modelcc.ops.gather import GatherElements
from modelcc.ops.generate import Full
from modelcc.ops.reduce import ArgMax
from modelcc.ops.shape import Expand

LARGEST = 32


def det(call: Call) -> str:
    *batch, rows, columns = call.shape()
    if rows != columns:
        call.fail(f"the matrices of {call.type()} are not square")
    if rows == 0:
        return call.emit(Full(tuple(batch), 1.0, call.dtype()))
    if not isinstance(rows, int) or rows > LARGEST:
        unsupported(f"matrices of {rows} rows; up to {LARGEST} are supported")
    rest = reshaped(call, call.input(0), (product(batch), rows, rows))
    result = ""
    for size in range(rows, 0, -1):
        factor, rest = _step(call, rest, size)
        result = call.emit(ew.Mul(), result, factor) if result else factor
    return reshaped(call, result, tuple(batch))


def _step(call: Call, x: str, size: int) -> tuple[str, str]:
    """The factor of the determinant that the first column gives, and what is left to do."""
    emit, dtype = call.emit, call.type_of(x).dtype
    count = call.type_of(x).shape[0]

    def part(value: str, rows: tuple[int, int], columns: tuple[int, int]) -> str:
        ranges = {1: (rows[0], rows[1] - rows[0], 1), 2: (columns[0], columns[1] - columns[0], 1)}
        return sliced(call, value, ranges, call.type_of(value).shape)

    if size == 1:
        return x, x
    magnitudes = emit(ew.Abs(), part(x, (0, size), (0, 1)))
    best = emit(ArgMax(1, True), magnitudes)
    pivot_row = emit(GatherElements(1), x, emit(Expand((count, 1, size)), best))
    number = call.constant(np.arange(size).reshape(1, size, 1))
    moved = emit(ew.Where(), emit(ew.Equal(), number, best), part(x, (0, 1), (0, size)), x)
    pivot = part(pivot_row, (0, 1), (0, 1))
    zero, one = call.constant(0.0, dtype), call.constant(1.0, dtype)
    divisor = emit(ew.Where(), emit(ew.Equal(), pivot, zero), one, pivot)
    factors = emit(ew.Div(), part(moved, (1, size), (0, 1)), divisor)
    taken = emit(ew.Mul(), factors, part(pivot_row, (0, 1), (1, size)))
    rest = emit(ew.Sub(), part(moved, (1, size), (1, size)), taken)
    same = emit(ew.Equal(), best, call.constant(np.zeros((1, 1, 1), np.int64)))
    signed = emit(ew.Where(), same, pivot, emit(ew.Neg(), pivot))
    return signed, rest


DETERMINANT: Handlers = MappingProxyType({"Det": det})
