"""Gathers and scatters, top-k, segment sums, tensors created from sizes."""

from __future__ import annotations

from typing import Literal

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.selection import cut, places
from modelcc.frontends.tflite.call import Handlers, SingleResult, TfliteCall
from modelcc.ir.index import Index, Range, ceildiv, floordiv
from modelcc.ir.types import I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import of
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.cumulative import CumSum
from modelcc.ops.gather import Gather, OneHot
from modelcc.ops.gather_nd import GatherND, ScatterND
from modelcc.ops.generate import Full, Iota
from modelcc.ops.padding import Pad
from modelcc.ops.quant import limits
from modelcc.ops.shape import Concat, Transpose
from modelcc.ops.slicing import ReplaceSlice, Slice
from modelcc.ops.top_k import TopK
from modelcc.ops.views import part, permuted, reshaped

Reduction = Literal["add", "mul", "max", "min"]


def gather(call: TfliteCall) -> str:
    """GATHER along an axis."""
    axis = call.normal(call.integer("axis"), call.rank())
    batch = call.integer("batch_dims")
    batch += call.rank(1) if batch < 0 else 0
    if not 0 <= batch <= min(axis, call.rank(1)):
        call.fail(f"it gathers along axis {axis} with {batch} batch dimensions")
    if not batch:
        return call.emit(Gather(axis), call.input(0), call.input(1))
    return _gathered_by_batch(call, axis, batch)


def _gathered_by_batch(call: TfliteCall, axis: int, batch: int) -> str:
    """Slices within ``batch`` leading axes, which operand and indices share."""
    rank, indices = call.rank(), call.rank(1)
    order = (*range(batch), axis, *range(batch, axis), *range(axis + 1, rank))
    pairs = of(Reshape((*call.shape(1), 1)), call.value(1))
    rows = of(GatherND(batch), of(Transpose(order), call.value(0)), pairs)
    middle, last = (
        range(indices, indices + axis - batch),
        range(indices + axis - batch, rank + indices - batch - 1),
    )
    back = (*range(batch), *middle, *range(batch, indices), *last)
    return of(Transpose(back), rows).name


def embedding_lookup(call: TfliteCall) -> str:
    """EMBEDDING_LOOKUP: rows of the second operand."""
    if call.is_quantized or not call.dtype(1).is_float:
        unsupported(f"rows of {call.dtype(1)}")
    return call.emit(Gather(0), call.input(1), call.input(0))


def gather_nd(call: TfliteCall) -> str:
    """GATHER_ND."""
    return call.emit(GatherND(), call.input(0), call.input(1))


def scatter_nd(call: TfliteCall) -> str:
    """SCATTER_ND: updates added to zeros."""
    shape = call.indices(2, "shape")
    zeros = call.emit(Full(shape, 0, call.result_dtype))
    return call.emit(ScatterND("add"), zeros, call.input(0), call.input(1))


def one_hot(call: TfliteCall) -> str:
    """ONE_HOT; indices out of range, including negative ones, give no 1."""
    depth = call.index(1, "depth")
    given = call.integer("axis", -1)
    axis = call.normal(given, call.rank() + 1)
    values = [call.emit(Reshape((1,)), call.input(i)) for i in (3, 2)]
    line = call.value(0)
    below = of(ew.Less(), line, line.lift(0))
    inside = of(ew.Where(), below, line.lift(2**31 - 1), line)
    pair = call.emit(Concat(0), *values)
    return call.emit(OneHot(axis, depth), inside.name, pair)


def topk_v2(call: TfliteCall) -> tuple[str, ...]:
    """TOPK_V2 along the last axis."""
    axis = call.rank() - 1
    k = call.index(1, "k", Range(0, call.shape()[axis]))
    values, found = call.add(TopK(k, axis), call.input(0))
    wanted = call.results[1].dtype
    return values, found if wanted in (None, I64) else call.emit(ew.Cast(wanted), found)


