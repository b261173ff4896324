"""Handlers of reductions over segments of an axis."""

from __future__ import annotations

from modelcc.frontends.torch.aten import Aten, Number, table
from modelcc.frontends.torch.scatter import COMBINATIONS, put
from modelcc.frontends.torch.searches import before
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import Equal, Max, where
from modelcc.ops.cumulative import CumSum
from modelcc.ops.generate import Full, Iota
from modelcc.ops.views import cast, part, reshaped

NEUTRAL = {"max": float("-inf"), "min": float("inf"), "sum": 0.0, "mean": 0.0, "prod": 1.0}


def segment_reduce(
    call: Aten, x: Value, reduce: str, lengths: Value | None = None, indices: Value | None = None,
    offsets: Value | None = None, axis: int = 0, unsafe: bool = False,
    initial: Number | None = None,
) -> Value:  # fmt: skip
    """Consecutive segments; elements in none of them are ignored.

    An empty segment is ``initial``, else the neutral element; its mean is NaN.
    """
    ends, sizes = _segments(lengths, offsets, axis)
    shape, count = call.extents(), ends.type.shape[axis]
    line = call.made(Iota((*x.type.shape[:axis], x.type.shape[axis]), axis))
    places = before(call, ends, line, right=True)
    tail = x.type.shape[axis + 1 :]
    wide = of(Expand(x.type.shape), reshaped(places, *places.type.shape, *(1 for _ in tail)))
    start = NEUTRAL[reduce] if initial is None else initial
    room = (*shape[:axis], count + 1, *tail)  # the last one takes the elements after all segments
    whole = call.made(Full(room, start, x.type.dtype))
    how = COMBINATIONS[{"max": "amax", "min": "amin"}.get(reduce, reduce)]
    total = part(put(call, whole, axis, wide, x, how), axis, 0, count)
    if reduce != "mean":
        return total
    often = reshaped(cast(sizes, x.type.dtype), *sizes.type.shape, *(1 for _ in tail))
    mean = total / of(Max(), often, often.lift(1.0))
    empty = of(Expand(shape), of(Equal(), often, often.lift(0.0)))
    return mean if initial is not None else where(empty, float("nan"), mean)


def _segments(lengths: Value | None, offsets: Value | None, axis: int) -> tuple[Value, Value]:
    """Ends and lengths of segments."""
    if lengths is not None:
        sizes = cast(lengths, I64)
        return of(CumSum(axis), sizes), sizes
    assert offsets is not None
    bounds = cast(offsets, I64)
    count = bounds.type.shape[axis] - 1
    ends = part(bounds, axis, 1, count)
    return ends, ends - part(bounds, axis, 0, count)


SEGMENTS = table(segment_reduce=segment_reduce)
