"""Choosing the register tile of a group: a small cost model over candidate tiles.

The micro-kernel follows Goto & van de Geijn ("Anatomy of high-performance matrix multiplication",
2008): a tile of accumulators stays in registers while the reduction streams; one operand is
broadcast, the other loaded as vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import prod

from modelcc.ir.index import Index, coefficient, floordiv
from modelcc.ir.scalar_tree import cost, depends_on, index_symbols, reads
from modelcc.ir.tensor import Read
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import Exchange, Factors, ScheduleError, Tiled
from modelcc.schedule.structure import Group, decodes, multiplies_pairs
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.row_runs import ROWS, RunLoops, find_runs
from modelcc.targets.cpu.shared_places import SHARING, rows_gathered_alike
from modelcc.targets.cpu.sliding import SlidingWindow, are_short, sliding_tiles, windows
from modelcc.targets.cpu.transposition import TransposedReads, find_block

UNROLLED_WORK = 512
"""Cost of an elementwise loop's body above which it is not unrolled: long bodies hide latencies by
themselves."""

ELEMENTWISE_VECTORS = (1, 2, 4, 8)
"""Numbers of vectors at once to try in elementwise loops."""

UNROLLED_STEPS = 256
SLACK = 1.15
"""Slowdown of loads from the L2 cache."""
L2_CYCLES = 1.5
"""Cycles to load a vector from the L2 cache for its first use."""
HIDDEN, UNHIDDEN = 0.6, 0.5
"""Fraction of the cycles of arithmetic within which loads from the L2 cache are hidden, and the
fraction of the excess that is not: an L1 cache that receives a line serves no loads meanwhile
(Treibig & Hager, "Introducing a performance model for bandwidth-limited loop kernels", 2009)."""
ROW_CYCLES = 16
"""Cycles to load a part of the next row, which is not prefetched."""
ROW_ELEMENTS = 256
"""Rows of fewer elements are close together in a page."""
DECODING = 3
"""Registers for decoding a vector of packed weights, beside its operands."""
UNFUSED = 2
"""Registers for products without fused multiply-add, beside their operands."""
PAIR_STEPS = 2
"""Unroll factor of reductions of pairs: compilers add the products of more to each other first,
which exceeds the registers."""
FEW_POINTS = 12
SHORT_STEPS = 16
"""Reduction steps to fully unroll if a tile has few points: the channels of a block."""
LONG_LOOP = 8
"""Extent of a loop that fills tiles by itself."""
MOST_POINTS = 128
"""Maximum points of a tile in a schedule, each an accumulator."""
MOST_STEPS = 256
"""Maximum unroll factor of a reduction in a schedule."""
DIVISIBLE_STEPS = 128 << 10
"""Multiply-adds of a nest that must not be one tile, which only one thread could compute."""


FEW_TAPS = 4
"""Maximum extent of loops too short for reuse of a vector within a tile."""


@dataclass(frozen=True)
class RegisterTile:
    """Unrolled points per parallel loop and unrolling of reduction loops.

    ``vector`` is the loop over whole vectors.  ``by_input`` orders the steps of unrolled reduction
    loops by the inputs they read.  ``block`` has the reads to transpose.  ``turned`` is the loop
    that is contiguous in memory, if not the vector loop.  ``runs`` are loops to interchange.
    """

    vector: str | None
    points: tuple[tuple[str, int], ...]
    unroll: tuple[tuple[str, int], ...] = ()
    by_input: bool = False
    block: TransposedReads | None = None
    turned: str | None = None
    runs: RunLoops | None = None

    @property
    def exchange(self) -> Exchange:
        """The data exchange within the tile."""
        if self.block is not None:
            return "load"
        return "store" if self.turned is not None else "runs" if self.runs is not None else ""

    def of(self, variable: str) -> int:
        """Points of the tile along a parallel loop."""
        return dict(self.points).get(variable, 1)

    def unrolling(self, variable: str) -> int:
        """Unrolling of a reduction loop."""
        return dict(self.unroll).get(variable, 1)

    @property
    def size(self) -> int:
        """Number of points."""
        return prod(size for _, size in self.points)


@dataclass(frozen=True)
class Roles:
    """Which reads of the anchor vary along the lanes, and which parallel loops move which reads.

    ``packed``: those that vary along the lanes will be packed in the order of reads.
    """

    vectors: tuple[Read, ...]
    broadcasts: tuple[Read, ...]
    packed: bool = False

    @cached_property
    def moving_vectors(self) -> tuple[frozenset[str], ...]:
        """For each read along the lanes, the symbols that move it."""
        return tuple(map(index_symbols, self.vectors))

    @cached_property
    def moving_broadcasts(self) -> tuple[frozenset[str], ...]:
        """The same for broadcast reads."""
        return tuple(map(index_symbols, self.broadcasts))

    def moves_vectors(self, variable: str) -> bool:
        return any(variable in names for names in self.moving_vectors)

    def moves_broadcasts(self, variable: str) -> bool:
        return any(variable in names for names in self.moving_broadcasts)


def roles_of(nest: Nest, lane: str, constants: frozenset[str] = frozenset()) -> Roles:
    """Split the reads of ``nest`` into those along ``lane`` and those broadcast to all lanes."""
    unique = tuple(dict.fromkeys(reads(nest.body)))
    vectors = tuple(r for r in unique if depends_on(r, lane))
    packed = all(r.tensor in constants for r in vectors)
    return Roles(vectors, tuple(r for r in unique if r not in vectors), packed)


def tile_count(extent: Index, tile: int) -> float:
    """Tiles that cover ``extent``; a symbolic extent counts as many."""
    return -(-extent // tile) if isinstance(extent, int) else 64 / tile


def choose_tile(
    group: Group, lane: str, blocks: str, machine: CpuModel, constants: frozenset[str]
) -> RegisterTile:
    """The best of :func:`ranked_tiles`."""
    return next(ranked_tiles(group, lane, blocks, machine, constants))


def ranked_tiles(
    group: Group, lane: str, blocks: str, machine: CpuModel, constants: frozenset[str]
) -> Iterator[RegisterTile]:
    """Register tiles of a group vectorised over ``lane`` with whole vectors along ``blocks``, best
    first by estimated cycles.

    ``constants`` will be packed in the order in which they are read.
    """
    anchor = group.anchor
    if anchor is None:
        found = _exchange(group, lane, blocks, constants)
        yield from () if found is None else (found,)
        if found is None or found.turned is None:
            yield _elementwise_tile(group, lane, blocks)
            yield from (RegisterTile(blocks, ((blocks, size),)) for size in ELEMENTWISE_VECTORS)
        return
    roles = roles_of(anchor, lane, constants)
    slides = [] if roles.broadcasts else _longest(_windows(roles.vectors, anchor, lane))
    if are_short(slides):
        for points, unroll in sliding_tiles(slides, machine):
            yield RegisterTile(blocks, points, unroll, by_input=True)
        return
    others = [v for v in anchor.parallel if v.name not in (lane, blocks) and v.extent != 1]
    reused = [v for v in others if not all(v.name in names for names in roles.moving_vectors)]
    held = len(roles.vectors) + (DECODING if decodes(anchor) else 0)
    held += UNFUSED if multiplies_pairs(anchor) else 0
    if roles.broadcasts and not reused and not roles.packed and held == 1:
        held = 0  # operands used once are memory operands of the multiply-add
    found = [
        candidate
        for loops in _tiled_loops(reused or others, anchor, roles.broadcasts)
        for candidate in _candidates(anchor.var(blocks), loops, held, machine)
    ]
    candidates = [c for c in found if _tiles(c, anchor, lane) > 1] if _divisible(anchor) else []
    ranked = sorted(
        candidates or found,
        key=lambda c: (_cycles(c, anchor, blocks, roles, machine) * _around(c, others), c.points),
    )
    for tile in ranked:
        yield RegisterTile(blocks, tile.points, _unrolling(anchor, tile, roles))


def _exchange(
    group: Group, lane: str, blocks: str, constants: frozenset[str]
) -> RegisterTile | None:
    """The tile of elementwise nests with strided vectors to transpose, or with short runs of
    rows."""
    lanes = _extent(group.final.var(lane))
    if lanes > 1 and coefficient(group.final.store, lane) != 1:
        inner = next(v for v in reversed(group.final.parallel) if v.extent != 1)
        return RegisterTile(blocks, ((blocks, 1), (inner.name, lanes)), turned=inner.name)
    block = find_block(group.nests, lane, lanes, constants)
    if block is not None:
        return RegisterTile(blocks, ((block.loop.name, lanes),), block=block)
    runs = find_runs(group.nests, group.final.var(lane), group.final.var(blocks))
    if runs is not None:
        vectors = 1 if runs.along.name == blocks else _extent(group.final.var(blocks))
        points = ((blocks, vectors), (runs.rows.name, ROWS))
        return RegisterTile(blocks, points, runs=runs)
    return None


def _elementwise_tile(group: Group, lane: str, blocks: str) -> RegisterTile:
    rows = rows_gathered_alike(group, lane, blocks)
    if rows is not None:
        return RegisterTile(blocks, ((blocks, 1), (rows.name, SHARING)))
    extent = group.final.var(blocks).extent
    most = extent if isinstance(extent, int) else 4
    parts = sum(n.points for n in group.nests if n.output in group.stored)
    work = sum(cost(n.body) * n.points for n in group.nests)
    unrolls = (u for u in (4, 2) if most >= u and u * work <= UNROLLED_WORK)
    unroll = next(unrolls, 1) if parts <= 2 else 1
    return RegisterTile(blocks, ((blocks, unroll),))


def wanted_tile(
    group: Group, lane: str, blocks: str, wanted: Tiled, constants: frozenset[str]
) -> RegisterTile:
    """The tile that a schedule requests; :class:`ScheduleError` if it does not fit the group."""
    anchor = group.anchor
    found = _exchange(group, lane, blocks, constants) if anchor is None else None
    if found is not None and found.turned is not None and wanted.exchange != "store":
        raise ScheduleError("results of a vector lie across memory: exchange='store'")
    if wanted.exchange:
        if found is None or (found.exchange, found.points) != (wanted.exchange, wanted.tile):
            raise ScheduleError(f"no such tile can be exchanged: {wanted.exchange!r}")
        return found
    parallel = {v.name for v in group.final.parallel} - {lane}
    _check_factors("tile", wanted.tile, parallel, MOST_POINTS)
    sums = {v.name for v in anchor.reduce} if anchor is not None else set[str]()
    _check_factors("unroll", wanted.unroll, sums, MOST_STEPS)
    return RegisterTile(blocks, wanted.tile, wanted.unroll, wanted.by_input)


def _check_factors(what: str, factors: Factors, loops: Set[str], most: int) -> None:
    names = [name for name, _ in factors]
    unknown = [name for name in names if name not in loops]
    if unknown:
        known = ", ".join(sorted(loops)) or "none"
        raise ScheduleError(f"{what}: there is no loop {unknown[0]!r} for it, but {known}")
    if len(set(names)) < len(names):
        raise ScheduleError(f"{what}: a loop is named twice")
    if not all(size >= 1 for _, size in factors) or prod(size for _, size in factors) > most:
        raise ScheduleError(f"{what}: numbers are at least 1, their product at most {most}")


def _tiled_loops(
    loops: Sequence[LoopVar], anchor: Nest, broadcasts: Sequence[Read]
) -> list[Sequence[LoopVar]]:
    """The innermost of ``loops``, two at most: a symbolic batch may be 1, and is tiled only if the
    loop inside of it is short.

    If both are short, as with a gradient with respect to a filter, also the loop around them.
    """
    if len(loops) < 2:
        return [loops]
    outer, inner = loops[-2:]
    long = not isinstance(inner.extent, int) or inner.extent >= LONG_LOOP
    batch = not isinstance(outer.extent, int) and not _slid(outer, anchor, broadcasts)
    chosen = [loops[-1:] if long and batch else loops[-2:]]
    if len(loops) > 2 and all(_is_short(v, FEW_TAPS) for v in (outer, inner)):
        chosen.append([loops[-3]])
    return chosen


def _around(tile: RegisterTile, loops: Sequence[LoopVar]) -> int:
    """Iterations of the untiled ``loops``."""
    tiled = {name for name, _ in tile.points}
    return prod(_extent(v) for v in loops if v.name not in tiled)


def _is_short(loop: LoopVar, most: int) -> bool:
    return isinstance(loop.extent, int) and loop.extent <= most


def _slid(loop: LoopVar, anchor: Nest, broadcasts: Sequence[Read]) -> bool:
    """Whether a window slides along ``loop``: the stride of a tap is a multiple of its own, even if
    both are symbolic."""
    for read in broadcasts:
        step = coefficient(read.indices[0], loop.name)
        for tap in anchor.reduce:
            moved = coefficient(read.indices[0], tap.name)
            if step and moved and _times(moved, step):
                return True
    return False


def _times(moved: Index, step: Index) -> bool:
    count = floordiv(moved, step)
    return isinstance(count, int) and count * step == moved


def _extent(loop: LoopVar) -> int:
    return loop.extent if isinstance(loop.extent, int) else 1


def _divisible(anchor: Nest) -> bool:
    """Whether the nest has enough steps to be worth dividing between threads."""
    extents = [v.extent for v in (*anchor.parallel, *anchor.reduce)]
    return prod(e if isinstance(e, int) else 1 for e in extents) >= DIVISIBLE_STEPS


def _tiles(tile: RegisterTile, anchor: Nest, lane: str) -> float:
    """How many tiles the nest has."""
    loops = [v for v in anchor.parallel if v.name != lane]
    return prod(tile_count(v.extent, tile.of(v.name)) for v in loops)


def _windows(vectors: Sequence[Read], anchor: Nest, lane: str) -> list[list[SlidingWindow]]:
    """The windows of each read, without those that slide along the lanes."""
    return [[w for w in windows(r, anchor) if w.point.name != lane] for r in vectors]


def _longest(found: list[list[SlidingWindow]]) -> list[SlidingWindow]:
    return max(found, key=len) if found else []


def _candidates(
    blocks: LoopVar, spatial: Sequence[LoopVar], held: int, machine: CpuModel
) -> Iterator[RegisterTile]:
    """Tiles whose accumulators, with ``held`` operands of each vector, fit into registers."""
    budget = machine.vector_registers - (3 if machine.vector_registers > 16 else 2)
    most = blocks.extent if isinstance(blocks.extent, int) else 8
    widths = [n for n in range(1, 9) if n <= most]
    inner = spatial[-1] if spatial else None
    outer = spatial[-2] if len(spatial) > 1 else None
    for nv in widths:
        for w in _tile_sizes(inner, budget // nv):
            for h in _tile_sizes(outer, min(4, budget // (nv * w))):
                if nv * w * h > 1 and nv * w * h + held * nv > budget + 1:
                    continue
                points = [(blocks.name, nv)]
                points += [(inner.name, w)] if inner is not None else []
                points += [(outer.name, h)] if outer is not None else []
                yield RegisterTile(blocks.name, tuple(points))


def _tile_sizes(variable: LoopVar | None, limit: int) -> range:
    if variable is None:
        return range(1, 2)
    extent = variable.extent if isinstance(variable.extent, int) else 64
    return range(1, max(1, min(limit, extent)) + 1)


def _cycles(
    tile: RegisterTile, anchor: Nest, blocks: str, roles: Roles, machine: CpuModel
) -> float:
    """Estimated cycles of the whole nest per reduction step."""
    extent, size = anchor.var(blocks).extent, tile.of(blocks)
    if not isinstance(extent, int):
        return _part_cycles(tile, tile_count(extent, size), anchor, blocks, roles, machine)
    whole, rest = divmod(extent, size)
    total = _part_cycles(tile, whole, anchor, blocks, roles, machine)
    if rest:
        points = tuple((n, rest if n == blocks else s) for n, s in tile.points)
        total += _part_cycles(RegisterTile(blocks, points), 1, anchor, blocks, roles, machine)
    return total


def _part_cycles(
    tile: RegisterTile, panels: float, anchor: Nest, blocks: str, roles: Roles, machine: CpuModel
) -> float:
    """Estimated cycles of ``panels`` panels of vectors per reduction step."""
    points, tiles, uses = 1, 1.0, 1.0
    for name, size in tile.points:
        extent = anchor.var(name).extent
        count = tile_count(extent, size) if name != blocks else 1
        tiles *= count
        once = roles.packed and all(name in names for names in roles.moving_vectors)
        uses *= 1 if once else count
        if name == blocks or not isinstance(extent, int):
            points *= size
        else:
            points *= -(-extent // int(tile_count(extent, size)))
    vectors = sum(_distinct(names, tile) for names in roles.moving_vectors)
    loads = vectors + sum(_distinct(names, tile) for names in roles.moving_broadcasts)
    busy = max(points / machine.fmas, SLACK * loads / machine.loads, machine.fma_latency)
    step = vectors * (machine.vector_bits // 8)
    waiting = max(vectors * L2_CYCLES - busy, 0)
    # The first use loads a panel into the L1 cache, if it fits.
    if step * _steps(anchor) <= machine.l1_bytes:
        waiting /= uses
    else:
        waiting = max(waiting, UNHIDDEN * (step / machine.l2_bandwidth - HIDDEN * busy))
    if roles.broadcasts and not roles.packed and uses == 1 and _in_rows(roles, anchor):
        waiting += ROW_CYCLES
    return panels * tiles * (busy + waiting + 0.5)


def _in_rows(roles: Roles, anchor: Nest) -> bool:
    """Whether vectors of consecutive reduction steps are in different rows."""
    offsets = [r.indices[0] for r in roles.vectors if len(r.indices) == 1]
    strides = [coefficient(o, v.name) for o in offsets for v in anchor.reduce]
    return any(not isinstance(s, int) or s >= ROW_ELEMENTS for s in strides)


def _steps(anchor: Nest) -> int:
    return prod(v.extent if isinstance(v.extent, int) else 1 for v in anchor.reduce)


def _distinct(moving: frozenset[str], tile: RegisterTile) -> int:
    """Number of distinct elements (or vectors) that one reduction step loads for a read ``moving``
    with these."""
    return prod(size for name, size in tile.points if name in moving)


def _unrolling(anchor: Nest, tile: RegisterTile, roles: Roles) -> tuple[tuple[str, int], ...]:
    """Unrolling of the reduction loops, from the innermost outwards, to a moderate body.

    A loop along which neighbouring points of the tile broadcast the same elements stays rolled:
    unrolled, the compiler would keep the shared elements in vector registers that the tile needs.
    """
    points = tile.size
    budget = max(2, UNROLLED_STEPS // points)
    factors: list[tuple[str, int]] = []
    for position, loop in enumerate(reversed(anchor.reduce)):
        if roles.vectors and any(_slides(r, loop, tile, anchor) for r in roles.broadcasts):
            break
        factor = _innermost_unroll(loop.extent, points) if position == 0 else loop.extent
        if multiplies_pairs(anchor) and (not isinstance(factor, int) or factor > PAIR_STEPS):
            factor = PAIR_STEPS
        if not isinstance(factor, int) or not factor or (position and factor > min(budget, 8)):
            break
        factors.append((loop.name, factor))
        budget //= factor
        if factor != loop.extent:
            break
    return tuple(factors)


def _innermost_unroll(extent: Index, points: int) -> int:
    limit = 16 if points <= 8 else 8 if points <= 16 else 4
    if not isinstance(extent, int):
        return limit
    if extent <= (SHORT_STEPS if points <= FEW_POINTS else SHORT_STEPS // 2):
        return extent
    return next((u for u in (limit, limit // 2) if extent % u == 0), limit)


def _slides(read: Read, loop: LoopVar, tile: RegisterTile, anchor: Nest) -> bool:
    """Whether a step of ``loop`` reads what another point of the tile reads."""
    return any(w.tap == loop and tile.of(w.point.name) > 1 for w in windows(read, anchor))
