"""Cutting the range of a loop variable into runs of equal tiles.

Guards (padding) hold everywhere in the *interior* of a variable's range; there they are dropped.
The borders run point by point, with the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import (
    Bounds,
    Index,
    coefficient,
    compare,
    floordiv,
    maximum,
    minimum,
    simplify,
    substitute,
    symbols,
)
from modelcc.ir.tensor import Condition


@dataclass(frozen=True)
class Segment:
    """``count`` tiles of ``tile`` points from ``start``; ``interior``: its guards hold.

    Vectors in ``whole`` blocks have all their lanes, though they may be ``partial`` in others.
    The segment is skipped where ``present`` is 0.
    """

    start: Index
    count: Index
    tile: int
    interior: bool = False
    partial: bool = False
    present: Index = 1
    whole: bool = False


def even_tiles(start: Index, extent: Index, tile: int, interior: bool) -> list[Segment]:
    """Tiles of at most ``tile`` points, as even as possible; symbolic extents end in single points.

    ``even_tiles(0, 40, 14, …)`` is 14 + 2 × 13.
    """
    if isinstance(extent, int):
        if extent <= 0:
            return []
        number = -(-extent // tile)
        small, larger = divmod(extent, number)
        runs = [Segment(start, larger, small + 1, interior)] if larger else []
        rest = Segment(start + larger * (small + 1), number - larger, small, interior)
        return [*runs, rest]
    whole = floordiv(extent, tile)
    runs = [Segment(start, whole, tile, interior)]
    if tile > 1:
        runs.append(Segment(start + whole * tile, extent - whole * tile, 1, interior))
    return runs


def halved_tiles(extent: Index, tile: int) -> list[Segment]:
    """Tiles of all of ``extent``; the remainder of a symbolic one in tiles of half the size, or of
    the greatest divisor below that, and so on.

    A tile of one point takes as long as one of several, which hide each other's latencies.
    """
    if isinstance(extent, int):
        return even_tiles(0, extent, tile, interior=True)
    runs: list[Segment] = []
    start: Index = 0
    while tile:
        whole = floordiv(extent, tile) * tile
        runs.append(Segment(start, floordiv(whole - start, tile), tile, interior=True))
        start, tile = whole, next((n for n in range(tile // 2, 0, -1) if tile % n == 0), 0)
    return runs


def vector_tiles(
    blocks: Index, tile: int, partial: bool, ranges: Bounds, inside: bool = False
) -> list[Segment]:
    """Tiles over vector blocks: whole ``tile`` s first, a remainder, then the partial block.

    A symbolic number of blocks may be 0; then there is no partial block either, whose operands
    may be empty.  Where the blocks are parts ``inside`` of a block of the layout, any of
    them may be partial or empty.
    """
    if partial and inside:
        whole = vector_tiles(blocks, tile, False, ranges)
        return [replace(segment, partial=True) for segment in whole]
    full = simplify(maximum(blocks - 1, 0), ranges) if partial else blocks
    runs: list[Segment] = []
    if isinstance(full, int):
        number, rest = divmod(full, tile)
        runs += [Segment(0, number, tile)] if number else []
        runs += [Segment(number * tile, 1, rest)] if rest else []
    else:
        runs += even_tiles(0, full, tile, interior=False)
    if partial:
        some = compare(blocks, ">", 0, ranges)
        runs.append(Segment(full, 1, 1, partial=True, present=1 if some else blocks))
    return runs


def element_tiles(elements: Index, lanes: int, tile: int, ranges: Bounds) -> list[Segment]:
    """Tiles over the vectors of ``elements`` elements, a partial one only for a remainder: masked
    access to a whole vector is several times slower."""
    whole = simplify(floordiv(elements, lanes), ranges)
    left = simplify(elements - whole * lanes, ranges)
    # If there may only be few elements, some loops are empty.
    tiles = [t for t in vector_tiles(whole, tile, False, ranges) if simplify(t.count, ranges) != 0]
    return [*tiles, Segment(whole, 1, 1, partial=True, present=left)] if left != 0 else tiles


def interior_of(
    variable: str, extent: Index, conditions: Sequence[Condition], ranges: Bounds
) -> tuple[Index, Index] | None:
    """Range ``[lo, hi)`` of ``variable`` in which all conditions hold; None without conditions.

    Conditions are ``left >= 0`` with ``left`` affine in ``variable``; others are never proven.
    """
    lo: Index = 0
    hi: Index = extent
    relevant = [c for c in conditions if variable in symbols(c.left)]
    if not relevant:
        return None
    for condition in relevant:
        bound = _bound(variable, condition, ranges)
        if bound is None:
            return (0, 0)
        below, above = bound
        lo = lo if below is None else maximum(lo, below)
        hi = hi if above is None else minimum(hi, above)
    lo = simplify(minimum(lo, extent), ranges)
    return lo, simplify(maximum(lo, hi), ranges)


def _bound(
    variable: str, condition: Condition, ranges: Bounds
) -> tuple[Index | None, Index | None] | None:
    """(first, end) of the values of ``variable`` for which ``condition`` provably holds."""
    slope = coefficient(condition.left, variable)
    if not isinstance(slope, int) or slope == 0 or condition.comparison != ">=":
        return None
    rest = substitute(condition.left, {variable: 0})
    lowest = _lowest(rest, ranges)
    if slope > 0:
        return -floordiv(lowest, slope), None
    return None, floordiv(lowest, -slope) + 1


def _lowest(rest: Index, ranges: Bounds) -> Index:
    """Lower bound of ``rest`` over its loop variables (those that start at 0 and end)."""
    for name in sorted(symbols(rest)):
        limits = ranges.get(name)
        slope = coefficient(rest, name)
        if limits is None or limits.lo != 0 or limits.hi is None or not isinstance(slope, int):
            continue
        rest = substitute(rest, {name: limits.lo if slope > 0 else limits.hi})
    return rest


def guarded_segments(
    extent: Index, tile: int, interior: tuple[Index, Index] | None, halved: bool = False
) -> list[Segment]:
    """Segments of a whole range; with guards: border points, interior tiles, border points.

    ``halved``: the remainder of a symbolic extent without guards gets smaller tiles.
    """
    if interior is None and halved:
        return halved_tiles(extent, tile)
    if interior is None:
        return even_tiles(0, extent, tile, interior=True)
    lo, hi = interior
    return [
        *even_tiles(0, lo, 1, interior=False),
        *even_tiles(lo, hi - lo, tile, interior=True),
        *even_tiles(hi, extent - hi, 1, interior=False),
    ]
