"""Array operators: diagonals, sparse forms, partial reversal, bucketization."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.selection import different
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.ir.index import Index
from modelcc.ir.types import F32, I32, I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand, ReduceSum, Reshape
from modelcc.ops.comparison import GreaterOrEqual
from modelcc.ops.gather_nd import ScatterND
from modelcc.ops.generate import Iota
from modelcc.ops.time_axis import ReverseSequence


def matrix_diag(call: TfliteCall) -> str:
    """MATRIX_DIAG: rows as the diagonals of zero matrices."""
    shape = call.shape()
    square = (*shape, shape[-1])
    row = of(Reshape((*shape[:-1], 1, shape[-1])), call.value(0))
    wide = of(Expand(square), row)
    return of(ew.Where(), _on_diagonal(call, square), wide, wide.lift(0)).name


def matrix_set_diag(call: TfliteCall) -> str:
    """MATRIX_SET_DIAG: matrices with their diagonals replaced."""
    shape = call.shape()
    column = of(Reshape((*call.shape(1), 1)), call.value(1))
    if shape[-2] == call.shape(1)[-1]:
        return of(ew.Where(), _on_diagonal(call, shape), column, call.value(0)).name
    row = of(Reshape((*call.shape(1)[:-1], 1, call.shape(1)[-1])), call.value(1))
    return of(ew.Where(), _on_diagonal(call, shape), row, call.value(0)).name


def _on_diagonal(call: TfliteCall, shape: tuple[Index, ...]) -> Value:
    rows, columns = (call.as_value(call.emit(Iota(shape[-2:], axis, dtype=I32))) for axis in (0, 1))
    return of(ew.Equal(), rows, columns)


def sparse_to_dense(call: TfliteCall) -> str:
    """SPARSE_TO_DENSE: values scattered into an array filled with a default value."""
    shape = call.indices(1, "shape")
    dense = call.emit(Expand(shape), call.input(3))
    count = call.shape()[0] if call.rank() else 1
    depth = call.shape()[1] if call.rank() == 2 else 1
    places = of(Reshape((count, depth)), call.value(0))
    values = of(Expand((count,)), call.value(2))
    return call.emit(ScatterND(), dense, places.name, values.name)


def reverse_sequence(call: TfliteCall) -> str:
    """REVERSE_SEQUENCE: the first elements of each sequence reversed."""
    batch, time = (call.normal(call.integer(f"{n}_dim"), call.rank()) for n in ("batch", "seq"))
    return call.emit(ReverseSequence(batch, time), call.input(0), call.input(1))


def unique(call: TfliteCall) -> tuple[str, str]:
    """UNIQUE: the unique elements in order of occurrence, and the inverse indices."""
    values, _, inverse, _ = different(call, call.input(0), None, False)
    wanted = call.results[1].dtype
    return values, inverse if wanted in (None, I64) else call.emit(ew.Cast(wanted), inverse)


def bucketize(call: TfliteCall) -> str:
    """BUCKETIZE: the number of boundaries not above each number."""
    given = call.op.options.get("boundaries")
    if not isinstance(given, tuple):
        call.fail("it has no boundaries")
    x = of(Reshape((*call.shape(), 1)), call.value(0))
    if call.dtype() != F32:
        x = of(ew.Cast(F32), x)
    bounds = call.literal(np.asarray(given, np.float32), F32)
    held = of(ew.Cast(I32), of(GreaterOrEqual(), x, bounds))
    return of(ReduceSum((call.rank(),)), held).name


def broadcast_args(call: TfliteCall) -> str:
    """BROADCAST_ARGS: the shape that two shapes broadcast to."""
    sides = [list(call.indices(i, "shape")) for i in (0, 1)]
    rank = max(map(len, sides))
    wide = [[1] * (rank - len(side)) + side for side in sides]
    shape: list[Index] = []
    for a, b in zip(*wide, strict=True):
        if a != b and 1 not in (a, b):
            unsupported(f"extents {a} and {b}, of which neither is known to be 1")
        shape.append(b if a == 1 else a)
    return call.note(tuple(shape), call.result_dtype)


ARRAYS: Handlers = {
    "MATRIX_DIAG": matrix_diag,
    "MATRIX_SET_DIAG": matrix_set_diag,
    "SPARSE_TO_DENSE": sparse_to_dense,
    "REVERSE_SEQUENCE": reverse_sequence,
    "UNIQUE": unique,
    "BUCKETIZE": bucketize,
    "BROADCAST_ARGS": broadcast_args,
}
