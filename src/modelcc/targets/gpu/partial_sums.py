"""Split-K: partial sums of several groups, in memory, and the group that adds them up.

Each group stores its sums of a tile and increments the tile's counter.  The last one adds all
parts, in their order, so that results do not depend on which group that is, and computes the
epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelcc.ir.argument import Argument
from modelcc.ir.index import Index, Range, Sym, floordiv, mod, simplify
from modelcc.ir.loop import Arrive, Assign, Buffer, Expr, For, Load, ScalarCall, Stmt
from modelcc.ir.types import I32, DType
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.contraction import Contraction
from modelcc.targets.gpu.evaluation import Evaluation
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.sizes import count

MOST_PARTS = 16
"""Parts of a sum: the last group adds all of them."""

ON_THEIR_WAY = 64
"""Registers of a thread for sums of parts that it loads at the same time."""

CACHED_BYTES = 48
"""Bytes per cycle that an SM gets from L2, roughly."""

ARRIVAL_CYCLES = 2000
"""Cycles from the last sum of a part to the first part that the last group loads: two fences, the
first of which waits for the stores, an atomic operation and a load, each to L2."""


def parts_of(
    rows: int, columns: int, terms: int, found: Contraction, machine: GpuModel
) -> Iterator[int]:
    """Numbers of parts into which the terms (K) of tiles may be split, by blocks of ``terms``:
    those that are equal, give no SM more than one group, and fit into half of L2; none where groups
    cannot count arrivals."""
    extents = [v.extent for v in (*found.batch, *found.rows, *found.columns, *found.terms)]
    if not machine.arrivals or not all(isinstance(extent, int) for extent in extents):
        return
    tiles = -(-count(found.rows) // rows) * -(-count(found.columns) // found.own(columns))
    tiles = max(tiles * count(found.batch), 1)
    blocks, sums = -(-count(found.terms) // terms), tiles * rows * columns * 4
    most = min(MOST_PARTS, machine.units // tiles, machine.l2_bytes // (2 * sums))
    yield from (parts for parts in range(2, most + 1) if blocks % parts == 0)


def parts_cycles(rows: int, columns: int, parts: int, per_unit: int) -> float:
    """Cycles from the last product of ``per_unit`` groups to the start of the epilogue.

    Groups store their sums, and :data:`ARRIVAL_CYCLES` later one group loads those of all parts of
    a tile, at the L2 bandwidth of one SM.  With one group per SM, a product takes::

        sums = 4 * rows * columns / CACHED_BYTES
        blocks / parts * block + sums + ARRIVAL_CYCLES + parts * sums

    which is least where ``parts**2`` is the time of all blocks divided by that of ``sums``: 64 by
    64 results of 768 terms have 12 blocks of 480 cycles, and sums that take 340, so 4 parts.  A
    second kernel, whose groups are on all SMs, would favour as many parts as there are SMs.
    """
    sums = rows * columns * 4 / CACHED_BYTES
    return per_unit * sums + ARRIVAL_CYCLES + parts * sums


@dataclass(frozen=True)
class PartialSums:
    """``count`` parts of each of ``tiles`` of ``rows`` by ``columns`` sums; this group has part
    ``part`` of tile ``tile``."""

    count: int
    tiles: int
    rows: int
    columns: int
    dtype: DType
    part: Index
    tile: Index
    names: tuple[str, str]

    @property
    def memory(self) -> Buffer:
        """All parts, those of a tile one after the other."""
        size = self.tiles * self.count * self.rows * self.columns
        return Buffer(self.names[0], self.dtype, size)

    @property
    def counters(self) -> Buffer:
        """Counters of the groups that have arrived."""
        return Buffer(self.names[1], I32, self.tiles)

    @property
    def working(self) -> tuple[Buffer, Buffer]:
        """Buffers that the function needs besides operands and results."""
        return self.memory, self.counters

    def place(self, row: Index, column: Index) -> Argument:
        """The destination of a sum of this group."""
        return Argument(self.names[0], self._first(self.part) + row * self.columns + column)

    def totals(
        self, at: Evaluation, places: Sequence[tuple[Index, Index]], lanes: int
    ) -> list[Expr]:
        """``lanes`` neighbouring sums of all parts from each of these rows and columns on; loads of
        as many parts as a thread has registers for are in flight at the same time."""
        together = max(1, ON_THEIR_WAY // (len(places) * lanes))
        turns, left = divmod(self.count - 1, together)
        own = self._loaded(at, 0, places, lanes)
        if turns < 2:
            return self._added(at, own, 1, self.count - 1, places, lanes)
        sums = [at.register("s", first) for first in own]
        turn, inner = at.names.fresh("turn"), at.nested()
        first = Sym(turn) * together + 1
        made = self._added(inner, sums, first, together, places, lanes)
        inner.statements += [
            Assign(total.name, value) for total, value in zip(sums, made, strict=True)
        ]
        at.statements.append(For(turn, 0, turns, tuple(inner.statements)))
        return self._added(at, sums, 1 + turns * together, left, places, lanes)

    def _added(
        self, at: Evaluation, sums: Sequence[Expr], first: Index, parts: int,
        places: Sequence[tuple[Index, Index]], lanes: int,
    ) -> list[Expr]:  # fmt: skip
        """``sums`` plus those of ``parts`` parts from ``first`` on, in their order."""
        for part in range(parts):
            more = self._loaded(at, first + part, places, lanes)
            pairs = zip(sums, more, strict=True)
            sums = [at.named("s", ScalarCall("add", p, self.dtype, lanes)) for p in pairs]
        return list(sums)

    def _loaded(
        self, at: Evaluation, part: Index, places: Sequence[tuple[Index, Index]], lanes: int
    ) -> list[Expr]:
        first = self._first(part)
        offsets = (first + row * self.columns + column for row, column in places)
        return [at.named("p", Load(self.names[0], o, self.dtype, lanes)) for o in offsets]

    def finished(self, body: Sequence[Stmt]) -> Arrive:
        """The work of the last group of a tile."""
        return Arrive(self.names[1], self.tile, self.count, tuple(body))

    def _first(self, part: Index) -> Index:
        return (self.tile * self.count + part) * (self.rows * self.columns)


def place_part(
    at: Evaluation, number: Index, parts: int, ranges: dict[str, Range]
) -> tuple[Index, Index]:
    """The batch, and the part of its sums, of a group with this ``number``; adds the part's range
    to ``ranges``."""
    if parts == 1:
        return number, 0
    batch = at.bind("gb", simplify(floordiv(number, parts), ranges))
    part = at.bind("part", simplify(mod(number, parts), ranges))
    if isinstance(part, Sym):
        ranges[part.name] = Range(0, parts - 1)
    return batch, part


def partial_sums(
    names: FreshNames,
    parts: int,
    grid: Sequence[Index],
    shape: tuple[int, int],
    dtype: DType,
    part: Index,
    tile: Index,
) -> PartialSums | None:
    """None if there is one part; :class:`ScheduleError` if the number of groups, the product of
    ``grid`` and the parts, is not a constant."""
    if parts == 1:
        return None
    tiles = 1
    for extent in grid:
        if not isinstance(extent, int):
            raise ScheduleError("sums in parts are of tiles whose number is known")
        tiles *= extent
    return PartialSums(
        parts, tiles, *shape, dtype, part, tile, (names.fresh("parts"), names.fresh("arrivals"))
    )


def blocks_of_part(blocks: Index, parts: int) -> Index:
    """Blocks of terms of a group; :class:`ScheduleError` unless parts are equal."""
    if parts == 1:
        return blocks
    if not 1 < parts <= MOST_PARTS or not isinstance(blocks, int) or blocks % parts:
        raise ScheduleError(f"{blocks} blocks of terms are not cut into {parts} parts")
    return blocks // parts
