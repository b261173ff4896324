"""The best elements of columns that lie side by side: as vectors, or turned to rows first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.algorithm import AlgorithmBuilder, convert, index_number, predicate, splat
from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer, Expr, Select
from modelcc.ir.types import DType
from modelcc.ops.accumulate import accumulator
from modelcc.ops.selection import Row
from modelcc.ops.sorting import below

WIDE = 4
"""Vectors of columns that are taken together: what is read of each row are whole lines."""


@dataclass(frozen=True)
class TurnedColumns:
    """Room for ``wide`` columns as rows ``pitch`` apart.

    Rows whose distance is a power of two would share few lines of the cache.
    """

    memory: Buffer
    wide: int
    pitch: Index
    start: Index = 0

    def at_block(self, block: Index) -> TurnedColumns:
        """That of one of several blocks, each with memory of its own."""
        return replace(self, start=block * self.wide * self.pitch)

    def fill(self, at: AlgorithmBuilder, row: Row, count: Index) -> None:
        """Copy ``count`` columns, of which ``row`` is the first."""
        with at.when(predicate(count, "==", self.wide)), at.loop(0, row.extent) as i:
            elements = at.load(row.x, row.source + i * row.step, self.wide)
            at.store(self.memory, self.start + i, elements, self.pitch)
        with (
            at.when(predicate(count, "<", self.wide)),
            at.loop(0, row.extent) as i,
            at.loop(0, count) as c,
        ):
            element = at.load(row.x, row.source + i * row.step + c)
            at.store(self.memory, self.start + c * self.pitch + i, element)

    def row(self, row: Row, column: Index) -> Row:
        """A column, as a row of neighbours with the results of its place."""
        source = self.start + column * self.pitch
        return replace(row, x=self.memory, source=source, step=1, target=row.target + column)


def turned_columns(
    at: AlgorithmBuilder, dtype: DType, extent: Index, blocks: Index
) -> TurnedColumns:
    """Scratch memory for ``blocks`` times as many columns as are taken together."""
    wide = at.capacity.joined(WIDE)
    pitch = extent + wide
    return TurnedColumns(at.scratch(dtype, blocks * wide * pitch), wide, pitch)


def select_best_of_columns(at: AlgorithmBuilder, row: Row, count: Index) -> None:
    """The results for k = 1 of ``count`` columns, of which ``row`` is the first.

    The results so far meet one row of elements after the other.
    """
    for c, lanes in at.vectors(count):
        at.store(row.values, row.target + c, at.load(row.x, row.source + c, lanes))
        at.store(row.indices, row.target + c, splat(index_number(0), lanes))
    with at.loop(1, row.extent) as i:
        for c, lanes in at.vectors(count):
            own = at.let(at.load(row.x, row.source + i * row.step + c, lanes))
            best = at.let(at.load(row.values, row.target + c, lanes))
            place = at.let(at.load(row.indices, row.target + c, lanes))
            better = at.let(_is_better(own, best, row.largest))
            at.store(row.values, row.target + c, Select(better, own, best))
            number = splat(index_number(i), lanes)
            at.store(row.indices, row.target + c, Select(better, number, place))


def _is_better(own: Expr, best: Expr, largest: bool) -> Expr:
    if own.dtype.is_float:
        own, best = (convert(e, accumulator(e.dtype)) for e in (own, best))
    return below(best, own) if largest else below(own, best)
