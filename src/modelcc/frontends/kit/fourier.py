"""Fourier transforms along an axis, with real and imaginary parts in the last axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.parts import sliced
from modelcc.ir.index import Index, Range, floordiv, minimum, product, simplify
from modelcc.ir.op import Builder
from modelcc.ir.types import F32, F64, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.broadcast import reshaped
from modelcc.ops.fourier import FourierTransform
from modelcc.ops.fourier_tables import FourierLengths, FourierTables, tables
from modelcc.ops.gather import Gather
from modelcc.ops.matmul import MatMul
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Concat, Reshape, Transpose
from modelcc.ops.slicing import Slice
from modelcc.ops.window import numbers

SMALL = 16
"""Lengths up to which a transform consists of matrix products, which can be fused."""
TINY = 8
"""Lengths up to which it is one matrix product."""
KEPT = 1 << 20
"""Lengths up to which tables are constants; longer ones are computed at run time."""


@dataclass(frozen=True)
class Form:
    """The kind of transform: inverse or not, and with the half spectrum of real signals only."""

    inverse: bool
    onesided: bool

    def used(self, length: Index) -> Index:
        """Number of elements of the operand that a transform of ``length`` uses."""
        return floordiv(length, 2) + 1 if self.inverse and self.onesided else length

    def count(self, length: Index) -> Index:
        """Number of elements of its result."""
        return floordiv(length, 2) + 1 if self.onesided and not self.inverse else length


def matrix(used: int, length: int, form: Form) -> Array:
    """DFT matrix ``[used, 2, frequencies, 2]``, by (real, imaginary) parts, in f64.

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


Factors = Callable[[Index, DType], Sequence[str]]
"""Values of the tables that a transform of some length uses."""


def transformed(call: Conversion, x: str, axis: int, form: Form, length: Index) -> str:
    """The transform of ``x`` [..., axis, ..., parts] along ``axis``, truncated or zero-padded."""
    if isinstance(length, int) and length < 1:
        call.fail(f"a transform of {length} numbers, which has no meaning")
    extents = call.type_of(x).shape
    used = simplify(minimum(extents[axis], form.used(length)), call.bounds)
    x = sliced(call, x, {axis: (0, used, 1)}, extents)

    def factors(length: Index, dtype: DType) -> Sequence[str]:
        return _made_factors(call, length, dtype)

    return along_axis(call, x, axis, form, length, factors)


def along_axis(
    build: Builder, x: str, axis: int, form: Form, length: Index, factors: Factors
) -> str:
    """As :func:`transformed`, of an ``x`` no longer along ``axis`` than the transform uses.

    ``factors`` yields the tables of multi-stage transforms.
    """
    rank = build.type_of(x).rank
    perm = (*(a for a in range(rank - 1) if a != axis), axis, rank - 1)
    straight = perm == tuple(range(rank))
    moved = x if straight else build.emit(Transpose(perm), x)
    *outer, used, parts = build.type_of(moved).shape
    rows = reshaped(build, moved, (product(outer), used, parts))
    if isinstance(length, int) and length <= SMALL and isinstance(used, int):
        found = _by_matrix(build, rows, form, used, length)
    else:
        found = _by_stages(build, rows, form, length, factors)
    result = reshaped(build, found, (*outer, *build.type_of(found).shape[1:]))
    back = tuple(int(p) for p in np.argsort(perm))
    return result if straight else build.emit(Transpose(back), result)


def _by_matrix(build: Builder, x: str, form: Form, used: int, length: int) -> str:
    """Of rows [rows, used, parts]."""
    type = build.type_of(x)
    if type.shape[-1] == 2 and used == length and not form.onesided:
        found = _by_factors(build, x, (type.shape[0],), length, form.inverse)
        scale = build.constant(1 / length, type.dtype)
        return build.emit(ew.Mul(), found, scale) if form.inverse else found
    weights = matrix(used, length, form)[:, : type.shape[-1]].astype(type.dtype.numpy)
    count, results = weights.shape[2:]
    flat = reshaped(build, x, (type.shape[0], used * weights.shape[1]))
    weights = build.constant(weights.reshape(used * weights.shape[1], count * results))
    return reshaped(build, build.emit(MatMul(), flat, weights), (type.shape[0], count, results))