def where(call: TfliteCall) -> str:
    """WHERE: the indices of true elements, one row each."""
    x = call.value(0)
    held = x if not x.type.dtype.is_float else of(ew.NotEqual(), x, x.lift(0.0))
    return call.emit(Transpose((1, 0)), places(call, held.name))


def reverse_v2(call: TfliteCall) -> str:
    """REVERSE_V2 along axes."""
    axes = [call.normal(axis, call.rank()) for axis in call.integers(1, "axes")]
    shape = call.shape()
    starts = tuple(e - 1 if a in axes else 0 for a, e in enumerate(shape))
    steps = tuple(-1 if a in axes else 1 for a in range(len(shape)))
    return call.emit(Slice(starts, shape, steps), call.input(0))


def cumsum(call: TfliteCall) -> str:
    """CUMSUM."""
    (axis,) = call.integers(1, "axis")
    op = CumSum(call.normal(axis, call.rank()), call.flag("exclusive"), call.flag("reverse"))
    return call.emit(op, call.input(0))


def fill(call: TfliteCall) -> str:
    """FILL of a shape by a number."""
    return call.emit(Expand(call.indices(0, "shape")), call.input(1))


def range_(call: TfliteCall) -> str:
    """RANGE from a start up to a limit, exclusive."""
    if call.result_dtype.is_float:
        start, limit, step = (call.array(i, "bounds").reshape(()).item() for i in range(3))
        count = max(0, int(np.ceil((limit - start) / step)))
        return call.emit(Iota((count,), 0, float(start), float(step), call.result_dtype))
    first, last = call.index(0, "start"), call.index(1, "limit")
    (delta,) = call.integers(2, "step")
    if delta == 0:
        call.fail("its step is 0")
    span = last - first if delta > 0 else first - last
    count: Index = ceildiv(span, abs(delta))
    if isinstance(count, int):
        count = max(0, count)
    return call.emit(Iota((count,), 0, first, delta, call.result_dtype))


def dynamic_update_slice(call: TfliteCall) -> str:
    """DYNAMIC_UPDATE_SLICE: an update written at run-time indices, clamped in bounds."""
    room = [Range(0, e - s) for e, s in zip(call.shape(), call.shape(1), strict=True)]
    known = call.known(2)
    if known is None:
        line = call.as_value(call.emit(ew.Cast(I64), call.input(2)))
        most = call.emitter.note_indices([r.hi or 0 for r in room], I64)
        inside = of(ew.Min(), of(ew.Max(), line, line.lift(0)), call.as_value(most))
        starts = call.emitter.read_sizes(inside.name, call.labels[2] or "start", room, (),
                                         call.source)  # fmt: skip
    else:
        given = call.integers(2, "start")
        ends = [r.hi if isinstance(r.hi, int) else None for r in room]
        starts = tuple(
            max(0, s if e is None else min(s, e)) for s, e in zip(given, ends, strict=True)
        )
    return call.emit(ReplaceSlice(starts), call.input(0), call.input(1))


def space_to_batch_nd(call: TfliteCall) -> str:
    """SPACE_TO_BATCH_ND: the pixels of blocks as separate images."""
    blocks, pads = call.integers(1, "blocks"), call.indices(2, "paddings")
    count, rank = len(blocks), call.rank()
    before = (0, *pads[::2], *(0,) * (rank - 1 - count))
    after = (0, *pads[1::2], *(0,) * (rank - 1 - count))
    value = call.single(0).zero if call.is_quantized else 0
    x = call.as_value(call.emit(Pad(before, after, "constant", value), call.input(0)))
    batch, *sizes = x.type.shape
    inner = [floordiv(s, b) for s, b in zip(sizes, blocks, strict=False)]
    split = [part for pair in zip(inner, blocks, strict=True) for part in pair]
    wide = reshaped(x, batch, *split, *sizes[count:])
    perm = (
        *(2 * n + 2 for n in range(count)), 0, *(2 * n + 1 for n in range(count)),
        *range(2 * count + 1, rank + count),
    )  # fmt: skip
    whole = batch * int(np.prod(blocks))
    return reshaped(permuted(wide, *perm), whole, *inner, *sizes[count:]).name


