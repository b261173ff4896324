"""Handlers of diagonals, windows and other strided views."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.torch.aten import Aten, table
from modelcc.frontends.torch.views import expanded, replaced, spread
from modelcc.ir.index import Index, maximum, minimum, product
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Add, Value, of
from modelcc.ops.gather import Gather, GatherSum, ScatterElements
from modelcc.ops.generate import Full, Iota
from modelcc.ops.views import part, permuted, reshaped


def diagonal(call: Aten, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Elements at stride (columns + 1) of each matrix in row-major order."""
    last = _with_last(x, _pair(call, x.type.rank, dim1, dim2))
    *outer, rows, columns = last.type.shape
    first, count = _line(offset, rows, columns)
    if count == 0 or 0 in x.type.shape:
        return call.made(Full(call.extents(), 0, x.type.dtype))
    return part(reshaped(last, *outer, rows * columns), -1, first, count, columns + 1)


def diagonal_scatter(
    call: Aten, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """``x`` with ``source`` in place of a diagonal."""
    axes = _pair(call, x.type.rank, dim1, dim2)
    last = _with_last(x, axes)
    *outer, rows, columns = shape = last.type.shape
    first, count = _line(offset, rows, columns)
    flat = reshaped(last, *outer, rows * columns)
    part = first, count, columns + 1
    done = x if count == 0 else replaced(call, flat, call.as_value(source), len(outer), part)
    return x if count == 0 else _with_last_back(reshaped(done, *shape), axes)


def diagonal_backward(
    call: Aten, dy: Value, sizes: Sequence[Index], offset: int, dim1: int, dim2: int
) -> Value:
    zeros = call.made(Full(tuple(sizes), 0, dy.type.dtype))
    return diagonal_scatter(call, zeros, dy, offset, dim1, dim2)


def diag_embed(call: Aten, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Zero matrices with the rows of ``x`` as their diagonals."""
    axes = _pair(call, x.type.rank + 1, dim1, dim2)
    *outer, count = x.type.shape
    side = count + abs(offset)
    first, _ = _line(offset, side, side)
    if 0 in x.type.shape:
        return call.made(Full(call.extents(), 0, x.type.dtype))
    flat = spread(x, (*outer, side * side), len(outer), first, side + 1)
    return _with_last_back(reshaped(flat, *outer, side, side), axes)


def _line(offset: int, rows: Index, columns: Index) -> tuple[Index, Index]:
    """Offset of the first element of a diagonal, and its length."""
    if offset >= 0:
        return offset, maximum(minimum(rows, columns - offset), 0)
    return -offset * columns, maximum(minimum(rows + offset, columns), 0)


def _pair(call: Aten, rank: int, dim1: int, dim2: int) -> tuple[int, int]:
    return call.axis(dim1, rank), call.axis(dim2, rank)


def _order(rank: int, axes: tuple[int, int]) -> list[int]:
    return [*(a for a in range(rank) if a not in axes), *axes]


def _with_last(x: Value, axes: tuple[int, int]) -> Value:
    """``x`` with two axes moved to the end."""
    order = _order(x.type.rank, axes)
    return x if order == sorted(order) else permuted(x, *order)


def _with_last_back(x: Value, axes: tuple[int, int]) -> Value:
    """``x`` with its last two axes moved back."""
    order = _order(x.type.rank, axes)
    return x if order == sorted(order) else permuted(x, *map(order.index, range(len(order))))


def unfold(call: Aten, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along an axis; the position in a window becomes the last axis."""
    if not x.type.rank:
        return reshaped(x, 1) if size == 1 else part(reshaped(x, 1), 0, 0, size)
    axis = call.axis(dim, x.type.rank)
    count = call.extents()[axis]
    if size == step:
        tiles = part(x, axis, 0, count * size)
        shape = x.type.shape
        windows = reshaped(tiles, *shape[:axis], count, size, *shape[axis + 1 :])
    else:
        windows = of(Gather(axis), x, _places(call, (count, size), (step, 1), 0))
    rank = windows.type.rank
    return permuted(windows, *(a for a in range(rank) if a != axis + 1), axis + 1)


def unfold_backward(
    call: Aten, dy: Value, sizes: Sequence[Index], dim: int, size: int, step: int
) -> Value:
    """Gradients of windows accumulated at their source elements; other axes of ``dy`` broadcast."""
    if not sizes:
        return reshaped(dy)
    axis, rank = call.axis(dim, len(sizes)), dy.type.rank
    dy = expanded(dy, (*sizes[:axis], dy.type.shape[axis], *sizes[axis + 1 :], size))
    order = [*range(axis + 1), rank - 1, *range(axis + 1, rank - 1)]
    windows = dy if order == sorted(order) else permuted(dy, *order)
    places = _places(call, (dy.type.shape[axis], size), (step, 1), 0)
    return of(GatherSum(axis, sizes[axis]), windows, places)


def as_strided(
    call: Aten, x: Value, size: Sequence[Index], stride: Sequence[Index], offset: Index | None
) -> Value:
    """Elements of a contiguous tensor at any strides: a permuted view if it is one."""
    _require_contiguous(call)
    shape, strides, first = tuple(size), tuple(stride), offset or 0
    flat = reshaped(x, x.type.elements)
    order = sorted(range(len(shape)), key=lambda a: _rank_of(strides[a], shape[a]))
    packed = tuple(shape[a] for a in order)
    if _contiguous(packed) == tuple(strides[a] for a in order):
        run = reshaped(part(flat, 0, first, product(packed)), *packed)
        return permuted(run, *map(order.index, range(len(order)))) if order else run
    return of(Gather(0), flat, _places(call, shape, strides, first))


def as_strided_scatter(
    call: Aten, x: Value, source: Value, size: Sequence[Index], stride: Sequence[Index],
    offset: Index | None,
) -> Value:  # fmt: skip
    """``x`` with ``source`` in place of the elements of a strided view."""
    _require_contiguous(call)
    places = _places(call, tuple(size), tuple(stride), offset or 0)
    updates = call.as_value(source)
    flat = (reshaped(v, v.type.elements) for v in (x, places, updates))
    return reshaped(of(ScatterElements(0), *flat), *x.type.shape)


def _require_contiguous(call: Aten) -> None:
    given = call.given[0]
    if not given.is_contiguous() or given.storage_offset() != 0:
        unsupported("strides of a tensor that is itself no contiguous one")


def _rank_of(stride: Index, extent: Index) -> tuple[int, int]:
    """A sort key by descending strides; symbolic ones are taken as larger."""
    return (-stride, -1 if extent != 1 else 0) if isinstance(stride, int) else (-(1 << 62), 0)


def _contiguous(shape: tuple[Index, ...]) -> tuple[Index, ...]:
    return tuple(product(shape[a + 1 :]) for a in range(len(shape)))


def _places(
    call: Aten, shape: tuple[Index, ...], strides: tuple[Index, ...], first: Index
) -> Value:
    """``first`` plus the sum of all indices times ``strides``."""
    total = call.made(Full(shape, 0, I64)) if not shape else None
    for axis, stride in enumerate(strides):
        line = call.made(Iota(shape, axis, first if axis == 0 else 0, stride))
        total = line if total is None else of(Add(), total, line)
    assert total is not None
    return total if shape else total + first if isinstance(first, int) else total


DIAGONALS = table(
    diagonal=diagonal,
    diagonal_copy=diagonal,
    diagonal_scatter=diagonal_scatter,
    diagonal_backward=diagonal_backward,
    diag_embed=diag_embed,
    unfold=unfold,
    unfold_copy=unfold,
    unfold_backward=unfold_backward,
    as_strided=as_strided,
    as_strided_copy=as_strided,
    as_strided_scatter=as_strided_scatter,
)
