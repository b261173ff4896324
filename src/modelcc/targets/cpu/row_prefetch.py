"""Prefetching data that register tiles read once: operands of the epilogue, rows of the next tile.

Rows of a matrix are far apart, so the hardware prefetcher restarts at every tile.  While a tile is
computed, software prefetches bring in the elements of other tensors that its epilogue needs, the
lines of its results, and the elements that the next tile broadcasts.  In a blocked layout each
block of channels is a plane of its own, so those of a tile's next block are prefetched, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import prod

from modelcc.ir.copies import Prefetch
from modelcc.ir.index import Index, coefficient, floordiv, mod, substitute, symbols
from modelcc.ir.loop import Stmt
from modelcc.ir.scalar_tree import depends_on, reads
from modelcc.ir.tensor import Read, Scalar
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.parallel import Chosen, Point
from modelcc.schedule.structure import is_contraction
from modelcc.targets.cpu.plan import Plan
from modelcc.targets.cpu.prefetch import LINE_BYTES

LEAST_STEPS = 128
"""Reduction steps that hide the latency of memory, and amortise prefetches."""

FAR_BYTES = 1 << 20
"""Rows of more bytes are evicted from the L2 cache before their reuse."""

SETS_BYTES = 4096
"""Rows at multiples of this distance share few sets of an L1 cache: those of the next tile would
evict this tile's."""

ARITHMETIC = 8
"""Vector multiply-adds that hide one prefetch."""


@dataclass(frozen=True)
class NextPlane:
    """The lines of ``read`` that the next step of the reduction loop ``loop`` broadcasts: their
    offsets in elements from that of ``point`` at the next step, which is ``stride`` elements
    further."""

    read: Read
    point: Point
    loop: str
    stride: int
    lines: tuple[int, ...]

    def fetch(self, at: Point) -> list[Stmt]:
        """Prefetches to issue at the beginning of the step ``at``."""
        first = substitute(self.read.indices[0], {**self.point, **at}) + self.stride
        return [Prefetch(self.read.tensor, first + line, 1) for line in self.lines]


def next_plane(plan: Plan, corners: Sequence[Point]) -> NextPlane | None:
    """The lines that the tile of ``corners`` broadcasts in the next step of its outer reduction
    loop, if that iterates over planes of a tensor that exceeds the L2 cache."""
    anchor, lane = plan.group.anchor, plan.lane
    if anchor is None or lane is None or not is_contraction(anchor) or plan.blocking is not None:
        return None
    outer, *inner = anchor.reduce
    found = [r for r in reads(anchor.body) if not depends_on(r, lane.name)]
    if len(found) != 1 or len(found[0].indices) != 1 or outer.extent == 1 or not inner:
        return None
    read = found[0]
    stride = coefficient(read.indices[0], outer.name)
    origin: dict[str, Index] = {v.name: 0 for v in anchor.reduce}
    lines = _lines(read, corners, origin, inner)
    if not isinstance(stride, int) or not 0 < len(lines) * LINE_BYTES <= stride * read.dtype.bytes:
        return None
    steps = prod(v.extent for v in inner if isinstance(v.extent, int))
    if len(lines) * ARITHMETIC > steps * len(corners) or not _outgrows_cache(read, anchor):
        return None
    return NextPlane(read, {**corners[0], **origin}, outer.name, stride, lines)


