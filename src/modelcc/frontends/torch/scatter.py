"""Handlers of scatters: overwriting, sums, products, extrema, means."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.frontends.torch.aten import Aten, Handler, Number, overloads
from modelcc.frontends.torch.division import divide
from modelcc.frontends.torch.indexing import Given, selection
from modelcc.frontends.torch.views import expanded
from modelcc.ir.index import Index
from modelcc.ir.op import broadcast_shapes
from modelcc.ir.types import BOOL, I64, U8, DType
from modelcc.ops.arithmetic import Sub, Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import Equal, Max, Where, where
from modelcc.ops.cumulative import CumSum
from modelcc.ops.gather import Gather, ScatterElements, ScatterND
from modelcc.ops.generate import Full
from modelcc.ops.runtime_index import Combination
from modelcc.ops.views import cast, part, reshaped

COMBINATIONS: Mapping[str | None, Combination] = MappingProxyType(
    {
        None: "none", "add": "add", "sum": "add", "mean": "add", "multiply": "mul",
        "prod": "mul", "amax": "max", "amin": "min",
    }
)  # fmt: skip
"""Reductions by PyTorch's names."""


def put(
    call: Aten, x: Value, axis: int, indices: Value, updates: Value, how: Combination,
    signed: bool = False,
) -> Value:  # fmt: skip
    """``updates`` at ``indices`` along ``axis``, as many as there are indices.

    ``signed`` indices may be negative.
    """
    if 0 in indices.type.shape:
        return x
    narrow = x.type.dtype if how == "none" or x.type.dtype != BOOL else U8
    value, source = cast(x, narrow), cast(updates, narrow)
    if not x.type.rank:
        value, source, indices = (reshaped(v, 1) for v in (value, source, indices))
    for a, count in enumerate(indices.type.shape):
        source = part(source, a, 0, count)
    done = of(ScatterElements(axis, how, signed), value, indices, source)
    return cast(reshaped(done, *x.type.shape), x.type.dtype)


def scatter(call: Aten, x: Value, dim: int, indices: Value, source: Value | Number,
            reduce: str | None = None) -> Value:  # fmt: skip
    axis = call.axis(dim, x.type.rank)
    updates = _lifted(call, source, indices)
    return put(call, x, axis, indices, updates, COMBINATIONS[reduce])


def _lifted(call: Aten, source: Value | Number, like: Value) -> Value:
    if isinstance(source, Value) and source.type.rank == like.type.rank:
        return call.as_value(source)
    return of(Expand(like.type.shape), call.as_value(source))


def scatter_add(call: Aten, x: Value, dim: int, indices: Value, source: Value) -> Value:
    return scatter(call, x, dim, indices, source, "add")


def scatter_reduce(
    call: Aten, x: Value, dim: int, indices: Value, source: Value, reduce: str,
    include_self: bool = True,
) -> Value:  # fmt: skip
    """Elements combined with those of ``x``, or unless ``include_self`` only among themselves."""
    if 0 in indices.type.shape:
        return x
    axis, how = call.axis(dim, x.type.rank), COMBINATIONS[reduce]
    start = x
    if not include_self:
        neutral = call.made(Full(indices.type.shape, _neutral(how, x.type.dtype), x.type.dtype))
        start = put(call, x, axis, indices, neutral, "none")
    total = put(call, start, axis, indices, source, how)
    if reduce != "mean":
        return total
    ones = call.made(Full(indices.type.shape, 1, x.type.dtype))
    counts = call.made(Full(x.type.shape, int(include_self), x.type.dtype))
    count = put(call, counts, axis, indices, ones, "add")
    several = of(Max(), count, count.lift(1))
    return divide(call, total, several, None if x.type.dtype.is_float else "floor")


def _neutral(how: Combination, dtype: DType) -> Number:
    if how in ("add", "mul"):
        return 0 if how == "add" else 1
    if dtype == BOOL:
        return how == "min"
    if dtype.is_float:
        return float("-inf") if how == "max" else float("inf")
    info: Any = np.iinfo(dtype.numpy)
    return int(info.min if how == "max" else info.max)


