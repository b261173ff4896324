"""Index rules of Slice: clamping of possibly symbolic bounds."""

from __future__ import annotations

from modelcc.frontends.kit.vectors import BEYOND
from modelcc.ir.index import Bounds, Index, ceildiv, compare, maximum, minimum, simplify

FAR = 2**31 - 1
"""Exporters write bounds of at least this magnitude for "up to the end"."""


def clamped_range(
    start: Index, end: Index, step: int, extent: Index, bounds: Bounds
) -> tuple[Index, Index]:
    """First index and number of elements of ``[start:end:step]`` on a dimension of ``extent``.

    Follows ONNX: negative bounds count from the end, bounds beyond the ends are clamped.
    """
    step = min(max(step, -BEYOND), BEYOND)
    whole = isinstance(end, int) and end >= FAR and step > 0
    if isinstance(end, int) and abs(end) >= FAR:
        end = (extent if end > 0 else 0) if step > 0 else (extent - 1 if end > 0 else -1 - extent)
    if step > 0:
        first = _clamp(from_front(start, extent, bounds), 0, extent, bounds)
        # An extent counts from the front, even if no bound proves that it is not negative.
        last = extent if whole else _clamp(from_front(end, extent, bounds), 0, extent, bounds)
        if compare(start, ">=", 0, bounds):
            # The same if it is not negative, with one mention of the extent: in chains of slices
            # two would double each time.
            stop = extent if whole else _at_most(from_front(end, extent, bounds), extent, bounds)
            count = ceildiv(stop - start, step)
        else:
            count = ceildiv(last - first, step)
    else:
        first = _clamp(from_front(start, extent, bounds), 0, extent - 1, bounds)
        last = _clamp(from_front(end, extent, bounds), -1, extent - 1, bounds)
        count = ceildiv(first - last, -step)
    first, count = simplify(first, bounds), simplify(count, bounds)
    return first, _at_least(count, 0, bounds)


def from_front(position: Index, extent: Index, bounds: Bounds) -> Index:
    """``position`` on a dimension of ``extent``; negative ones count from the end."""
    negative = compare(position, "<", 0, bounds)
    if negative is None:
        return position + extent * minimum(1, maximum(0, -position))
    return position + extent if negative else position


def _clamp(value: Index, low: Index, high: Index, bounds: Bounds) -> Index:
    return _at_most(_at_least(value, low, bounds), high, bounds)


def _at_least(value: Index, low: Index, bounds: Bounds) -> Index:
    match compare(value, ">=", low, bounds):
        case True:
            return value
        case False:
            return low
        case None:
            return low if compare(value, "<=", low, bounds) else maximum(value, low)


def _at_most(value: Index, high: Index, bounds: Bounds) -> Index:
    match compare(value, "<=", high, bounds):
        case True:
            return value
        case False:
            return high
        case None:
            return high if compare(value, ">=", high, bounds) else minimum(value, high)
