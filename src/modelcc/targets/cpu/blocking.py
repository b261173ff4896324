"""Blocks of a product whose operands stay in cache, around its register tiles.

The loops of Goto & van de Geijn ("Anatomy of high-performance matrix multiplication", 2008), with
the operands' roles swapped: a block of the packed operand that vectors are loaded from stays in the
second-level cache and is streamed from there for every row tile; the elements that a row tile
broadcasts stay in the first::

    for panels of a block        # as many as the second-level cache holds
        for steps of a block     # as many as a row tile has room for in the first-level cache
            for row tiles
                for panels of the block
                    the register tile, over the steps of the block

Between blocks of steps, partial sums are kept in the result's memory, so that the result does not
depend on the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from modelcc.ir.index import floordiv
from modelcc.ir.loop import Stmt
from modelcc.ir.scalar_tree import reads
from modelcc.ir.types import TensorType
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.parallel import Chosen, Point, SegmentedLoop, nest_loops
from modelcc.schedule.schedule import Factors, ScheduleError
from modelcc.schedule.segments import Segment
from modelcc.schedule.structure import Group, is_contraction
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.tiling import RegisterTile, roles_of

LEAST_TILES = 4
"""Minimum number of row tiles to reuse a block of panels."""

LEAST_PANELS = 4
"""Minimum panels per block, each a reuse of a row tile."""

LEAST_STEPS = 16
"""Minimum steps of a block that amortise loading and storing the sums."""

RESTARTS = 4
"""How many times slower elements of row tiles are read than a long stream: their rows are far apart
and short."""

STREAMS = 1.25
"""Bandwidth of a stream relative to its consumption at which it does not stall."""

OWN, SHARED = 1 / 2, 1 / 16
"""Fractions of a private cache, and of a shared one, that a core's block may fill."""

BESIDE = 1 / 5
"""Fraction of a private cache for a block while the next one is prefetched into it."""

TRANSLATED = 256 << 10
"""Maximum bytes of such a block, 64 pages: the reach of the L1 TLB (64 to 96 entries)."""

FEW_TILES = 64
"""Row tiles up to which the next block is prefetched; with more, stalls in the first tile of a
block cost less."""


@dataclass(frozen=True)
class Blocking:
    """The loop over ``panels``, of which ``points`` are a block, and the loops ``inside`` of it.

    ``summed`` is the reduction loop of which ``steps`` are a block, if that is blocked, too.
    """

    panels: str
    points: int
    inside: tuple[str, ...]
    summed: LoopVar | None = None
    steps: int = 0

    @property
    def factors(self) -> Factors:
        """As factors of a schedule."""
        summed = ((self.summed.name, self.steps),) if self.summed is not None else ()
        return ((self.panels, self.points), *summed)

    @property
    def sums(self) -> tuple[SegmentedLoop, ...]:
        """The loop over blocks of steps."""
        if self.summed is None:
            return ()
        blocks = floordiv(self.summed.extent, self.steps)
        return (SegmentedLoop(self.summed.name, (Segment(0, blocks, self.steps),)),)


