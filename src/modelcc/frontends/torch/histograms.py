"""Handlers of histograms: counts, or sums of weights, per bin."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.torch.aten import Aten, Number, overloads
from modelcc.frontends.torch.searches import before
from modelcc.ir.index import product
from modelcc.ir.types import I64, DType
from modelcc.ops import comparison as cp
from modelcc.ops import logic
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.gather import GatherSum
from modelcc.ops.generate import Full, Iota
from modelcc.ops.reduce import ReduceMax, ReduceMin, ReduceSum
from modelcc.ops.views import cast, part, reshaped

Ends = tuple[Value, Value]
"""The outer edges."""


def _ends(call: Aten, x: Value, given: Sequence[Number] | None, margin: float) -> Ends:
    """The given ones, else those of the elements; equal ones are moved apart by ``margin`` each."""
    dtype = x.type.dtype
    if given is None and x.type.elements == 0:
        given = (0.0, 1.0)
    if given is not None:
        away = margin if given[0] == given[1] else 0.0
        return call.literal(given[0] - away, dtype), call.literal(given[1] + away, dtype)
    axes = tuple(range(x.type.rank))
    least, most = (reshaped(of(op(axes), x)) for op in (ReduceMin, ReduceMax))
    alike = of(cp.Equal(), least, most)
    return cp.where(alike, least - margin, least), cp.where(alike, most + margin, most)


def _edges(call: Aten, ends: Ends, bins: int) -> Value:
    """Spaced as in PyTorch: from both ends to the middle."""
    low, high = ends
    step = (high - low) / float(bins)
    place = call.made(Iota((bins + 1,), 0, 0, 1, low.type.dtype))
    first = of(cp.Less(), place, place.lift((bins + 1) // 2))
    return cp.where(first, step * place + low, high - step * (float(bins) - place))


def _even_bins(x: Value, ends: Ends, bins: int) -> Value:
    low, high = ends
    return cast((x - low) * float(bins) / (high - low), I64)


def _bin_of(call: Aten, x: Value, edges: Value) -> Value:
    return before(call, edges, x, right=True) - 1


def _masked(x: Value, bin: Value, ends: Ends, bins: int) -> Value:
    """The bin of each element: the last one includes its upper edge; ``bins`` for those in none."""
    low, high = ends
    inside = of(logic.And(), of(cp.GreaterOrEqual(), x, low), of(cp.LessOrEqual(), x, high))
    kept = of(cp.Min(), bin, bin.lift(bins - 1))
    return cp.where(inside, kept, bins)


def _counted(call: Aten, bins: Value, count: int, weight: Value | None, dtype: DType) -> Value:
    """The sums of weights, or of ones, of the bins below ``count``."""
    flat = reshaped(bins, bins.type.elements)
    given = call.made(Full(flat.type.shape, 1, dtype)) if weight is None else cast(weight, dtype)
    kept = of(cp.Min(), flat, flat.lift(count))
    total = of(GatherSum(0, count + 1), reshaped(given, bins.type.elements), kept)
    return part(total, 0, 0, count)


def histc(call: Aten, x: Value, bins: int = 100, low: Number = 0, high: Number = 0) -> Value:
    ends = _ends(call, x, (low, high) if low != high else None, 1.0)
    places = _masked(x, _even_bins(x, ends, bins), ends, bins)
    return _counted(call, places, bins, None, x.type.dtype)


def histogram(
    call: Aten, x: Value, bins: int, range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    edges = _edges(call, _ends(call, x, range, 0.5), bins)
    return histogram_of(call, x, edges, weight, density)


def histogram_of(
    call: Aten, x: Value, edges: Value, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    line = reshaped(x, x.type.elements, 1)
    return _grid(call, line, [edges], weight, density), edges


def bin_edges(
    call: Aten, x: Value, bins: Sequence[int], range: Sequence[float] | None = None, *_: object
) -> Sequence[Value]:
    """Edges for each column of ``x``."""
    found: list[Value] = []
    for k, count in enumerate(bins):
        ends = range[2 * k : 2 * k + 2] if range else None
        column = part(_points(x, len(bins)), 1, k, 1)
        found.append(_edges(call, _ends(call, column, ends, 0.5), count))
    return found


def _points(x: Value, columns: int) -> Value:
    return reshaped(x, product(x.type.shape[:-1]), columns)


def grid(
    call: Aten, x: Value, bins: Sequence[int], range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> Value:  # fmt: skip
    return _grid(call, x, bin_edges(call, x, bins, range), weight, density)


def grid_of(
    call: Aten, x: Value, edges: Sequence[Value], weight: Value | None = None, density: bool = False
) -> Value:
    return _grid(call, x, edges, weight, density)


def _grid(
    call: Aten, x: Value, edges: Sequence[Value], weight: Value | None, density: bool
) -> Value:
    """Bins over all columns of ``x``."""
    counts = [number_of(e.type.shape[0], "number of edges") - 1 for e in edges]
    points = _points(x, len(edges))
    whole: Value | None = None
    outside: Value | None = None
    for k, (line, count) in enumerate(zip(edges, counts, strict=True)):
        column = reshaped(part(points, 1, k, 1), points.type.shape[0])
        ends = part(line, 0, 0, 1), part(line, 0, count, 1)
        places = _masked(column, _bin_of(call, column, line), ends, count)
        beyond = of(cp.Equal(), places, places.lift(count))
        outside = beyond if outside is None else of(logic.Or(), outside, beyond)
        whole = places if whole is None else whole * count + places
    assert whole is not None and outside is not None
    flat = cp.where(outside, prod(counts), whole)
    total = reshaped(_counted(call, flat, prod(counts), weight, x.type.dtype), *counts)
    return _dense(total, edges) if density else total


def _dense(total: Value, edges: Sequence[Value]) -> Value:
    """Densities: each bin's share of the total, divided by its volume."""
    axes = tuple(range(total.type.rank))
    total = total / of(ReduceSum(axes, True), total)
    for k, line in enumerate(edges):
        count = line.type.shape[0] - 1
        width = part(line, 0, 1, count) - part(line, 0, 0, count)
        total = total / reshaped(width, *(count if a == k else 1 for a in axes))
    return total


def bin_count(call: Aten, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """The count of each number, up to the maximum; negative numbers are rejected."""
    dtype = call.result.dtype
    if x.type.elements == 0:
        return call.made(Full((minlength,), 0, dtype))
    wide = cast(x, I64)
    most = of(ReduceMax((0,), False), wide) + 1
    needed = of(cp.Max(), most, most.lift(minlength))
    (size,) = call.emitter.read_sizes(needed.name, f"{call.source[-1]}_count")
    below = of(cp.Less(), wide, wide.lift(0))
    places = of(cp.Where(), below, wide - needed, wide)
    given = call.made(Full(x.type.shape, 1, dtype)) if weights is None else cast(weights, dtype)
    return of(GatherSum(0, size), given, places)


HISTOGRAMS = overloads(
    {
        "histc": histc,
        "histogram.bin_ct": histogram,
        "histogram.bins_tensor": histogram_of,
        "_histogramdd_bin_edges": bin_edges,
        "_histogramdd_from_bin_cts": grid,
        "_histogramdd_from_bin_tensors": grid_of,
        "bincount": bin_count,
    }
)