def batch_to_space_nd(call: TfliteCall) -> str:
    """BATCH_TO_SPACE_ND: images as the pixels of blocks, cropped."""
    blocks, crops = call.integers(1, "blocks"), call.indices(2, "crops")
    count, rank = len(blocks), call.rank()
    batch, *sizes = call.shape()
    own = floordiv(batch, int(np.prod(blocks)))
    wide = reshaped(call.value(0), *blocks, own, *sizes)
    pairs = [axis for n in range(count) for axis in (count + 1 + n, n)]
    moved = permuted(wide, count, *pairs, *range(2 * count + 1, rank + count))
    grown = [s * b for s, b in zip(sizes, blocks, strict=False)]
    x = reshaped(moved, own, *grown, *sizes[count:])
    before = (0, *(-1 * c for c in crops[::2]), *(0,) * (rank - 1 - count))
    after = (0, *(-1 * c for c in crops[1::2]), *(0,) * (rank - 1 - count))
    return call.emit(Pad(before, after), x.name)


def segment_sum(call: TfliteCall) -> str:
    """SEGMENT_SUM: rows of ascending segments; the last segment number gives their count."""
    known = call.known(1)
    if known is not None:
        return _combined(call, "add", int(np.asarray(known)[-1]) + 1)
    ends = part(call.value(1), 0, call.shape(1)[0] - 1, 1)
    last = of(ew.Cast(I64), ends) + 1
    (count,) = call.emitter.read_sizes(
        last.name, call.labels[1] or "segments", Range(0, None), (), call.source
    )
    return _combined(call, "add", count)


def unsorted(reduction: Reduction) -> SingleResult:
    """UNSORTED_SEGMENT_…: the third operand is the number of segments."""

    def handler(call: TfliteCall) -> str:
        return _combined(call, reduction, call.index(2, "number of segments"))

    return handler


def _combined(call: TfliteCall, reduction: Reduction, count: Index) -> str:
    """Rows combined with the neutral element; those of negative segments go into an extra row."""
    shape, dtype = call.shape()[call.rank(1) :], call.dtype()
    low, high = limits(dtype)
    neutral = {"add": 0, "mul": 1, "max": low, "min": high}[reduction]
    start = call.emit(Full((count + 1, *shape), neutral, dtype))
    segment = of(ew.Cast(I64), call.value(1))
    spare = call.as_value(call.note((count,), I64))
    row = of(ew.Where(), of(ew.Less(), segment, segment.lift(0)), spare, segment)
    places = of(Reshape((*call.shape(1), 1)), row)
    rows = call.emit(ScatterND(reduction), start, places.name, call.input(0))
    return cut(call, rows, 0, count)


GATHERING: Handlers = {
    "GATHER": gather,
    "EMBEDDING_LOOKUP": embedding_lookup,
    "GATHER_ND": gather_nd,
    "SCATTER_ND": scatter_nd,
    "ONE_HOT": one_hot,
    "TOPK_V2": topk_v2,
    "WHERE": where,
    "REVERSE_V2": reverse_v2,
    "CUMSUM": cumsum,
    "FILL": fill,
    "RANGE": range_,
    "DYNAMIC_UPDATE_SLICE": dynamic_update_slice,
    "SPACE_TO_BATCH_ND": space_to_batch_nd,
    "BATCH_TO_SPACE_ND": batch_to_space_nd,
    "SEGMENT_SUM": segment_sum,
    "UNSORTED_SEGMENT_SUM": unsorted("add"),
    "UNSORTED_SEGMENT_PROD": unsorted("mul"),
    "UNSORTED_SEGMENT_MAX": unsorted("max"),
    "UNSORTED_SEGMENT_MIN": unsorted("min"),
}
