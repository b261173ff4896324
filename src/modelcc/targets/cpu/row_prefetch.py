"""Prefetching what register tiles read once: operands of the epilogue, rows of the next tile.

Rows of a matrix are far from each other, so a core's own prefetching starts anew at every tile.
While a tile is computed, the elements of other tensors that its epilogue needs, the places of its
results, and the elements that the next tile broadcasts are on their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.index import Index, coefficient, floordiv, mod, substitute, symbols
from modelcc.ir.loop import Prefetch, Stmt
from modelcc.ir.scalar_tree import depends_on, reads
from modelcc.ir.tensor import Read, Scalar
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.parallel import Chosen, Point
from modelcc.schedule.structure import is_contraction
from modelcc.targets.cpu.plan import Plan
from modelcc.targets.cpu.prefetch import LINE_BYTES

LEAST_STEPS = 128
"""Reduction steps that hide the latency of memory, and beside which prefetches cost little."""

FAR_BYTES = 1 << 20
"""Rows of more bytes do not stay in the second-level cache until they are used again."""

SETS_BYTES = 4096
"""Rows that are multiples of it apart share few places of a first-level cache: those of the next
tile would drive out this tile's."""


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
    """Rows that the tile after the one at ``corner`` broadcasts, if these are long."""
    anchor, loops = plan.group.anchor, [v for v in plan.order if plan.tile.of(v.name) > 1]
    if anchor is None or plan.lane is None or not is_contraction(anchor) or plan.quad is not None:
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
    """Whether long rows have to come from afar whenever they are read."""
    size = read.dtype.bytes
    if not isinstance(rows.extent, int) or not isinstance(summed.extent, int):
        return False
    whole = summed.extent * size % LINE_BYTES == 0 and summed.extent >= LEAST_STEPS
    return whole and rows.extent * summed.extent * size >= FAR_BYTES


def epilogue_prefetch(plan: Plan, corners: Sequence[Point], near: frozenset[str]) -> list[Stmt]:
    """Prefetches of rows that the tile's epilogue reads and writes; ``near`` tensors are in cache.

    Points that lie side by side in memory are left to the core.
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
    """Whether neighbours along ``row`` are at a distance of more than a line."""
    stride = coefficient(offset, row)
    return not isinstance(stride, int) or stride * nest.body.dtype.bytes > LINE_BYTES


def _hides(loops: Sequence[LoopVar]) -> bool:
    steps = 1
    for v in loops:
        steps *= v.extent if isinstance(v.extent, int) else 1
    return steps >= LEAST_STEPS


def _loads(body: Scalar) -> list[Read]:
    """Reads of memory; those of values in registers have no index."""
    return [r for r in reads(body) if len(r.indices) == 1]
