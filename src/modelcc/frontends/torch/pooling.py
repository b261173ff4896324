"""Handlers of poolings, by windows and to given extents, and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as cartesian
from math import prod

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.torch.aten import Aten, Handler, table
from modelcc.frontends.torch.convolutions import Numbers, per_axis
from modelcc.ir.index import Index, product
from modelcc.ir.op import Op
from modelcc.ir.types import F64, I64, DType
from modelcc.ops.arithmetic import Mod, Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import GreaterOrEqual, IsNaN, Less, where
from modelcc.ops.gather import Gather, ScatterElements
from modelcc.ops.generate import Full, Iota
from modelcc.ops.logic import And
from modelcc.ops.matmul import MatMul
from modelcc.ops.pool import AveragePool, MaxPool, MaxPoolGrad, MaxPoolIndices
from modelcc.ops.reduce import ArgMax, ReduceMax, ReduceMean, ReduceSum
from modelcc.ops.shape import Transpose
from modelcc.ops.views import cast, reshaped
from modelcc.ops.window import Window


def _batched(op: Op, x: Value, rank: int) -> Value:
    """``op`` on a tensor with or without a batch axis."""
    if x.type.rank == rank + 2:
        return of(op, x)
    y = of(op, reshaped(x, 1, *x.type.shape))
    return reshaped(y, *y.type.shape[1:])


Ints = tuple[int, ...]
Geometry = tuple[Ints, Ints, Ints, Ints, Ints]


def _geometry(
    call: Aten, rank: int, kernel: Numbers, stride: Numbers, padding: Numbers,
    dilation: Numbers = 1,
) -> Geometry:  # fmt: skip
    """Kernel, strides, pads before and after, dilations; the stride defaults to the kernel."""
    pads, dilations = per_axis(call, padding, rank), per_axis(call, dilation, rank)
    extents = per_axis(call, kernel, rank)
    steps = kernel if stride in ((), [], None) else stride
    return extents, per_axis(call, steps, rank), pads, pads, dilations


def max_pool(rank: int, with_indices: bool) -> Handler:
    """The maximum of each window, and its index in its image."""

    def handler(
        call: Aten, x: Value, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
        dilation: Numbers = 1, ceil_mode: bool = False,
    ) -> Value | tuple[Value, Value]:  # fmt: skip
        sizes = x.type.shape[-rank:]
        geometry = _geometry(call, rank, kernel, stride, padding, dilation)
        values = _batched(MaxPool(*geometry, ceil_mode, keep_nan=True), x, rank)
        if not with_indices:
            return values
        places = _batched(MaxPoolIndices(*geometry, ceil_mode, keep_nan=True), x, rank)
        return values, _in_image(call, places, sizes)

    return handler


def _in_image(call: Aten, places: Value, extents: Sequence[Index]) -> Value:
    """Indices in the whole tensor as indices in their image."""
    return of(Mod(), places, Value(call, call.note((product(extents),), I64)))


def max_pool_backward(rank: int) -> Handler:
    """The gradient goes to the first maximum, given by ``indices``."""

    def handler(
        call: Aten, dy: Value, x: Value, kernel: Numbers, stride: Numbers, padding: Numbers,
        dilation: Numbers, ceil_mode: bool, indices: Value,
    ) -> Value:  # fmt: skip
        geometry = _geometry(call, rank, kernel, stride, padding, dilation)
        op = MaxPoolGrad(*geometry, ceil_mode, keep_nan=True)
        if x.type.rank == rank + 2:
            return of(op, x, dy)
        single = (reshaped(v, 1, *v.type.shape) for v in (x, dy))
        return reshaped(of(op, *single), *x.type.shape)

    return handler


def average_pool(rank: int) -> Handler:
    def handler(
        call: Aten, x: Value, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
    ) -> Value:  # fmt: skip
        sizes = x.type.shape[-rank:]
        geometry = _geometry(call, rank, kernel, stride, padding)
        op, factor = _average(geometry, ceil_mode, count_include_pad, divisor, sizes)
        y = _batched(op, x, rank)
        return y if factor == 1 else y * factor

    return handler


def _average(
    geometry: Geometry, ceil_mode: bool, count_include_pad: bool,
    divisor: int | None, sizes: Sequence[Index],
) -> tuple[AveragePool, float]:  # fmt: skip
    """The pooling, and a factor for its result if all windows are divided by ``divisor``.

    These are whole windows, the last ones padded.
    """
    if divisor is None:
        return AveragePool(*geometry, ceil_mode, count_include_pad), 1
    kernel, strides, before, after, dilations = geometry
    window = Window(kernel, strides, before, after, dilations, ceil_mode)
    fitted = window.fitted_after(sizes, window.extents(sizes))
    return AveragePool(kernel, strides, before, fitted, dilations, False, True), (
        prod(kernel) / divisor
    )


def average_pool_backward(rank: int) -> Handler:
    def handler(
        call: Aten, dy: Value, x: Value, kernel: Numbers, stride: Numbers, padding: Numbers,
        ceil_mode: bool, count_include_pad: bool, divisor: int | None,
    ) -> Value:  # fmt: skip
        sizes = x.type.shape[-rank:]
        geometry = _geometry(call, rank, kernel, stride, padding)
        op, factor = _average(geometry, ceil_mode, count_include_pad, divisor, sizes)
        scaled = dy if factor == 1 else dy * factor
        lead = () if x.type.rank == rank + 2 else (1,)
        whole = reshaped(x, *lead, *x.type.shape)
        (dx,) = op.grad(call, [reshaped(scaled, *lead, *dy.type.shape).name], [whole.name], ())
        return reshaped(Value(call, dx), *x.type.shape)

    return handler


# --- adaptive pooling


def _even(sizes: Sequence[Index], outputs: Sequence[int]) -> tuple[int, ...] | None:
    """Extents of the windows if these are all equal and adjacent."""
    pairs = list(zip(sizes, outputs, strict=True))
    if not all(isinstance(s, int) and o > 0 and s % o == 0 and s > 0 for s, o in pairs):
        return None
    return tuple(int(str(s)) // o for s, o in pairs)


def _side_by_side(kernel: tuple[int, ...]) -> Geometry:
    zeros, ones = (0,) * len(kernel), (1,) * len(kernel)
    return kernel, kernel, zeros, zeros, ones


def _bins(size: Index, count: int) -> list[range]:
    """The elements of each of ``count`` results: from floor(i * size / count) to the ceiling of the
    next."""
    extent = number_of(size, "extent of an adaptive pooling")
    return [range(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]


def adaptive_average(rank: int) -> Handler:
    def handler(call: Aten, x: Value, output_size: Numbers) -> Value:
        target = tuple(number_of(e, "extent") for e in call.extents()[-rank:])
        sizes = x.type.shape[-rank:]
        if all(t == 1 for t in target):
            return of(ReduceMean(tuple(range(x.type.rank - rank, x.type.rank)), True), x)
        kernel = _even(sizes, target)
        if kernel is not None:
            return _batched(AveragePool(*_side_by_side(kernel)), x, rank)
        for place, (size, count) in enumerate(zip(sizes, target, strict=True)):
            axis = x.type.rank - rank + place
            if isinstance(size, int) and count > 0:
                x = _averaged(call, x, axis, _bins(size, count))
            else:
                x = _along(x, axis, _averaging(call, size, count, x.type.dtype))
        return x

    return handler


def _averaged(call: Aten, x: Value, axis: int, bins: Sequence[range]) -> Value:
    """Means of windows along an axis; elements outside a window are not multiplied by 0, which
    would turn infinity into NaN."""
    lengths = np.array([len(b) for b in bins])
    most = int(lengths.max())
    places = np.array([[b[min(k, len(b) - 1)] for k in range(most)] for b in bins])
    seen = of(Gather(axis), x, call.literal(places))
    after = (1,) * (x.type.rank - axis - 1)
    inside = np.reshape(np.arange(most) < lengths[:, None], (len(bins), most, *after))
    if not inside.all():
        seen = where(call.literal(inside), seen, seen.lift(0))
    total = of(ReduceSum((axis + 1,), False), seen)
    count = np.reshape(lengths, (len(bins), *after)).astype(x.type.dtype.numpy)
    return total / call.literal(count)


def _averaging(call: Aten, size: Index, count: int, dtype: DType) -> Value:
    """The matrix [size, count] of averages along one axis."""
    firsts = [i * size // count for i in range(count)]
    ends = [((i + 1) * size + count - 1) // count for i in range(count)]
    first, end = (Value(call, call.note(places, I64)) for places in (firsts, ends))
    line = call.made(Iota((size, count), 0, dtype=I64))
    inside = of(And(), of(GreaterOrEqual(), line, first), of(Less(), line, end))
    share = cast(1.0 / cast(end - first, F64), dtype)
    return where(inside, share, share.lift(0))


def _along(x: Value, axis: int, matrix: Value) -> Value:
    """``x`` times a matrix along an axis."""
    if axis == x.type.rank - 1:
        return of(MatMul(), x, matrix)
    lead, tail = x.type.shape[:axis], x.type.shape[axis + 1 :]
    flat = reshaped(x, *lead, x.type.shape[axis], product(tail))
    mixed = of(MatMul(), of(Transpose((1, 0)), matrix), flat)
    return reshaped(mixed, *lead, matrix.type.shape[1], *tail)


def adaptive_average_backward(rank: int) -> Handler:
    def handler(call: Aten, dy: Value, x: Value) -> Value:
        outputs, sizes = dy.type.shape[-rank:], x.type.shape[-rank:]
        if all(o == 1 for o in outputs):
            spread = of(Expand(x.type.shape), dy)
            count = Value(call, call.note((product(sizes),), I64))
            return spread / call.as_value(count)
        for place, (size, count) in enumerate(zip(sizes, outputs, strict=True)):
            matrix = _averaging(call, size, number_of(count, "extent"), x.type.dtype)
            dy = _along(dy, x.type.rank - rank + place, of(Transpose((1, 0)), matrix))
        return dy

    return handler


def adaptive_max(rank: int) -> Handler:
    """The maximum of each window and its index in the image."""

    def handler(call: Aten, x: Value, output_size: Numbers) -> tuple[Value, Value]:
        target = tuple(number_of(e, "extent") for e in call.extents()[-rank:])
        sizes = x.type.shape[-rank:]
        kernel = _even(sizes, target)
        if kernel is not None:
            geometry = _side_by_side(kernel)
            places = _batched(MaxPoolIndices(*geometry, keep_nan=True), x, rank)
            values = _batched(MaxPool(*geometry, keep_nan=True), x, rank)
            return values, _in_image(call, places, sizes)
        return _uneven_max(call, x, sizes, target)

    return handler


def place_of_greatest(call: Aten, x: Value) -> Value:
    """Index along the last axis of the first maximum, or of the last NaN, as in poolings."""
    axis = x.type.rank - 1
    first = of(ArgMax(axis, False), x)
    line = call.made(Iota((x.type.shape[axis],), 0, dtype=I64))
    if not x.type.dtype.is_float:
        return first
    odd = of(IsNaN(), x)
    last = of(ReduceMax((axis,), False), where(odd, line, line.lift(-1)))
    return where(of(Less(), last, last.lift(0)), first, last)


def _uneven_max(
    call: Aten, x: Value, sizes: Sequence[Index], target: Sequence[int]
) -> tuple[Value, Value]:
    """Windows of several extents, gathered; smaller ones repeat their last element."""
    if 0 in target:
        unsupported("a result without elements")
    axes = [_bins(size, count) for size, count in zip(sizes, target, strict=True)]
    extents = [number_of(size, "extent") for size in sizes]
    windows = [
        [int(np.ravel_multi_index(place, extents)) for place in cartesian(*bins)]
        for bins in cartesian(*axes)
    ]
    most = max(map(len, windows))
    table_ = np.array([w + w[-1:] * (most - len(w)) for w in windows])
    lead = x.type.shape[: x.type.rank - len(sizes)]
    axis = len(lead)
    flat = reshaped(x, *lead, prod(extents))
    seen = of(Gather(axis), flat, call.literal(table_))
    values = of(ReduceMax((axis + 1,), False), seen)
    which = place_of_greatest(call, seen)
    base = call.literal((np.arange(len(windows)) * most).astype(np.int64))
    places = of(Gather(0), call.literal(table_.reshape(-1)), which + base)
    return reshaped(values, *lead, *target), reshaped(places, *lead, *target)


def adaptive_max_backward(rank: int) -> Handler:
    """Each window's gradient goes to its maximum, given by ``indices``."""

    def handler(call: Aten, dy: Value, x: Value, indices: Value) -> Value:
        lead, image = x.type.shape[:-rank], x.type.shape[-rank:]
        lines = (reshaped(v, *lead, product(v.type.shape[-rank:])) for v in (indices, dy))
        dx = of(
            ScatterElements(len(lead), "add"),
            call.made(Full((*lead, product(image)), 0, x.type.dtype)),
            *lines,
        )
        return reshaped(dx, *x.type.shape)

    return handler


