"""Handlers of bags of embeddings: rows of a table added up, averaged, or their greatest."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.torch.aten import Aten, table
from modelcc.ir.index import Index
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import Equal, Max, where
from modelcc.ops.cumulative import CumSum
from modelcc.ops.gather import Gather, GatherSum, ScatterElements, ScatterND
from modelcc.ops.generate import Full
from modelcc.ops.views import cast, part, reshaped

SUM, MEAN, MAX = range(3)


def embedding_bag(
    call: Aten, weight: Value, indices: Value, offsets: Value, by_frequency: bool = False,
    mode: int = SUM, sparse: bool = False, factors: Value | None = None,
    include_last: bool = False, padding: int = -1,
) -> Sequence[Value | None]:  # fmt: skip
    """Bag k has the rows from ``offsets[k]`` on, but those of ``padding``.

    What PyTorch keeps for its own gradient is not made.
    """
    rows, bags = of(Gather(0), weight, indices), _bags(call, indices, offsets)
    kept = call.made(Full(indices.type.shape, 1, weight.type.dtype))
    if padding >= 0:
        kept = where(of(Equal(), indices, indices.lift(padding)), kept.lift(0), kept)
    weights = kept if factors is None else kept * factors
    size = call.extents()[0]
    often = of(GatherSum(0, offsets.type.shape[0]), kept, bags)
    if mode == MAX:
        found = _greatest(call, rows, kept, often, bags)
    else:
        found = of(GatherSum(0, often.type.shape[0]), rows * _column(weights), bags)
    if mode == MEAN:
        found = found / _column(of(Max(), often, often.lift(1)))
    return [part(found, 0, 0, size), *(None for _ in call.results[1:])]


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


BAGS = table(_embedding_bag=embedding_bag, _embedding_bag_forward_only=embedding_bag)
