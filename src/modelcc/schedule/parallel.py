"""Loops over tiles: nested segments, and the outermost ones fused into one parallel loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.index import Index, Sym, floordiv, mod
from modelcc.ir.loop import For, If, Predicate, Stmt
from modelcc.ir.tensor import Condition
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.segments import Segment

Point = Mapping[str, Index]
Chosen = Mapping[str, Segment]
Inner = Callable[[Point, Chosen], list[Stmt]]


@dataclass(frozen=True)
class SegmentedLoop:
    """A loop variable and the segments that cover its range."""

    variable: str
    segments: tuple[Segment, ...]

    @property
    def tiles(self) -> Index:
        """Number of tiles in all segments."""
        total: Index = 0
        for segment in self.segments:
            total = total + segment.count
        return total


def nest_loops(
    loops: Sequence[SegmentedLoop], names: FreshNames, inner: Inner, chunks: int
) -> list[Stmt]:
    """Loops with ``inner`` at every tile.  With ``chunks`` > 1 the outermost loops become one
    parallel loop of at least that many iterations (or of all but the last loop)."""
    fused = _prefix(loops, chunks)
    if fused == 0:
        return _serial(list(loops), names, inner, {}, {})
    outer, rest = loops[:fused], list(loops[fused:])
    variable = names.fresh("p")

    def below(point: Point, chosen: Chosen) -> list[Stmt]:
        return _serial(rest, names, inner, point, chosen)

    total: Index = 1
    for loop in outer:
        total = total * loop.tiles
    body = _unfuse(list(outer), Sym(variable), below, {}, {})
    return [For(variable, 0, total, tuple(body), kind="parallel")]


def _prefix(loops: Sequence[SegmentedLoop], chunks: int) -> int:
    """How many outer loops to fuse for ``chunks`` iterations."""
    if chunks <= 1:
        return 0
    total = 1
    for position, loop in enumerate(loops):
        tiles = loop.tiles
        total *= tiles if isinstance(tiles, int) else chunks
        if total >= chunks:
            return position + 1
    return len(loops) if total > 1 else 0


def _serial(
    loops: list[SegmentedLoop], names: FreshNames, inner: Inner, point: Point, chosen: Chosen
) -> list[Stmt]:
    if not loops:
        return inner(point, chosen)
    loop, rest = loops[0], loops[1:]
    statements: list[Stmt] = []
    for segment in loop.segments:
        if segment.count == 0:
            continue
        picked = {**chosen, loop.variable: segment}
        if segment.count == 1:
            at = {**point, loop.variable: segment.start}
            statements += _if_present(segment, _serial(rest, names, inner, at, picked))
            continue
        counter = names.fresh(loop.variable)
        at = {**point, loop.variable: segment.start + Sym(counter) * segment.tile}
        body = _serial(rest, names, inner, at, picked)
        statements.append(For(counter, 0, segment.count, tuple(body)))
    return statements


def _if_present(segment: Segment, body: list[Stmt]) -> list[Stmt]:
    if isinstance(segment.present, int):
        return body
    return [If(Predicate((Condition(segment.present, ">", 0),)), tuple(body))]


def _unfuse(
    loops: list[SegmentedLoop],
    position: Index,
    below: Inner,
    point: Point,
    chosen: Chosen,
) -> list[Stmt]:
    """Recover each loop's tile from the fused counter ``position``."""
    if not loops:
        return below(point, chosen)
    loop, rest = loops[0], loops[1:]
    after: Index = 1
    for later in rest:
        after = after * later.tiles
    number = position if after == 1 else floordiv(position, after)
    remainder = 0 if after == 1 else mod(position, after)

    def within(segment: Segment, tile: Index) -> list[Stmt]:
        at = {**point, loop.variable: segment.start + tile * segment.tile}
        inner = _unfuse(rest, remainder, below, at, {**chosen, loop.variable: segment})
        return _if_present(segment, inner)

    present = [s for s in loop.segments if s.count != 0]
    return _pick_segment(present, number, within)


def _pick_segment(
    segments: Sequence[Segment], number: Index, within: Callable[[Segment, Index], list[Stmt]]
) -> list[Stmt]:
    first, rest = segments[0], segments[1:]
    if not rest:
        return within(first, number if first.count != 1 else 0)
    inside = Predicate((Condition(number - first.count, "<", 0),))
    then = within(first, number if first.count != 1 else 0)
    other = _pick_segment(rest, number - first.count, within)
    return [If(inside, tuple(then), tuple(other))]