def default_blocking(
    group: Group, tile: RegisterTile, lane: str, machine: CpuModel, types: Mapping[str, TensorType]
) -> Blocking | None:
    """Blocks that fit caches, for a product of static sizes; None: it needs none."""
    found = _loops(group, tile, lane)
    anchor = group.anchor
    if found is None or anchor is None:
        return None
    panels, inside, rows = found
    loops = (*anchor.parallel, *anchor.reduce)
    if not all(isinstance(v.extent, int) for v in loops) or _tiles(rows, tile) < LEAST_TILES:
        return None
    sizes = _sizes(anchor, tile, lane, rows, machine)
    tensors = {r.tensor for r in roles_of(anchor, lane).broadcasts}
    again = sum(_bytes(types[name]) for name in tensors if name in types)
    outer, several = anchor.reduce[0], -(-_size(panels) // tile.of(panels.name))
    outgrown = _holds_sums(group) and sizes.outgrown(_size(outer))
    if not (sizes.starved(again) or outgrown):
        return None
    steps = sizes.block_steps(outer, several) if _holds_sums(group) else _size(outer)
    points = sizes.block_points(panels, tile.of(panels.name), steps)
    if steps == _size(outer):
        return Blocking(panels.name, points, inside)
    return Blocking(panels.name, points, inside, outer, steps)


@dataclass(frozen=True)
class _BlockSizes:
    """A product's register tile loads ``vector`` bytes and broadcasts ``broadcast`` bytes in each
    reduction step, which takes ``cycles``; an iteration of the outer reduction loop has ``inner``
    of them.  The next block may be prefetched ``beside`` one."""

    vector: int
    broadcast: int
    cycles: float
    inner: int
    beside: bool
    machine: CpuModel

    def starved(self, again: int) -> bool:
        """Whether the elements of all rows, ``again`` bytes, are read too slowly to be reloaded for
        every panel."""
        return self.machine.bandwidth(again * 2) * self.cycles < RESTARTS * self.broadcast

    def outgrown(self, outer: int) -> bool:
        """Whether the vectors of one panel, all ``outer`` steps of it, are read too slowly to be
        reloaded for every row tile, while the next one is fetched."""
        panel = self.vector * self.inner * outer
        return self.machine.bandwidth(panel * 2) * self.cycles < self.vector

    @property
    def room(self) -> float:
        """Bytes for a block in the largest cache with sufficient bandwidth for vectors."""
        caches = [level for level in self.machine.levels if level.bytes]
        wanted = STREAMS * self.vector / self.cycles
        fast = [level for level in caches if level.bandwidth >= wanted] or caches[:1]
        largest = fast[-1]
        if largest.cores > 1:
            return largest.bytes * SHARED
        return min(largest.bytes * BESIDE, TRANSLATED) if self.beside else largest.bytes * OWN

    def block_steps(self, outer: LoopVar, several: int) -> int:
        """Steps of the ``outer`` reduction loop in a block of several of the ``several`` panels."""
        one = (min(LEAST_PANELS, several) * self.vector + self.broadcast) * self.inner
        fitting = [
            n
            for n in _divisors(_size(outer))
            if n * self.inner >= LEAST_STEPS and n * one <= self.room
        ]
        return max(fitting, default=_size(outer))

    def block_points(self, panels: LoopVar, unit: int, steps: int) -> int:
        """Block size along the loop over panels, in tiles of ``unit``: blocks as even as possible,
        an equal number for each thread."""
        total = -(-_size(panels) // unit)
        most = max(1, int(self.room / (self.vector * self.inner * steps)))
        rounds = -(-total // (most * self.machine.threads))
        return -(-total // (rounds * self.machine.threads)) * unit


def _sizes(
    anchor: Nest, tile: RegisterTile, lane: str, rows: Sequence[LoopVar], machine: CpuModel
) -> _BlockSizes:
    bytes = min(r.dtype.bytes for r in reads(anchor.body))
    points = prod(tile.of(v.name) for v in rows)
    vectors = tile.size // points
    lanes = _size(anchor.var(lane))
    return _BlockSizes(
        vector=vectors * lanes * bytes,
        broadcast=points * bytes,
        cycles=tile.size * lanes / machine.multiply_adds(bytes * 8),
        inner=prod(_size(v) for v in anchor.reduce[1:]),
        beside=_tiles(rows, tile) <= FEW_TILES,
        machine=machine,
    )


def _bytes(type_: TensorType) -> int:
    size = type_.physical.size(type_.shape)
    return size * type_.dtype.bytes if isinstance(size, int) else 0


def _tiles(loops: Sequence[LoopVar], tile: RegisterTile) -> int:
    return prod(-(-_size(v) // tile.of(v.name)) for v in loops)


def other_blocks(group: Group, tile: RegisterTile, lane: str, first: Factors) -> Iterator[Factors]:
    """Blocks worth trying besides those of ``first``: of few and of many panels, and none."""
    found = _loops(group, tile, lane)
    if found is None:
        return
    if first:
        yield ()
    panels, _, _ = found
    for several in (4, 16, 64):
        points = several * tile.of(panels.name)
        if points < _size(panels):
            yield ((panels.name, points), *first[1:])


def wanted_blocking(
    group: Group, tile: RegisterTile, lane: str, factors: Factors
) -> Blocking | None:
    """The blocks that a schedule requests; :class:`ScheduleError` if they do not fit."""
    if not factors:
        return None
    found = _loops(group, tile, lane)
    if found is None or group.anchor is None:
        raise ScheduleError("blocks: no rows use the vectors of a product again")
    panels, inside, _ = found
    sizes = dict(factors)
    outer = group.anchor.reduce[0]
    unknown = [name for name in sizes if name not in (panels.name, outer.name)]
    if unknown or panels.name not in sizes or len(sizes) < len(factors):
        known = f"{panels.name}, and maybe of {outer.name}"
        raise ScheduleError(f"blocks: they are of {known}, each once")
    points, steps = sizes[panels.name], sizes.get(outer.name, 0)
    if points < 1 or points % tile.of(panels.name):
        raise ScheduleError(f"blocks: {points} points of {panels.name} are not whole tiles")
    if outer.name not in sizes:
        return Blocking(panels.name, points, inside)
    if not _holds_sums(group):
        raise ScheduleError(f"blocks: there is no place for sums over a part of {outer.name}")
    if steps < 1 or _size(outer) % steps:
        raise ScheduleError(f"blocks: {steps} does not divide the steps of {outer.name}")
    return Blocking(panels.name, points, inside, outer, steps)


def _loops(
    group: Group, tile: RegisterTile, lane: str
) -> tuple[LoopVar, tuple[str, ...], list[LoopVar]] | None:
    """The blocked loop over panels, loops within a block in order, and those of rows."""
    anchor = group.anchor
    if anchor is None or not is_contraction(anchor):
        return None
    roles = roles_of(anchor, lane)
    loops = [v for v in group.final.parallel if v.name != lane and v.extent != 1]
    vectors = [v for v in loops if roles.moves_vectors(v.name)]
    panels = [v for v in vectors if not roles.moves_broadcasts(v.name)]
    rows = [v for v in loops if v not in vectors and roles.moves_broadcasts(v.name)]
    if not panels or not rows or len(panels) + len(rows) < len(loops) - len(vectors):
        return None
    last = sorted(panels, key=lambda v: v.name == tile.vector)
    return panels[0], tuple(v.name for v in (*rows, *last)), rows


def _holds_sums(group: Group) -> bool:
    """Whether partial sums over blocks of steps can be kept in the result's memory."""
    anchor, final = group.anchor, group.final
    if anchor is None or final.output not in group.stored or anchor.combine != "sum":
        return False
    outer = anchor.reduce[0]
    whole = isinstance(outer.extent, int) and isinstance(anchor.extents[outer.axis], int)
    filled = whole and outer.extent * outer.multiplier == anchor.extents[outer.axis]
    alone = len(group.stored) == 1 and not group.ragged
    return filled and alone and final.body.dtype == anchor.body.dtype


def _size(loop: LoopVar) -> int:
    return loop.extent if isinstance(loop.extent, int) else 0


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def blocked_order(loops: Sequence[LoopVar], blocking: Blocking) -> tuple[LoopVar, ...]:
    """Loops over tiles: those around blocks, then those within."""
    within = {v.name: v for v in loops if v.name in blocking.inside}
    around = (v for v in loops if v.name not in within)
    return (*around, *(within[name] for name in blocking.inside))


def nest_blocks(
    blocking: Blocking,
    order: Sequence[LoopVar],
    segments: Mapping[str, tuple[Segment, ...]],
    names: FreshNames,
    inner: Callable[[Point, Chosen], list[Stmt]],
    chunks: int,
) -> list[Stmt]:
    """``inner`` at every tile, block by block; parallel over ``chunks`` parts of the loops around
    blocks if more than 1."""
    around = [
        SegmentedLoop(v.name, segments[v.name]) for v in order if v.name not in blocking.inside
    ]
    blocks, last = _cut(segments[blocking.panels], blocking.points)
    block = f"{blocking.panels}c"
    summed = blocking.summed.name if blocking.summed is not None else None

    def within(point: Point, chosen: Chosen) -> list[Stmt]:
        first = segments[blocking.panels][0]
        whole = replace(first, start=point[block], count=blocking.points // first.tile)
        here = {**segments, blocking.panels: (whole,) if chosen[block] == blocks[0] else last}
        loops = [SegmentedLoop(name, here[name]) for name in blocking.inside]

        def tile(at: Point, picked: Chosen) -> list[Stmt]:
            where = {n: i for n, i in {**point, **at}.items() if n != block}
            tiles = {n: s for n, s in {**chosen, **picked}.items() if n not in (block, summed)}
            return inner(where, tiles)

        return nest_loops([*blocking.sums, *loops], names, tile, 1)

    return nest_loops([*around, SegmentedLoop(block, blocks)], names, within, chunks)


def _cut(
    segments: tuple[Segment, ...], points: int
) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Loops over whole blocks and a last one as a single step, and the tiles of the last."""
    whole, *rest = segments
    tiles = points // whole.tile
    blocks = floordiv(whole.count, tiles)
    start, count = whole.start + blocks * points, whole.count - blocks * tiles
    last = tuple(s for s in (replace(whole, start=start, count=count), *rest) if s.count != 0)
    end = (Segment(start, 1, 1),) if last else ()
    return (Segment(whole.start, blocks, points), *end), last