def _by_factors(
    build: Builder, x: str, outer: tuple[Index, ...], length: int, inverse: bool
) -> str:
    """The unscaled transform of complex numbers ``x`` [*outer, length, 2].

    A composite length is split in two (Cooley and Tukey, "An algorithm for the machine calculation
    of complex Fourier series", 1965): over elements at stride ``rest``, twiddle factors, and over
    the rest.
    """
    first = max(d for d in range(1, isqrt(length) + 1) if length % d == 0)
    dtype, rest = build.type_of(x).dtype, length // first
    if first == 1 or length <= TINY:
        weights = matrix(length, length, Form(inverse, False)) * (length if inverse else 1)
        weights = weights.reshape(2 * length, 2 * length).astype(dtype.numpy)
        flat = reshaped(build, x, (*outer, 2 * length))
        product = build.emit(MatMul(), flat, build.constant(weights))
        return reshaped(build, product, (*outer, length, 2))
    rank = len(outer)
    swap = (*range(rank), rank + 1, rank, rank + 2)
    columns = build.emit(Transpose(swap), build.emit(Reshape((*outer, first, rest, 2)), x))
    inner = _by_factors(build, columns, (*outer, rest), first, inverse)
    turned = build.emit(Transpose(swap), _turned(build, inner, length, inverse))
    result = _by_factors(build, turned, (*outer, first), rest, inverse)
    return build.emit(Reshape((*outer, length, 2)), build.emit(Transpose(swap), result))


def _turned(build: Builder, x: str, length: int, inverse: bool) -> str:
    """``x`` [..., j, k, 2] times ``exp(-2 pi i j k / length)``, its conjugate if ``inverse``."""
    type = build.type_of(x)
    rows, columns = (extent for extent in type.shape[-3:-1] if isinstance(extent, int))
    angles = 2 * np.pi * np.outer(np.arange(rows), np.arange(columns)) / length
    cos, sin = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    straight = np.stack([cos, cos], -1).astype(type.dtype.numpy)
    crossed = np.stack([-sin, sin], -1).astype(type.dtype.numpy)
    other = build.emit(Gather(type.rank - 1), x, build.constant(np.array([1, 0])))
    return build.emit(
        ew.Add(),
        build.emit(ew.Mul(), x, build.constant(straight)),
        build.emit(ew.Mul(), other, build.constant(crossed)),
    )


def _by_stages(build: Builder, x: str, form: Form, length: Index, factors: Factors) -> str:
    """Of rows [rows, used, parts], in f32 if they are narrower."""
    dtype = build.type_of(x).dtype
    wide = F64 if dtype == F64 else F32
    if dtype != wide:
        x = build.emit(ew.Cast(wide), x)
    used, missing = form.used(length), form.used(length) - build.type_of(x).shape[1]
    if missing != 0:
        x = build.emit(Pad((0, 0, 0), (0, missing, 0)), x)
    rows, _, parts = build.type_of(x).shape
    if parts == 1 and not form.inverse:
        x = build.emit(Reshape((rows, used)), x)
        found = _transform(build, x, FourierTransform(length, real=True), factors)
        found = found if form.onesided else _mirrored(build, found, length)
    else:
        if parts == 1:
            x = build.emit(Pad((0, 0, 0), (0, 0, 1)), x)
        if form.inverse and form.onesided:
            x = _mirrored(build, x, length)
        whole = FourierTransform(length, form.inverse, divided=form.inverse)
        found = _transform(build, x, whole, factors)
        results = 1 if form.inverse and form.onesided else 2
        shape = (rows, form.count(length), results)
        if build.type_of(found).shape != shape:
            found = build.emit(Slice((0, 0, 0), shape, (1, 1, 1)), found)
    return found if dtype == wide else build.emit(ew.Cast(dtype), found)


def _transform(build: Builder, x: str, op: FourierTransform, factors: Factors) -> str:
    return build.emit(op, x, *factors(op.length, build.type_of(x).dtype))


def long_tables(length: int, dtype: DType) -> FourierTables:
    """The op that computes the tables of one length at run time; a filter of length 0 is none."""
    fast, filter, chirp = FourierLengths(length).reference().tolist()
    return FourierTables(length, (fast, filter, chirp), dtype)


def _made_factors(call: Conversion, length: Index, dtype: DType) -> Sequence[str]:
    if isinstance(length, int) and length <= KEPT:
        return [call.constant(table) for table in tables(length, dtype)]
    if isinstance(length, int):
        made = long_tables(length, dtype)
        found = call.emitter.add_node(made, source=call.source)
        return found if made.sizes[1] else found[:1]
    (lengths,) = call.emitter.add_node(FourierLengths(length), source=call.source)
    label, known = f"{call.source[-1]}_table", Range(0, 4 * length)
    factors, filter, chirp = call.emitter.read_sizes(lengths, label, known, (), call.source)
    made = FourierTables(length, (factors, filter, chirp), dtype)
    return call.emitter.add_node(made, source=call.source)


def _mirrored(build: Builder, x: str, length: Index) -> str:
    """The whole spectrum of real numbers from its half [rows, length // 2 + 1, 2]."""
    type = build.type_of(x)
    rest = length - floordiv(length, 2) - 1
    tail = build.emit(Slice((0, rest, 0), (type.shape[0], rest, 2), (1, -1, 1)), x)
    signs = build.constant(np.array([1, -1], type.dtype.numpy))
    return build.emit(Concat(1), x, build.emit(ew.Mul(), tail, signs))
