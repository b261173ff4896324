"""Handlers of searches: positions of values among sorted edges."""

from __future__ import annotations

from modelcc.frontends.torch.aten import Aten, Number, table
from modelcc.ir.op import Op
from modelcc.ir.types import I64
from modelcc.ops import comparison as cp
from modelcc.ops import logic
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.gather import Gather, GatherElements
from modelcc.ops.generate import Full
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.views import cast, reshaped

FEW = 64
"""Number of edges up to which comparing all of them, vectorised, is faster than bisection."""


def search(
    call: Aten, edges: Value, values: Value | Number, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    """Number of edges of a row before each value: less, or with ``right`` also equal; NaN is
    last."""
    x = values if isinstance(values, Value) else call.literal(values, edges.type.dtype)
    if sorter is not None:
        edges = of(GatherElements(edges.type.rank - 1), edges, sorter)
    if edges.type.dtype != x.type.dtype:
        wide = call.promoted()
        edges, x = cast(edges, wide), cast(x, wide)
    return cast(before(call, edges, x, right or side == "right"), call.result.dtype)


def before(call: Aten, edges: Value, x: Value, right: bool) -> Value:
    """Number of edges, per row or shared, that are less than each value, or with ``right``
    equal."""
    beyond = cp.Greater() if right else cp.GreaterOrEqual()
    count = edges.type.shape[-1]
    if isinstance(count, int) and count > FEW:
        return _bisected(call, edges, x, count, beyond)
    flat = edges.type.rank == 1
    rows = edges if flat else reshaped(edges, *edges.type.shape[:-1], 1, count)
    less = of(logic.Not(), of(beyond, rows, reshaped(x, *x.type.shape, 1)))
    return of(ReduceSum((x.type.rank,), False), cast(less, I64))


def _bisected(call: Aten, edges: Value, x: Value, count: int, beyond: Op) -> Value:
    """Bisection: the count grows by decreasing powers of 2 while its last edge is still before."""
    read = Gather(0) if edges.type.rank == 1 else GatherElements(x.type.rank - 1)
    place = call.made(Full(x.type.shape, 0, I64))
    for power in reversed(range(count.bit_length())):
        further = place + (1 << power)
        edge = of(read, edges, of(cp.Min(), further, further.lift(count)) - 1)
        there = of(logic.Not(), of(beyond, edge, x))
        fits = of(cp.LessOrEqual(), further, further.lift(count))
        place = of(cp.Where(), of(logic.And(), fits, there), further, place)
    return place


def bucketize(
    call: Aten, x: Value | Number, edges: Value, out_int32: bool = False, right: bool = False
) -> Value:
    return search(call, edges, x, out_int32, right)


SEARCHES = table(searchsorted=search, bucketize=bucketize)
