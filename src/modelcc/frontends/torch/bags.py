"""Handlers of embedding bags: sums, means or maxima of rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.torch.aten import Aten, table
from modelcc.frontends.torch.reductions import vector_norm
from modelcc.frontends.torch.views import concatenated
from modelcc.ir.index import Index
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import Equal, Max, NotEqual, above, where
from modelcc.ops.cumulative import CumSum
from modelcc.ops.gather import Gather, GatherSum, ScatterElements, ScatterND
from modelcc.ops.generate import Full, Iota
from modelcc.ops.logic import And
from modelcc.ops.views import cast, part, reshaped

SUM, MEAN, MAX = range(3)


def embedding_bag(
    call: Aten, weight: Value, indices: Value, offsets: Value, by_frequency: bool = False,
    mode: int = SUM, sparse: bool = False, factors: Value | None = None,
    include_last: bool = False, padding: int = -1,
) -> Sequence[Value]:  # fmt: skip
    """Bag k has the rows from ``offsets[k]`` on, except those of ``padding``.

    The other results are for the gradient: the bag of each index, the sizes of bags, and the
    indices of maximum rows.
    """
    rows, bags = of(Gather(0), weight, indices), _bags(call, indices, offsets)
    kept = call.made(Full(indices.type.shape, 1, weight.type.dtype))
    if padding >= 0:
        kept = where(of(Equal(), indices, indices.lift(padding)), kept.lift(0), kept)
    weights = kept if factors is None else kept * factors
    often = of(GatherSum(0, offsets.type.shape[0]), kept, bags)
    if mode == MAX:
        found = _greatest(call, rows, kept, often, bags)
    else:
        found = of(GatherSum(0, often.type.shape[0]), rows * _column(weights), bags)
    which = _places(call, rows, kept, found, bags, indices) if mode == MAX else None
    if mode == MEAN:
        found = found / _column(of(Max(), often, often.lift(1)))
    return [_first(call, v, i) for i, v in enumerate((found, bags, often, which or often.lift(0)))]


def _first(call: Aten, x: Value, i: int) -> Value:
    """``x`` in the form of PyTorch's result ``i``: with its number of rows, as integers."""
    wanted = call.results[i]
    assert wanted is not None
    if not x.type.rank:
        return call.made(Full(wanted.shape, 0, wanted.dtype))
    return cast(part(x, 0, 0, wanted.shape[0]), wanted.dtype)


def _places(
    call: Aten, rows: Value, kept: Value, best: Value, bags: Value, indices: Value
) -> Value:
    """For each element of a bag's maximum the first row that attains it; row 0 if it has no
    rows."""
    here = of(Equal(), rows, of(Gather(0), best, bags))
    real = of(And(), here, of(NotEqual(), _column(kept), kept.lift(0)))
    line = call.made(Iota(rows.type.shape, 0))
    count = reshaped(Value(call, call.note((indices.type.shape[0],), I64)))
    far = of(Expand(best.type.shape), count)
    first = of(ScatterND("min"), far, _column(bags), where(real, line, count))
    none = call.made(Full((1,), 0, indices.type.dtype))
    return of(Gather(0), concatenated(call, 0, indices, none), first)


def _column(x: Value) -> Value:
    return reshaped(x, *x.type.shape, 1)


def _bags(call: Aten, indices: Value, offsets: Value) -> Value:
    """The bag of each index: the number of offsets up to its position, less 1."""
    count: Index = indices.type.shape[0]
    marks = call.made(Full((count + 1,), 0, I64))
    ones = call.made(Full(offsets.type.shape, 1, I64))
    steps = of(ScatterElements(0, "add"), marks, cast(offsets, I64), ones)
    return part(of(CumSum(0), steps), 0, 0, count) - 1


def _greatest(call: Aten, rows: Value, kept: Value, often: Value, bags: Value) -> Value:
    """The maximum; 0 for a bag without rows."""
    least = float("-inf")
    real = where(of(Equal(), _column(kept), kept.lift(0)), rows.lift(least), rows)
    shape = (*often.type.shape, rows.type.shape[1])
    start = call.made(Full(shape, least, rows.type.dtype))
    best = of(ScatterND("max"), start, _column(bags), real)
    empty = of(Expand(shape), _column(of(Equal(), often, often.lift(0))))
    return where(empty, best.lift(0), best)


def renormalised(
    call: Aten, weight: Value, indices: Value, limit: float, order: float = 2.0
) -> Value:
    """The table; rows that are indexed and whose norm exceeds ``limit`` are rescaled to it."""
    flat = reshaped(indices, indices.type.elements)
    ones = call.made(Full(flat.type.shape, 1, I64))
    often = of(GatherSum(0, weight.type.shape[0]), ones, flat)
    norm = vector_norm(call, weight, order, (-1,))
    long = of(And(), above(norm, limit), of(NotEqual(), often, often.lift(0)))
    return weight * _column(where(long, limit / (norm + 1e-7), 1.0))


BAGS = table(
    embedding_renorm=renormalised,
    _embedding_bag=embedding_bag,
    _embedding_bag_forward_only=embedding_bag,
)
