"""Choosing the register tile of a group: a small cost model over candidate tiles.

The micro-kernel follows Goto & van de Geijn ("Anatomy of high-performance matrix multiplication",
2008): a tile of accumulators stays in registers while the reduction streams; one operand is
broadcast, the other loaded as vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelcc.ir.index import Index, coefficient, symbols
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Read
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.nest import LoopVar, Nest
from modelcc.targets.cpu.structure import Group


@dataclass(frozen=True)
class Tile:
    """Unrolled points per loop variable; ``vector`` is the variable over whole vectors."""

    vector: str | None
    points: tuple[tuple[str, int], ...]
    reduce_unroll: int = 1

    def of(self, variable: str) -> int:
        return dict(self.points).get(variable, 1)


@dataclass(frozen=True)
class Roles:
    """Which reads of the anchor move with the lanes, and which parallel loops move which reads."""

    vectors: tuple[Read, ...]
    broadcasts: tuple[Read, ...]

    def moves_vectors(self, variable: str) -> bool:
        return any(_moves(r, variable) for r in self.vectors)

    def moves_broadcasts(self, variable: str) -> bool:
        return any(_moves(r, variable) for r in self.broadcasts)


def _moves(read: Read, variable: str) -> bool:
    return any(variable in symbols(i) for i in read.indices)


def roles_of(nest: Nest, lane: str) -> Roles:
    """Split the reads of ``nest`` into those along ``lane`` and those broadcast to all lanes."""
    unique = tuple(dict.fromkeys(reads(nest.body)))
    vectors = tuple(r for r in unique if _moves(r, lane))
    return Roles(vectors, tuple(r for r in unique if r not in vectors))


def tile_count(extent: Index, tile: int) -> float:
    """Tiles that cover ``extent``; a symbolic extent counts as many."""
    return -(-extent // tile) if isinstance(extent, int) else 64 / tile


def choose_tile(group: Group, lane: str, blocks: str, machine: CpuModel) -> Tile:
    """Register tile of a group vectorised over ``lane`` with whole vectors along ``blocks``."""
    anchor = group.anchor
    if anchor is None:
        extent = group.final.var(blocks).extent
        most = extent if isinstance(extent, int) else 4
        unroll = next((u for u in (4, 2) if most >= u), 1)
        return Tile(blocks, ((blocks, unroll),))
    roles = roles_of(anchor, lane)
    others = [v for v in anchor.parallel if v.name not in (lane, blocks) and v.extent != 1]
    reused = [v for v in others if not all(_moves(r, v.name) for r in roles.vectors)]
    candidates = _candidates(anchor.var(blocks), (reused or others)[-2:], roles, machine)
    best = min(candidates, key=lambda c: (_cycles(c, anchor, blocks, roles, machine), c.points))
    return Tile(blocks, best.points, _reduce_unroll(anchor, best))


def _candidates(
    blocks: LoopVar, spatial: Sequence[LoopVar], roles: Roles, machine: CpuModel
) -> Iterator[Tile]:
    budget = machine.vector_registers - (3 if machine.vector_registers > 16 else 2)
    most = blocks.extent if isinstance(blocks.extent, int) else 8
    widths = [n for n in (1, 2, 3, 4, 6, 8) if n <= most]
    inner = spatial[-1] if spatial else None
    outer = spatial[-2] if len(spatial) > 1 else None
    for nv in widths:
        for w in _tile_sizes(inner, budget // nv):
            for h in _tile_sizes(outer, min(4, budget // (nv * w))):
                if nv * w * h + len(roles.vectors) * nv > budget + 1:
                    continue
                points = [(blocks.name, nv)]
                points += [(inner.name, w)] if inner is not None else []
                points += [(outer.name, h)] if outer is not None else []
                yield Tile(blocks.name, tuple(points))


def _tile_sizes(variable: LoopVar | None, limit: int) -> range:
    if variable is None:
        return range(1, 2)
    extent = variable.extent if isinstance(variable.extent, int) else 64
    return range(1, max(1, min(limit, extent)) + 1)


def _cycles(tile: Tile, anchor: Nest, blocks: str, roles: Roles, machine: CpuModel) -> float:
    """Estimated cycles of the whole nest per step of the reduction."""
    points = 1
    tiles = 1.0
    for name, size in tile.points:
        extent = anchor.var(name).extent
        tiles *= tile_count(extent, size)
        if name == blocks or not isinstance(extent, int):
            points *= size
        else:
            points *= -(-extent // int(tile_count(extent, size)))
    loads = sum(_distinct(r, tile) for r in (*roles.vectors, *roles.broadcasts))
    busy = max(points / machine.fmas, loads / machine.loads, machine.fma_latency)
    return tiles * (busy + 0.5)


def _distinct(read: Read, tile: Tile) -> int:
    """Different elements (or vectors) one reduction step loads for ``read``."""
    count = 1
    for name, size in tile.points:
        if _moves(read, name):
            count *= size
    return count


def _reduce_unroll(anchor: Nest, tile: Tile) -> int:
    """Unrolling of the innermost reduction loop, smaller for bigger tiles."""
    extent = anchor.reduce[-1].extent
    points = 1
    for _, size in tile.points:
        points *= size
    limit = 16 if points <= 8 else 8 if points <= 16 else 4
    if not isinstance(extent, int):
        return limit
    if extent <= 8:
        return extent
    return next((u for u in (limit, limit // 2) if extent % u == 0), limit)


def moves_contiguously(read: Read, variable: str) -> bool:
    """Whether the flat read steps by one element (or not at all) along ``variable``."""
    return len(read.indices) != 1 or coefficient(read.indices[0], variable) in (0, 1)