def index_reduce(
    call: Aten, x: Value, dim: int, indices: Value, source: Value, reduce: str,
    include_self: bool = True,
) -> Value:  # fmt: skip
    """Slices combined along an axis: as elements with the same index each."""
    axis = call.axis(dim, x.type.rank)
    shape = source.type.shape or (1,)
    places = reshaped(indices, *(e if a == axis else 1 for a, e in enumerate(shape)))
    wide = reshaped(of(Expand(shape), places), *source.type.shape)
    return scatter_reduce(call, x, dim, wide, source, reduce, include_self)


def index_put(
    call: Aten, x: Value, indices: Given, values: Value, accumulate: bool = False, *_: object
) -> Value:
    """``values`` at the indices that :func:`indexing.index` reads."""
    source = call.as_value(values)
    masked = None if accumulate else _masked(call, x, indices, source)
    if masked is not None:
        return masked
    chosen = selection(call, x, indices)
    narrow = U8 if accumulate and x.type.dtype == BOOL else x.type.dtype
    count = len(chosen.indices)
    own = chosen.indices[0].type.shape
    rest = tuple(x.type.shape[a] for a in chosen.order[count:])
    wanted = (*rest[: chosen.place], *own, *rest[chosen.place :])
    whole = source if source.type.shape == wanted else _stretched(source, wanted)
    updates = cast(chosen.unplaced(whole), narrow)
    if 0 in updates.type.shape:
        return x
    how: Combination = "add" if accumulate else "none"
    target = cast(x if chosen.side_by_side else chosen.front(x), narrow)
    axis = chosen.order[0] if chosen.side_by_side else 0
    done = cast(of(ScatterND(how, axis), target, chosen.tuples(call), updates), x.type.dtype)
    return done if chosen.side_by_side else chosen.back(done)


def _stretched(x: Value, shape: tuple[Index, ...]) -> Value:
    """``x`` expanded to ``shape`` along its axes of extent 1; missing axes are prepended."""
    own = (1,) * (len(shape) - x.type.rank) + x.type.shape[max(0, x.type.rank - len(shape)) :]
    target = tuple(w if e == 1 else e for e, w in zip(own, shape, strict=True))
    return expanded(reshaped(x, *own), target)


def _masked(call: Aten, x: Value, indices: Given, source: Value) -> Value | None:
    """A selection by a mask, if the source's shape does not depend on how often it holds."""
    masks = [(a, i) for a, i in enumerate(indices) if i is not None]
    if len(masks) != 1 or masks[0][1].type.dtype not in (BOOL, U8):
        return None
    axis, mask = masks[0]
    rest = x.type.shape[axis + mask.type.rank :]
    if any(e != 1 for e in source.type.shape[: max(0, source.type.rank - len(rest))]):
        return None
    tail = source.type.shape[max(0, source.type.rank - len(rest)) :]
    holds = cast(reshaped(mask, *mask.type.shape, *(1,) * len(rest)), BOOL)
    return of(Where(), holds, reshaped(source, *tail), x)


def masked_scatter(call: Aten, x: Value, mask: Value, source: Value) -> Value:
    """The elements of ``source`` in row-major order where a mask holds."""
    shape = broadcast_shapes(x.type.shape, mask.type.shape)
    if 0 in (*shape, *source.type.shape):
        return x
    holds, own = expanded(mask, shape), expanded(x, shape)
    flat = reshaped(cast(holds, I64), holds.type.elements)
    before = of(Sub(), of(CumSum(0), flat), flat)
    # Elements where it does not hold read a value, too, which must exist.
    read = where(of(Equal(), flat, flat.lift(0)), flat.lift(0), before)
    elements = reshaped(call.as_value(source), source.type.elements)
    found = reshaped(of(Gather(0), elements, read), *shape)
    return of(Where(), holds, found, own)


def flat_put(
    call: Aten, x: Value, indices: Value, source: Value, accumulate: bool = False
) -> Value:
    """Elements at row-major indices."""
    flat = [reshaped(v, v.type.elements) for v in (x, indices, source)]
    how: Combination = "add" if accumulate else "none"
    done = put(call, flat[0], 0, flat[1], flat[2], how, signed=True)
    return reshaped(done, *x.type.shape)


SCATTER: Mapping[str, Handler] = overloads(
    {
        "scatter": scatter,
        "scatter_add": scatter_add,
        "scatter_reduce": scatter_reduce,
        "index_reduce": index_reduce,
        "index_put": index_put,
        "_unsafe_index_put": index_put,
        "masked_scatter": masked_scatter,
        "put": flat_put,
    }
)
