"""Prefetching the part of a constant that the next block of grouped stages reads while the current
block is computed.

All reduction steps of all products of a block share the prefetches evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from modelcc.ir.copies import Prefetch
from modelcc.ir.index import Index, Sym, coefficient, floordiv, simplify
from modelcc.ir.loop import Stmt
from modelcc.ir.scalar_tree import reads
from modelcc.schedule.compute_at import GroupedStages
from modelcc.schedule.parallel import Chosen, Point
from modelcc.schedule.structure import is_contraction
from modelcc.targets.cpu.plan import Plan
from modelcc.targets.cpu.prefetch import LINE_BYTES, MOST_LINES

SMALLEST_PART = 64 << 10


@dataclass(frozen=True)
class NextBlock:
    """``lines`` lines of ``tensor`` to fetch per reduction step of one product, from ``first``.

    A line has ``width`` elements.
    """

    tensor: str
    first: Index
    lines: int
    width: int

    def fetch(self, at: Point, unroll: int) -> list[Stmt]:
        """Prefetches to issue once per ``unroll`` reduction steps, before the one ``at``."""
        (step,) = (floordiv(value, unroll) for value in at.values())
        first = self.first + step * (self.lines * self.width)
        return [Prefetch(self.tensor, first + n * self.width, 1) for n in range(self.lines)]


@dataclass(frozen=True)
class BlockStream:
    """The prefetches of one product of grouped stages: its steps are numbered from ``start``."""

    tensor: str
    following: Index
    lines: int
    width: int
    start: int

    def at(self, plan: Plan, corner: Point, chosen: Chosen) -> NextBlock | None:
        """The share of the register tile at ``corner``."""
        steps, tile = _steps(plan), _tile_number(plan, corner, chosen)
        first = self.following + (tile * steps + self.start) * (self.lines * self.width)
        return NextBlock(self.tensor, first, self.lines, self.width)


def streams(
    grouped: GroupedStages, plans: Sequence[Plan], constants: frozenset[str]
) -> list[BlockStream | None]:
    """For each plan, its prefetches of the constant of which each block reads one part."""
    none: list[BlockStream | None] = [None] * len(plans)
    if not grouped.outer:
        return none
    working = [p for p in plans if _is_product(p)]
    tensor, part, element = _part(grouped, working, constants)
    steps = {id(p): _tiles(p) * _steps(p) for p in working}
    if part * element < SMALLEST_PART or not all(steps.values()) or not steps:
        return none
    width = LINE_BYTES // element
    others = [a.extent for a in grouped.outer[1:]]
    sharing = prod(e if isinstance(e, int) else 1 for e in others)
    lines = -(-part // (width * sharing * sum(steps.values())))
    if lines > MOST_LINES:
        return none
    number: Index = 0
    for axis in grouped.outer[1:]:
        number = number * axis.extent + Sym(axis.name)
    following = (Sym(grouped.outer[0].name) + 1) * part + number * (part // sharing)
    found: list[BlockStream | None] = []
    start = 0
    for plan in plans:
        own = steps.get(id(plan))
        found.append(None if own is None else BlockStream(tensor, following, lines, width, start))
        start += own or 0
    return found


def _is_product(plan: Plan) -> bool:
    """Whether the plan is a sum of products over one axis."""
    anchor = plan.group.anchor
    return anchor is not None and len(anchor.reduce) == 1 and is_contraction(anchor)


def _part(
    grouped: GroupedStages, plans: Sequence[Plan], constants: frozenset[str]
) -> tuple[str, int, int]:
    """The constant, the elements that a block reads of it, and bytes of an element; of size 0 if
    none."""
    leading = grouped.outer[0].name
    for plan in plans:
        for read in reads(plan.group.nests[0].body):
            part = coefficient(read.indices[0], leading) if len(read.indices) == 1 else None
            if read.tensor in constants and isinstance(part, int) and part > 0:
                return read.tensor, part, read.dtype.bytes
    return "", 0, 1


def _steps(plan: Plan) -> int:
    """Unrolled reduction steps of a register tile; 0 if unknown."""
    anchor = plan.group.anchor
    loop = anchor.reduce[-1] if anchor is not None else None
    if loop is None or not isinstance(loop.extent, int):
        return 0
    return loop.extent // max(1, plan.tile.unrolling(loop.name))


def _tiles(plan: Plan) -> int:
    counts = [s.count for v in plan.order for s in plan.segments[v.name]]
    if not all(isinstance(count, int) for count in counts):
        return 0
    return prod(_loop_tiles(plan, v.name) for v in plan.order)


def _loop_tiles(plan: Plan, name: str) -> int:
    return sum(s.count for s in plan.segments[name] if isinstance(s.count, int))


def _tile_number(plan: Plan, corner: Point, chosen: Chosen) -> Index:
    """Number of the register tile among all tiles of the plan."""
    number: Index = 0
    for v in plan.order:
        segments = plan.segments[v.name]
        before: Index = 0
        for segment in segments[: segments.index(chosen[v.name])]:
            before = before + segment.count
        here = floordiv(corner[v.name] - chosen[v.name].start, chosen[v.name].tile)
        number = number * _loop_tiles(plan, v.name) + simplify(before + here, {})
    return number
