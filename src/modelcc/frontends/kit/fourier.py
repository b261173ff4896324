"""Fourier transforms along an axis, with real and imaginary parts in the last one."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.parts import sliced
from modelcc.ir.index import Index, Range, floordiv, minimum, product, simplify
from modelcc.ir.types import F32, F64, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.fourier import FourierTransform
from modelcc.ops.fourier_tables import FourierLengths, FourierTables, tables
from modelcc.ops.gather import Gather
from modelcc.ops.matmul import MatMul
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Concat, Reshape, Transpose
from modelcc.ops.slicing import Slice
from modelcc.ops.window import numbers

SMALL = 16
"""Lengths up to which a transform is products with matrices, which others are fused into."""
TINY = 8
"""Lengths up to which it is one."""
KEPT = 1 << 20
"""Lengths up to which tables are constants; longer ones are made when the model runs."""


@dataclass(frozen=True)
class Form:
    """Which transform: from frequencies, and with the first half of a mirrored spectrum only."""

    inverse: bool
    onesided: bool

    def used(self, length: Index) -> Index:
        """How many elements of the operand a transform of ``length`` takes."""
        return floordiv(length, 2) + 1 if self.inverse and self.onesided else length

    def count(self, length: Index) -> Index:
        """How many elements it gives."""
        return floordiv(length, 2) + 1 if self.onesided and not self.inverse else length


def matrix(used: int, length: int, form: Form) -> Array:
    """``[used, 2, frequencies, 2]``: from (real, imaginary) parts to such parts, in f64.

    Of a spectrum that is ``onesided``, the inverse has real parts only: its second half mirrors
    the first.
    """
    (count,) = numbers((form.count(length),), "extent of a transform")
    angles = 2 * np.pi * np.outer(np.arange(used), np.arange(count)) / length
    cos, sin = np.cos(angles), np.sin(angles) * (-1 if form.inverse else 1)
    found = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
    if not form.inverse:
        return found
    if form.onesided:
        places = np.arange(used)
        twice = 2.0 - (places == 0) - (2 * places == length)
        found = (found * twice[:, None, None, None])[..., :1]
    return found / length


def transformed(call: Conversion, x: str, axis: int, form: Form, length: Index) -> str:
    """The transform of ``x`` [..., axis, ..., parts] along ``axis``, cut or with zeros behind."""
    if isinstance(length, int) and length < 1:
        call.fail(f"a transform of {length} numbers, which has no meaning")
    extents = call.type_of(x).shape
    used = simplify(minimum(extents[axis], form.used(length)), call.bounds)
    x = sliced(call, x, {axis: (0, used, 1)}, extents)
    rank = len(extents)
    perm = (*(a for a in range(rank - 1) if a != axis), axis, rank - 1)
    straight = perm == tuple(range(rank))
    moved = x if straight else call.emit(Transpose(perm), x)
    *outer, used, parts = call.type_of(moved).shape
    rows = reshaped(call, moved, (product(outer), used, parts))
    if isinstance(length, int) and length <= SMALL and isinstance(used, int):
        found = _by_matrix(call, rows, form, used, length)
    else:
        found = _by_stages(call, rows, form, length)
    result = reshaped(call, found, (*outer, *call.type_of(found).shape[1:]))
    back = tuple(int(p) for p in np.argsort(perm))
    return result if straight else call.emit(Transpose(back), result)


def _by_matrix(call: Conversion, x: str, form: Form, used: int, length: int) -> str:
    """Of rows [rows, used, parts]."""
    type = call.type_of(x)
    if type.shape[-1] == 2 and used == length and not form.onesided:
        found = _by_factors(call, x, (type.shape[0],), length, form.inverse)
        scale = call.constant(1 / length, type.dtype)
        return call.emit(ew.Mul(), found, scale) if form.inverse else found
    weights = matrix(used, length, form)[:, : type.shape[-1]].astype(type.dtype.numpy)
    count, results = weights.shape[2:]
    flat = reshaped(call, x, (type.shape[0], used * weights.shape[1]))
    weights = call.constant(weights.reshape(used * weights.shape[1], count * results))
    return reshaped(call, call.emit(MatMul(), flat, weights), (type.shape[0], count, results))


def _by_factors(
    call: Conversion, x: str, outer: tuple[Index, ...], length: int, inverse: bool
) -> str:
    """The unscaled transform of complex numbers ``x`` [*outer, length, 2].

    A composite length is split in two (Cooley and Tukey, "An algorithm for the machine calculation
    of complex Fourier series", 1965): over every ``rest``-th element, a turn, and over the rest.
    """
    first = max(d for d in range(1, isqrt(length) + 1) if length % d == 0)
    dtype, rest = call.type_of(x).dtype, length // first
    if first == 1 or length <= TINY:
        weights = matrix(length, length, Form(inverse, False)) * (length if inverse else 1)
        weights = weights.reshape(2 * length, 2 * length).astype(dtype.numpy)
        flat = reshaped(call, x, (*outer, 2 * length))
        product = call.emit(MatMul(), flat, call.constant(weights))
        return reshaped(call, product, (*outer, length, 2))
    rank = len(outer)
    swap = (*range(rank), rank + 1, rank, rank + 2)
    columns = call.emit(Transpose(swap), call.emit(Reshape((*outer, first, rest, 2)), x))
    inner = _by_factors(call, columns, (*outer, rest), first, inverse)
    turned = call.emit(Transpose(swap), _turned(call, inner, length, inverse))
    result = _by_factors(call, turned, (*outer, first), rest, inverse)
    return call.emit(Reshape((*outer, length, 2)), call.emit(Transpose(swap), result))


def _turned(call: Conversion, x: str, length: int, inverse: bool) -> str:
    """``x`` [..., j, k, 2] times ``exp(-2 pi i j k / length)``, its conjugate if ``inverse``."""
    type = call.type_of(x)
    rows, columns = (extent for extent in type.shape[-3:-1] if isinstance(extent, int))
    angles = 2 * np.pi * np.outer(np.arange(rows), np.arange(columns)) / length
    cos, sin = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    straight = np.stack([cos, cos], -1).astype(type.dtype.numpy)
    crossed = np.stack([-sin, sin], -1).astype(type.dtype.numpy)
    other = call.emit(Gather(type.rank - 1), x, call.constant(np.array([1, 0])))
    return call.emit(
        ew.Add(),
        call.emit(ew.Mul(), x, call.constant(straight)),
        call.emit(ew.Mul(), other, call.constant(crossed)),
    )


def _by_stages(call: Conversion, x: str, form: Form, length: Index) -> str:
    """Of rows [rows, used, parts], in f32 if they are narrower."""
    dtype = call.type_of(x).dtype
    wide = F64 if dtype == F64 else F32
    if dtype != wide:
        x = call.emit(ew.Cast(wide), x)
    used, missing = form.used(length), form.used(length) - call.type_of(x).shape[1]
    if missing != 0:
        x = call.emit(Pad((0, 0, 0), (0, missing, 0)), x)
    rows, _, parts = call.type_of(x).shape
    if parts == 1 and not form.inverse:
        x = call.emit(Reshape((rows, used)), x)
        found = _transform(call, x, FourierTransform(length, real=True))
        found = found if form.onesided else _mirrored(call, found, length)
    else:
        if parts == 1:
            x = call.emit(Pad((0, 0, 0), (0, 0, 1)), x)
        if form.inverse and form.onesided:
            x = _mirrored(call, x, length)
        whole = FourierTransform(length, form.inverse, divided=form.inverse)
        found = _transform(call, x, whole)
        results = 1 if form.inverse and form.onesided else 2
        shape = (rows, form.count(length), results)
        if call.type_of(found).shape != shape:
            found = call.emit(Slice((0, 0, 0), shape, (1, 1, 1)), found)
    return found if dtype == wide else call.emit(ew.Cast(dtype), found)


def _transform(call: Conversion, x: str, op: FourierTransform) -> str:
    dtype, length = call.type_of(x).dtype, op.length
    if isinstance(length, int) and length <= KEPT:
        given = [call.constant(table) for table in tables(length, dtype)]
        return call.emit(op, x, *given)
    if isinstance(length, int):
        fast, filter, chirp = FourierLengths(length).reference().tolist()
        made = FourierTables(length, (fast, filter, chirp), dtype)
        found = call.emitter.add_node(made, source=call.source)
        return call.emit(op, x, *(found if filter else found[:1]))
    (lengths,) = call.emitter.add_node(FourierLengths(length), source=call.source)
    label, known = f"{call.source[-1]}_table", Range(0, 4 * length)
    factors, filter, chirp = call.emitter.read_sizes(lengths, label, known, (), call.source)
    made = FourierTables(length, (factors, filter, chirp), dtype)
    return call.emit(op, x, *call.emitter.add_node(made, source=call.source))


def _mirrored(call: Conversion, x: str, length: Index) -> str:
    """The whole spectrum of real numbers, of its first half [rows, length // 2 + 1, 2]."""
    type = call.type_of(x)
    rest = length - floordiv(length, 2) - 1
    tail = call.emit(Slice((0, rest, 0), (type.shape[0], rest, 2), (1, -1, 1)), x)
    signs = call.constant(np.array([1, -1], type.dtype.numpy))
    return call.emit(Concat(1), x, call.emit(ew.Mul(), tail, signs))


def reshaped(call: Conversion, x: str, shape: tuple[Index, ...]) -> str:
    """``x`` in another shape; itself where that is its shape already."""
    return x if call.type_of(x).shape == shape else call.emit(Reshape(shape), x)