def _lines(
    read: Read, corners: Sequence[Point], origin: Point, inner: Sequence[LoopVar]
) -> tuple[int, ...]:
    """Offsets of the lines that a tile reads in the ``inner`` loops, relative to the first; none if
    any is symbolic."""
    base = substitute(read.indices[0], {**corners[0], **origin})
    points = {substitute(read.indices[0], {**corner, **origin}) - base for corner in corners}
    steps = [_positions(read, v) for v in inner]
    places = {
        place + sum(step)
        for place in points
        for step in cartesian(*steps)
        if isinstance(place, int)
    }
    whole = all(steps) and all(isinstance(place, int) for place in points)
    line = LINE_BYTES // read.dtype.bytes
    return tuple(sorted({place // line * line for place in places})) if whole else ()


def _positions(read: Read, loop: LoopVar) -> tuple[int, ...]:
    """The offset of ``read`` at each step of ``loop``; none if nonlinear, symbolic or long."""
    stride = coefficient(read.indices[0], loop.name)
    short = isinstance(loop.extent, int) and loop.extent <= LEAST_STEPS
    if not isinstance(stride, int) or not isinstance(loop.extent, int) or not short:
        return ()
    return tuple(n * stride for n in range(loop.extent))


def _outgrows_cache(read: Read, nest: Nest) -> bool:
    """Whether the elements that ``read`` reads in the whole nest exceed the L2 cache."""
    loops = [v for v in (*nest.parallel, *nest.reduce) if depends_on(read, v.name)]
    sizes = [v.extent for v in loops if isinstance(v.extent, int)]
    return len(sizes) == len(loops) and prod(sizes) * read.dtype.bytes >= FAR_BYTES


@dataclass(frozen=True)
class NextRows:
    """Elements that the next tile broadcasts: ``rows`` rows, ``stride`` elements apart.

    The next tile's first element is ``following`` elements after this one's.
    """

    read: Read
    point: Point
    following: int
    rows: int
    stride: int

    def fetch(self, at: Point, unroll: int) -> list[Stmt]:
        """Prefetches to issue once per ``unroll`` reduction steps, before reduction point ``at``.

        A line of each row is fetched in the steps that read a line of this tile's rows.
        """
        line = LINE_BYTES // self.read.dtype.bytes
        turns = max(1, line // unroll)
        (step,) = at.values()
        turn = mod(floordiv(step, unroll), turns)
        share = -(-self.rows // turns)
        first = substitute(self.read.indices[0], {**self.point, **at}) + self.following
        row = first - mod(step, line) + turn * (share * self.stride)
        return [Prefetch(self.read.tensor, row + n * self.stride, 2) for n in range(share)]


def next_rows(plan: Plan, corner: Point, chosen: Chosen) -> NextRows | None:
    """Rows that the tile after the one at ``corner`` broadcasts, if long."""
    anchor, loops = plan.group.anchor, [v for v in plan.order if plan.tile.of(v.name) > 1]
    if anchor is None or plan.lane is None or not is_contraction(anchor) or plan.dots is not None:
        return None
    inner = loops[-1] if loops else None
    moving = [r for r in reads(anchor.body) if inner is not None and depends_on(r, inner.name)]
    if inner is None or inner.name == plan.tile.vector or len(moving) != 1:
        return None
    read, summed, segment = moving[0], anchor.reduce[-1], chosen[inner.name]
    stride = coefficient(read.indices[0], inner.name)
    if len(anchor.reduce) != 1 or coefficient(read.indices[0], summed.name) != 1:
        return None
    if not isinstance(stride, int) or segment.count == 1 or not _far(inner, summed, read):
        return None
    if stride * read.dtype.bytes < LINE_BYTES or depends_on(read, plan.lane.name):
        return None
    if stride * read.dtype.bytes % SETS_BYTES == 0:
        return None
    return NextRows(read, corner, stride * segment.tile, segment.tile, stride)


def _far(rows: LoopVar, summed: LoopVar, read: Read) -> bool:
    """Whether long rows miss the cache at every reuse."""
    size = read.dtype.bytes
    if not isinstance(rows.extent, int) or not isinstance(summed.extent, int):
        return False
    whole = summed.extent * size % LINE_BYTES == 0 and summed.extent >= LEAST_STEPS
    return whole and rows.extent * summed.extent * size >= FAR_BYTES


def epilogue_prefetch(plan: Plan, corners: Sequence[Point], near: frozenset[str]) -> list[Stmt]:
    """Prefetches of rows that the tile's epilogue reads and writes; ``near`` tensors are in cache.

    Contiguous points are left to the hardware prefetcher.
    """
    anchor, lane = plan.group.anchor, plan.lane
    if anchor is None or lane is None or not is_contraction(anchor) or not _hides(anchor.reduce):
        return []
    found: dict[tuple[str, Index], None] = {}
    tiled = [name for name, size in plan.tile.points if size > 1]
    for nest in plan.group.nests:
        used = [] if nest is anchor else [(r.tensor, r.indices[0]) for r in _loads(nest.body)]
        used += [(nest.output, nest.store)] if nest.output in plan.group.stored else []
        for tensor, offset in used:
            rows = [n for n in tiled if n != plan.tile.vector]
            moves = lane.name in symbols(offset) and all(n in symbols(offset) for n in tiled)
            if moves and tensor not in near and all(_apart(offset, n, nest) for n in rows):
                for corner in corners:
                    found[tensor, substitute(offset, {**corner, lane.name: 0})] = None
    return [Prefetch(tensor, offset, 1) for tensor, offset in found]


def _apart(offset: Index, row: str, nest: Nest) -> bool:
    """Whether neighbours along ``row`` are more than a line apart."""
    stride = coefficient(offset, row)
    return not isinstance(stride, int) or stride * nest.body.dtype.bytes > LINE_BYTES


def _hides(loops: Sequence[LoopVar]) -> bool:
    steps = 1
    for v in loops:
        steps *= v.extent if isinstance(v.extent, int) else 1
    return steps >= LEAST_STEPS


def _loads(body: Scalar) -> list[Read]:
    """Reads of memory; those of values in registers have no indices."""
    return [r for r in reads(body) if len(r.indices) == 1]
