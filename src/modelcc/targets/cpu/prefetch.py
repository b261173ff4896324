"""Prefetching packed operands, so that they stream in behind the arithmetic.

If several register tiles use a panel, each prefetches its share of the next one. It passes through
L1, although only L2 has room for a panel: prefetched into L2 alone, panels with few uses arrive too
late (64x768x3072 on Zen 5: 236 instead of 255 GFLOP/s). A panel that is used once is prefetched
into L1 shortly before its use, if the machine gains by it: without, a core of Zen 5 reads its L3
cache at about 106 GB/s, 2 KB ahead at 117, and 4 KB ahead at 121; a model of 650 MB in memory gains
an eighth by 4 instead of 2 KB. A core of Zen 4 loses a fifth.
It evicts the other operand from L1: with that prefetched as well, the rate is 128 GB/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from modelcc.ir.copies import Prefetch
from modelcc.ir.index import Index, coefficient, floordiv, simplify, substitute
from modelcc.ir.loop import Stmt
from modelcc.ir.scalar_tree import depends_on, reads
from modelcc.ir.tensor import Read
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.parallel import Chosen, Point
from modelcc.schedule.structure import is_contraction
from modelcc.targets.cpu.blocking import FEW_TILES
from modelcc.targets.cpu.plan import Plan, is_covered

LINE_BYTES = 64
SMALLEST_PANEL = 16 << 10
MOST_LINES = 4


@dataclass(frozen=True)
class NextPanel:
    """Streaming of ``tensor``: the current panel starts at ``start``, the next at ``following``.

    Register tile number ``tile`` of ``tiles`` is being computed; a panel has ``steps`` reduction
    steps of ``width`` elements.
    """

    read: Read
    point: Point
    start: Index
    following: Index
    tile: Index
    tiles: int
    steps: int
    width: int

    def fetch(self, at: Point, unroll: int) -> list[Stmt]:
        """Prefetches to issue once per ``unroll`` reduction steps, before reduction point ``at``.

        All tiles together fetch the next panel; if they outnumber its cache lines, neighbours fetch
        the same ones.
        """
        line = LINE_BYTES // self.read.dtype.bytes
        lines = -(-self.width * unroll // line)
        share = -(-lines // self.tiles)
        if share > MOST_LINES:
            return []
        here = substitute(self.read.indices[0], {**self.point, **at})
        within = floordiv(here - self.start, max(1, self.width * unroll // (line * share)))
        turn = floordiv(self.tile * lines, self.tiles) if self.tiles > lines else self.tile
        before = turn * (self.steps // unroll * share * line)
        first = self.following + before + within
        return [Prefetch(self.read.tensor, first + n * line, 1) for n in range(share)]


@dataclass(frozen=True)
class Stream:
    """Vectors that are read once, sequentially: ``width`` elements in each step, prefetched
    ``ahead`` bytes before (0: not at all).

    They are invariant in the ``still`` loops, whose iterations share the prefetches.
    """

    read: Read
    point: Point
    width: int
    ahead: int
    still: tuple[tuple[str, int], ...] = ()

    def fetch(self, at: Point) -> list[Stmt]:
        """Prefetches for the step at reduction point ``at``."""
        if not self.ahead:
            return []
        size = self.read.dtype.bytes
        first = substitute(self.read.indices[0], {**self.point, **at}) + self.ahead // size
        line = LINE_BYTES // size
        lines = self.width // line
        number: Index = 0
        for name, extent in self.still:
            number = number * extent + at[name]
        share = prod(extent for _, extent in self.still)
        begin = floordiv(number * lines, share) * line
        each = range(0, -(-lines // share) * line, line)
        return [Prefetch(self.read.tensor, first + begin + n, 1) for n in each]


@dataclass(frozen=True)
class Companions:
    """Elements that a stream is multiplied by, contiguous along the innermost loop."""

    reads: tuple[tuple[str, Index], ...]
    width: int

    def fetch(self, at: Point, unroll: int) -> list[Stmt]:
        """Prefetches to issue once per ``unroll`` reduction steps, before the one ``at``."""
        ahead = 2 * max(unroll, self.width)
        places = ((tensor, substitute(index, at) + ahead) for tensor, index in self.reads)
        return [Prefetch(tensor, place, 1) for tensor, place in places]


def companions(plan: Plan, corners: Sequence[Point], chosen: Chosen) -> Companions | None:
    """The operand to prefetch beside the :func:`streams` of the tile of ``corners``, if any."""
    anchor, lane = plan.group.anchor, plan.lane
    if anchor is None or lane is None or plan.dots or not streams(plan, corners[0], chosen):
        return None
    inner = anchor.reduce[-1].name
    found = [r for r in reads(anchor.body) if not depends_on(r, lane.name) and len(r.indices) == 1]
    rows = [r for r in found if coefficient(r.indices[0], inner) == 1]
    places = dict.fromkeys((r.tensor, substitute(r.indices[0], c)) for r in rows for c in corners)
    if not 0 < len(places) <= MOST_LINES:
        return None
    return Companions(tuple(places), LINE_BYTES // rows[0].dtype.bytes)


def streams(plan: Plan, corner: Point, chosen: Chosen) -> tuple[Stream, ...]:
    """The operands that the tile at ``corner`` reads once, if large."""
    found = _streamed(plan)
    if not found or _tile_number(plan, corner, chosen)[1] != 1:
        return ()
    width = chosen[plan.tile.vector or ""].tile * plan.lanes * _depth(plan)
    wide = [(read, steps, width * _parts(plan, read), still) for read, steps, still in found]
    if max(steps * n * read.dtype.bytes for read, steps, n, _ in wide) < SMALLEST_PANEL:
        return ()
    point = {**corner, **_first_element(plan)}
    whole = [
        (read, n, still) for read, _, n, still in wide if not n * read.dtype.bytes % LINE_BYTES
    ]
    return tuple(Stream(read, point, n, plan.ahead_bytes, still) for read, n, still in whole)


def _parts(plan: Plan, read: Read) -> int:
    """Vectors of ``read`` at a reduction point, along loops that a tile covers, per vector of the
    vector loop."""
    beside = (v for v in plan.order if v.name != plan.tile.vector and depends_on(read, v.name))
    return prod(plan.tile.of(v.name) for v in beside if is_covered(v, plan.tile))


def _depth(plan: Plan) -> int:
    """Elements of a vector operand per lane in one reduction step."""
    return 1 if plan.dots is None else plan.dots.size


def _first_element(plan: Plan) -> dict[str, Index]:
    """The first lane, at the first element of its dot product."""
    loops = (plan.lane, plan.dots and plan.dots.loop)
    return {v.name: 0 for v in loops if v is not None}


def _streamed(plan: Plan) -> list[tuple[Read, int, tuple[tuple[str, int], ...]]]:
    """The packed operands of a contraction that vary with its vectors, the number of reduction
    steps that move them, and the innermost reduction loops in which they are invariant."""
    anchor, vector = plan.group.anchor, plan.tile.vector
    if anchor is None or plan.lane is None or vector is None or not is_contraction(anchor):
        return []
    found = [r for r in reads(anchor.body) if r.tensor in plan.packed and depends_on(r, vector)]
    loops = [(v.name, v.extent if isinstance(v.extent, int) else 0) for v in anchor.reduce]
    result: list[tuple[Read, int, tuple[tuple[str, int], ...]]] = []
    for read in dict.fromkeys(found):
        moving = [n for n, (name, _) in enumerate(loops) if depends_on(read, name)]
        last = moving[-1] + 1 if moving else 0
        result.append((read, prod(e for _, e in loops[:last]), tuple(loops[last:])))
    return result


def next_panel(plan: Plan, corner: Point, chosen: Chosen) -> NextPanel | None:
    """What to prefetch during the tile at ``corner``, if its panels are large enough."""
    found = _streamed(plan)
    if len(found) != 1 or found[0][2]:
        return None
    read, _, _ = found[0]
    anchor, lane, vector = plan.group.anchor, plan.lane, plan.tile.vector
    assert anchor is not None and lane is not None and vector is not None
    if plan.blocking is not None and plan.blocking.panels != vector:
        return None
    size = plan.tile.of(vector)
    width = size * plan.lanes * _depth(plan)
    tile, tiles = _tile_number(plan, corner, chosen)
    whole = chosen[vector].tile == size and chosen[vector].count != 1
    most = FEW_TILES if plan.blocking is not None else tiles
    if not whole or not 2 <= tiles <= most:
        return None
    steps = prod(_steps_at_once(plan, v) for v in anchor.reduce)
    if plan.blocking is None and steps * width * read.dtype.bytes < SMALLEST_PANEL:
        return None
    origin = {v.name: 0 for v in anchor.reduce}
    after = _next_place(plan, vector, corner)
    point = {**corner, **_first_element(plan)}
    before = {name: corner.get(name, 0) for name in origin}
    return NextPanel(
        read,
        point,
        substitute(read.indices[0], {**point, **before}),
        substitute(read.indices[0], {**point, **origin, **after}),
        tile,
        tiles,
        steps,
        width,
    )


def _steps_at_once(plan: Plan, loop: LoopVar) -> int:
    """Steps of a reduction loop that a register tile runs before the next tile."""
    blocking = plan.blocking
    if blocking is not None and blocking.summed == loop:
        return blocking.steps
    return loop.extent if isinstance(loop.extent, int) else 0


def _next_place(plan: Plan, vector: str, corner: Point) -> Point:
    """Start of the panel that is used after this one: its neighbour, or the panel at the same
    position of the next block.

    Blocks of steps follow each other, then the next panels begin with their first steps.
    """
    blocking, here = plan.blocking, corner[vector]
    if blocking is None:
        return {vector: here + plan.tile.of(vector)}
    if blocking.summed is None:
        return {vector: here + blocking.points}
    name, extent = blocking.summed.name, blocking.summed.extent
    following = corner[name] + blocking.steps
    rounds = floordiv(following, extent)
    return {vector: here + rounds * blocking.points, name: following - rounds * extent}


def _tile_number(plan: Plan, corner: Point, chosen: Chosen) -> tuple[Index, int]:
    """Number of the register tile among those that use the same panel, and how many there are.

    Symbolic numbers of tiles are assumed to be large: the first ones fetch the panel.
    """
    vector, order = plan.tile.vector or "", [v.name for v in plan.order]
    names = order[order.index(vector) + 1 :]
    if plan.blocking is not None:
        names = [name for name in plan.blocking.inside if name != vector]
    number: Index = 0
    total = 1
    for name in names:
        segments = plan.segments[name]
        position = segments.index(chosen[name])
        before: Index = 0
        count: Index = 0
        for n, segment in enumerate(segments):
            before = before + (segment.count if n < position else 0)
            count = count + segment.count
        here = floordiv(corner[name] - chosen[name].start, chosen[name].tile)
        tiles = count if isinstance(count, int) else 16
        number = number * tiles + simplify(before + here, {})
        total *= tiles
    return number, total