POOLING = table(
    max_pool1d=max_pool(1, False),
    max_pool2d=max_pool(2, False),
    max_pool3d=max_pool(3, False),
    max_pool1d_with_indices=max_pool(1, True),
    max_pool2d_with_indices=max_pool(2, True),
    max_pool3d_with_indices=max_pool(3, True),
    max_pool2d_with_indices_backward=max_pool_backward(2),
    max_pool3d_with_indices_backward=max_pool_backward(3),
    avg_pool1d=average_pool(1),
    avg_pool2d=average_pool(2),
    avg_pool3d=average_pool(3),
    avg_pool2d_backward=average_pool_backward(2),
    avg_pool3d_backward=average_pool_backward(3),
    adaptive_avg_pool1d=adaptive_average(1),
    adaptive_avg_pool2d=adaptive_average(2),
    adaptive_avg_pool3d=adaptive_average(3),
    _adaptive_avg_pool2d=adaptive_average(2),
    _adaptive_avg_pool3d=adaptive_average(3),
    _adaptive_avg_pool2d_backward=adaptive_average_backward(2),
    _adaptive_avg_pool3d_backward=adaptive_average_backward(3),
    adaptive_max_pool1d=adaptive_max(1),
    adaptive_max_pool2d=adaptive_max(2),
    adaptive_max_pool3d=adaptive_max(3),
    adaptive_max_pool2d_backward=adaptive_max_backward(2),
    adaptive_max_pool3d_backward=adaptive_max_backward(3),
)
