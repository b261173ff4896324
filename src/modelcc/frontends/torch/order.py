"""Handlers of sorting, top-k, ranks, cumulative sums and extrema, searches and sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.frontends.kit.selection import different, places
from modelcc.frontends.torch.aten import Aten, Handler, overloads
from modelcc.frontends.torch.views import concatenated, expanded
from modelcc.ir.index import Index, floordiv
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, I64, U8, DType
from modelcc.ops import comparison as cp
from modelcc.ops import logic
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum
from modelcc.ops.gather import Gather, GatherElements, ScatterElements
from modelcc.ops.generate import Full, Indices, Iota
from modelcc.ops.reduce import ArgMax, ReduceMax, ReduceSum
from modelcc.ops.top_k import TopK
from modelcc.ops.views import cast, part, reshaped


def ranked(call: Aten, x: Value, axis: int, k: Index, largest: bool) -> tuple[Value, Value]:
    """The ``k`` largest or smallest along an axis and their indices; bools are ordered as
    numbers."""
    row = x if x.type.rank else reshaped(x, 1)
    numbers = cast(row, U8) if x.type.dtype == BOOL else row
    values, where = call.many(TopK(k, axis, largest), numbers)
    return cast(values, x.type.dtype), where


def sort(call: Aten, x: Value, dim: int = -1, descending: bool = False) -> Sequence[Value]:
    """All along an axis, in a stable order; NaN is the largest."""
    axis = call.axis(dim, x.type.rank)
    extent = x.type.shape[axis] if x.type.rank else 1
    return [reshaped(v, *x.type.shape) for v in ranked(call, x, axis, extent, descending)]


def stable_sort(
    call: Aten, x: Value, stable: bool | None, dim: int = -1, descending: bool = False
) -> Sequence[Value]:
    return sort(call, x, dim, descending)


def argsort(call: Aten, x: Value, dim: int = -1, descending: bool = False) -> Value:
    return sort(call, x, dim, descending)[1]


def stable_argsort(
    call: Aten, x: Value, stable: bool, dim: int = -1, descending: bool = False
) -> Value:
    return sort(call, x, dim, descending)[1]


def top_k(
    call: Aten, x: Value, k: Index, dim: int = -1, largest: bool = True, ordered: bool = True
) -> Sequence[Value]:
    axis = call.axis(dim, x.type.rank)
    return [reshaped(v, *call.extents()) for v in ranked(call, x, axis, k, largest)]


def kth_value(
    call: Aten, x: Value, k: Index, dim: int = -1, keepdim: bool = False
) -> Sequence[Value]:
    axis = call.axis(dim, x.type.rank)
    found = ranked(call, x, axis, k, largest=False)
    return [reshaped(part(v, axis, k - 1, 1), *call.extents()) for v in found]


def median(call: Aten, x: Value, dim: int, keepdim: bool = False) -> Sequence[Value]:
    """The lower median; the first NaN if there is one."""
    axis = call.axis(dim, x.type.rank)
    row = x if x.type.rank else reshaped(x, 1)
    middle = floordiv(row.type.shape[axis] - 1, 2)
    sorted_ = ranked(call, row, axis, row.type.shape[axis], largest=False)
    place: Value = reshaped(call.made(Indices((middle,), (1,))), *(1,) * row.type.rank)
    if x.type.dtype.is_float:
        odd = cast(of(cp.IsNaN(), row), I64)
        count = of(ReduceSum((axis,)), odd)
        first = count.lift(-1) * count + call.made(
            Indices((row.type.shape[axis],), (), I64))  # fmt: skip
        place = of(cp.Where(), of(cp.Equal(), count, count.lift(0)), place, first)
    return _picked(call, sorted_, place, axis)


def nan_median(call: Aten, x: Value, dim: int, keepdim: bool = False) -> Sequence[Value]:
    """The lower median of the elements that are not NaN."""
    axis = call.axis(dim, x.type.rank)
    row = x if x.type.rank else reshaped(x, 1)
    if not x.type.dtype.is_float:
        return median(call, x, dim, keepdim)
    real = cast(of(logic.Not(), of(cp.IsNaN(), row)), I64)
    count = of(ReduceSum((axis,)), real)
    place = of(cp.Max(), (count - 1) / 2, count.lift(0))
    sorted_ = ranked(call, row, axis, row.type.shape[axis], largest=False)
    return _picked(call, sorted_, place, axis)


def _picked(call: Aten, rows: Sequence[Value], place: Value, axis: int) -> Sequence[Value]:
    """The elements of sorted rows at a position, with their indices."""
    shape = tuple(1 if a == axis else e for a, e in enumerate(rows[0].type.shape))
    whole = place if place.type.shape == shape else expanded(place, shape)
    return [reshaped(of(GatherElements(axis), r, whole), *call.extents()) for r in rows]


def mode(call: Aten, x: Value, dim: int = -1, keepdim: bool = False) -> Sequence[Value]:
    """The most frequent element, the smallest of these, and its last index."""
    axis = call.axis(dim, x.type.rank)
    row = x if x.type.rank else reshaped(x, 1)
    extent = row.type.shape[axis]
    rows = ranked(call, row, axis, extent, largest=False)
    line = call.made(Iota(row.type.shape, axis))
    runs = line - _starts_of_runs(
        call, cast(rows[0], U8) if x.type.dtype == BOOL else rows[0], axis
    )
    return _picked(call, rows, of(ArgMax(axis), runs), axis)


def _starts_of_runs(call: Aten, x: Value, axis: int) -> Value:
    """The start of the run of equal elements that each one belongs to."""
    extent = x.type.shape[axis]
    apart = of(cp.NotEqual(), part(x, axis, 1, extent - 1), part(x, axis, 0, extent - 1))
    line = call.made(Iota(apart.type.shape, axis, 1))
    first = call.made(Full(part(x, axis, 0, 1).type.shape, 0, I64))
    return of(CumMax(axis), concatenated(call, axis, first, cp.where(apart, line, 0)))


def of_all(handler: Callable[..., Sequence[Value]]) -> Handler:
    """Applies a handler that reduces along an axis to all elements."""

    def whole(call: Aten, x: Value) -> Value:
        return handler(call, reshaped(x, x.type.elements), 0)[0]

    return whole


def cumulative(op: Callable[[int], Op]) -> Handler:
    """Prefix sums or products in the type of the result."""

    def handler(call: Aten, x: Value, dim: int, dtype: DType | None = None) -> Value:
        value = call.as_value(x)
        return of(op(call.axis(dim, x.type.rank)), value) if x.type.rank else value

    return handler


def running_extreme(op: Callable[[int], Op]) -> Handler:
    """The extremum so far, NaN from the first one on, and its latest index."""

    def handler(call: Aten, x: Value, dim: int) -> Sequence[Value]:
        if not x.type.rank:
            return [x, call.literal(0, I64)]
        axis = call.axis(dim, x.type.rank)
        numbers = cast(x, U8) if x.type.dtype == BOOL else x
        best = of(op(axis), numbers)
        hit = of(cp.Equal(), numbers, best)
        if x.type.dtype.is_float:
            hit = of(logic.Or(), hit, of(cp.IsNaN(), numbers))
        line = call.made(Iota(x.type.shape, axis))
        where = of(CumMax(axis), cp.where(hit, line, 0))
        return [cast(best, x.type.dtype), where]

    return handler


def repeat_interleave(call: Aten, repeats: Value, output_size: Index | None = None) -> Value:
    """Each index as often as ``repeats`` says, which are 0 or more."""
    counts = cast(repeats, I64)
    ends = of(CumSum(0), counts)
    size = output_size
    if size is None:
        total = of(ReduceSum((0,), False), counts)
        (size,) = call.emitter.read_sizes(total.name, f"{call.source[-1]}_count")
    # One more element for the ends after the last one.
    marks = call.made(Full((size + 1,), 0, I64))
    ones = call.made(Full(ends.type.shape, 1, I64))
    steps = of(ScatterElements(0, "add"), marks, ends, ones)
    return cast(of(CumSum(0), part(steps, 0, 0, size)), call.result.dtype)


def unique(
    call: Aten, x: Value, ordered: bool = True, inverse: bool = False, counts: bool = False
) -> Sequence[Value]:
    """The unique elements, sorted, the inverse indices, and the counts."""
    numbers = cast(x, U8) if x.type.dtype == BOOL else x
    found = different(call, reshaped(numbers, x.type.elements).name, None, True)
    values, _, which, often = (Value(call, name) for name in found)
    nothing = call.made(Full((0,), 0, I64))
    return [
        cast(values, x.type.dtype),
        reshaped(which, *x.type.shape) if inverse else nothing,
        often if counts else nothing,
    ]


def unique_slices(
    call: Aten, x: Value, dim: int, ordered: bool = True, inverse: bool = False,
    counts: bool = False,
) -> Sequence[Value]:  # fmt: skip
    axis = call.axis(dim, x.type.rank)
    numbers = cast(x, U8) if x.type.dtype == BOOL else x
    values, _, which, often = (
        Value(call, name) for name in different(call, numbers.name, axis, True)
    )
    return [cast(values, x.type.dtype), which, often]


def unique_neighbours(
    call: Aten, x: Value, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> Sequence[Value]:
    """The first of each run of equal slices, the run of each slice, and the lengths of runs.

    As in PyTorch, all three along an axis, and only requested ones for elements.
    """
    axis = 0 if dim is None else call.axis(dim, x.type.rank)
    rows = reshaped(x, x.type.elements) if dim is None else x
    if 0 in rows.type.shape:
        return [call.made(Full(r.shape, 0, r.dtype)) for r in call.results if r is not None]
    first = _begins(call, rows, axis)
    found = Value(call, places(call, first.name))
    starts = reshaped(found, found.type.shape[1])
    size, extent = starts.type.shape[0], rows.type.shape[axis]
    ends = concatenated(call, 0, part(starts, 0, 1, size - 1), call.made(Indices((extent,), (1,))))
    which = of(CumSum(0), cast(first, I64)) - 1
    nothing, all_ = call.made(Full((0,), 0, I64)), dim is not None
    return [
        of(Gather(axis), rows, starts),
        reshaped(which, *((extent,) if all_ else x.type.shape)) if inverse or all_ else nothing,
        ends - starts if counts or all_ else nothing,
    ]


def _begins(call: Aten, rows: Value, axis: int) -> Value:
    """Whether each slice differs from the one before."""
    extent = rows.type.shape[axis]
    apart = of(cp.NotEqual(), part(rows, axis, 1, extent - 1), part(rows, axis, 0, extent - 1))
    others = tuple(a for a in range(rows.type.rank) if a != axis)
    new = of(ReduceMax(others, False), apart) if others else apart
    return concatenated(call, 0, call.made(Full((1,), True, BOOL)), new)


ORDER = overloads(
    {
        "sort": sort,
        "sort.stable": stable_sort,
        "argsort": argsort,
        "argsort.stable": stable_argsort,
        "topk": top_k,
        "kthvalue": kth_value,
        "mode": mode,
        "median": of_all(median),
        "median.dim": median,
        "nanmedian": of_all(nan_median),
        "nanmedian.dim": nan_median,
        "cumsum": cumulative(CumSum),
        "cumprod": cumulative(CumProd),
        "logcumsumexp": cumulative(CumLogSumExp),
        "cummax": running_extreme(CumMax),
        "cummin": running_extreme(CumMin),
        "repeat_interleave.Tensor": repeat_interleave,
        "_unique2": unique,
        "unique_dim": unique_slices,
        "unique_consecutive": unique_neighbours,
    }
)
