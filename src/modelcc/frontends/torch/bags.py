"""Handlers of bags of embeddings: rows of a table added up, averaged, or their greatest."""

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
    """Bag k has the rows from ``offsets[k]`` on, but those of ``padding``.

    The other results are what the gradient wants: the bag of each index, the sizes of bags, and
    of the greatest rows which these are.
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
    """``x`` as PyTorch has result ``i``: as many rows, and integers."""
    wanted = call.results[i]
    assert wanted is not None
    if not x.type.rank:
        return call.made(Full(wanted.shape, 0, wanted.dtype))
    return cast(part(x, 0, 0, wanted.shape[0]), wanted.dtype)


def _places(
    call: Aten, rows: Value, kept: Value, best: Value, bags: Value, indices: Value
) -> Value:
    """Of each bag's greatest elements the first row that has them; row 0 of no rows."""
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
    """The bag that each index is in: offsets up to its place, less 1."""
    count: Index = indices.type.shape[0]
    marks = call.made(Full((count + 1,), 0, I64))
    ones = call.made(Full(offsets.type.shape, 1, I64))
    steps = of(ScatterElements(0, "add"), marks, cast(offsets, I64), ones)
    return part(of(CumSum(0), steps), 0, 0, count) - 1


def _greatest(call: Aten, rows: Value, kept: Value, often: Value, bags: Value) -> Value:
    """0 of no rows."""
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
    """Rows that are meant and whose norm exceeds ``limit``, shortened to it."""
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
