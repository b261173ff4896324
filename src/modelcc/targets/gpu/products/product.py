"""Contractions by tiles in shared memory, with a tile of results in the registers of each thread.

grid b, j, i; thread y, x
  sums = 0
  for each block of terms (K)
    left[term, row], right[term, column] = the operands' elements, 0 outside of them
    barrier
    for each term of the block
      sums[r, c] += left[term, row r of y] * right[term, column c of x]
    barrier
  results within range: sums, and their epilogue

With ``parts`` (split-K), a group has some of the terms, and stores its sums to memory; the last one
of a tile finishes them (:mod:`modelcc.targets.gpu.partial_sums`).

Sums that are ``blocked`` add up the terms of a block before they are added to the total, so that
rounding errors grow with the number of blocks and not with that of terms (blocked summation:
Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 4.2).

No barrier follows a single block.  With two buffers, the elements of the next block are loaded
before the products of this one, and stored to the other buffer after them, so that one barrier
suffices.  With more, blocks are copied asynchronously, ``buffers - 1`` ahead.  Rows, columns and
terms may each be several axes: a convolution is the product of gathered pixels and weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import gcd

from modelcc.ir.index import Index, Sym, ceildiv, floordiv, loop_range, mod
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    Expr,
    For,
    Function,
    ScalarCall,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.tensor import Condition
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import GroupProduct
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.contraction import Contraction, KeptFactor, group_contraction
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching, extent_of, only_where
from modelcc.targets.gpu.partial_sums import (
    PartialSums,
    blocks_of_part,
    partial_sums,
    place_part,
)
from modelcc.targets.gpu.products.async_copy_blocks import AsyncCopyBlocks
from modelcc.targets.gpu.products.operand_tile import OperandTile, TileReader, multiplied
from modelcc.targets.gpu.products.staged_tile import StagedTile, TileCopier
from modelcc.targets.gpu.products.warp_squares import interleaved, interleaves

WARP_COLUMNS = 8
"""Threads in a row of a warp that is interleaved."""


def lower_product(kernel: GroupKernel, schedule: GroupProduct) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it does not begin with a contraction of
    rows and columns, or threads do not divide tiles evenly."""
    found = group_contraction(kernel.group)
    if found is None:
        raise ScheduleError("tiles in shared memory are for products of matrices")
    check_tiles(schedule, len(found.rights))
    return _TiledProduct(kernel, schedule, found).function()


def check_tiles(s: GroupProduct, products: int = 1) -> None:
    """:class:`ScheduleError` unless threads divide tiles evenly, and their columns are a multiple
    of ``products``."""
    sizes = (s.rows, s.columns, s.terms, s.thread_rows, s.thread_columns, s.lanes, s.parts)
    if any(size < 1 for size in sizes) or s.buffers < 1:
        raise ScheduleError("tiles have rows, columns, terms, parts and buffers")
    lanes = s.lanes * products
    if s.rows % s.thread_rows or s.columns % s.thread_columns or s.thread_columns % lanes:
        raise ScheduleError("a tile divides among threads, and a thread's columns among lanes")
    if s.interleaved and not has_squares(s):
        raise ScheduleError("warps that are interleaved are 4 by 8 threads")


def has_squares(s: GroupProduct) -> bool:
    """Whether threads can be interleaved."""
    rows, columns = s.rows // s.thread_rows, s.columns // s.thread_columns
    return interleaves(rows, columns, WARP_COLUMNS)


class _TiledProduct:
    def __init__(self, kernel: GroupKernel, schedule: GroupProduct, found: Contraction) -> None:
        self._kernel, self._schedule, self._found = kernel, schedule, found
        fresh, s = kernel.names.fresh, schedule
        self._shape = s.rows // s.thread_rows, s.columns // s.thread_columns
        self._groups = fresh("gb"), fresh("gj"), fresh("gi")
        if s.interleaved:
            threads = ((fresh("t"), s.threads),)
            self._thread: Index = Sym(threads[0][0])
            self._y, self._x = interleaved(self._thread, self._shape[1], WARP_COLUMNS)
        else:
            threads = tuple(zip((fresh("ty"), fresh("tx")), self._shape, strict=True))
            self._y, self._x = (Sym(name) for name, _ in threads)
            self._thread = self._y * self._shape[1] + self._x
        extents = (
            extent_of(found.batch),
            ceildiv(extent_of(found.columns), found.own(s.columns)),
            ceildiv(extent_of(found.rows), s.rows),
        )
        self._tiles = extents
        counts = (extents[0] * s.parts, *extents[1:])
        grid = tuple(zip(self._groups, counts, strict=True))
        self._launch = Launching(grid, threads, kernel.dims)
        self._ranges = dict(self._launch.ranges)
        self._first: Index = 0
        self._outer = Evaluation(kernel.names)
        self._left = self._tile(found.left, found.rows, s.rows, "left")
        own = found.own(s.columns)
        self._rights = [self._tile(f, found.columns, own, "right") for f in found.rights]
        self._lanes = s.lanes if self._fits_lanes() else 1

    def _tile(
        self, operand: KeptFactor, along: tuple[LoopVar, ...], size: int, stem: str
    ) -> OperandTile:
        s, names = self._schedule, self._kernel.names
        name, terms = names.fresh(stem), self._found.terms
        facts = operand, along, terms, size, s.terms, s.threads, s.lanes, s.buffers, names, name
        if s.buffers > 2:
            return StagedTile(*facts, rows_of_terms=False, apart=True)
        return OperandTile(*facts)

    def _fits_lanes(self) -> bool:
        """Whether the epilogue can be vectorised over a thread's neighbouring columns."""
        last, lanes = self._found.columns[-1], self._schedule.lanes
        group = self._kernel.group
        later = [n for n in group.nests if not n.reduce]
        made = {n.output for n in group.nests}
        whole = isinstance(last.extent, int) and last.extent % lanes == 0
        return whole and all(vectorisable(n.body, last.name, lanes, made) for n in later)

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        s, outer, found = self._schedule, self._outer, self._found
        _, gj, gi = map(Sym, self._groups)
        number, part = place_part(outer, Sym(self._groups[0]), s.parts, self._ranges)
        self._first = part * self._blocks()
        batch = outer.place(found.batch, number) if found.batch else {}
        common = self._ranges, outer, batch
        places = [(self._left, gi * s.rows)]
        places += [(right, gj * right.size) for right in self._rights]
        sums = self._sums()
        if s.buffers > 2:
            copiers = [TileCopier(tile, self._thread, start, *common) for tile, start in places]
            outer.statements += self._copied(copiers, sums)
        else:
            readers = [TileReader(tile, self._thread, start, *common) for tile, start in places]
            ahead = s.buffers == 2
            outer.statements += (self._ahead if ahead else self._in_turn)(readers, sums)
        tile = (number * self._tiles[1] + gj) * self._tiles[2] + gi
        dtype, shape = sums[0][0].dtype, (s.rows, s.columns)
        names = self._kernel.names
        parts = partial_sums(names, s.parts, self._tiles, shape, dtype, part, tile)
        if parts is None:
            self._results(outer, batch, lambda r, c: sums[r][c])
        else:
            outer.statements += self._parts(parts, batch, sums)
        shared = [Alloc(tile.buffer) for tile, _ in places]
        body = self._launch.around(shared, outer.statements)
        return self._kernel.function(body, () if parts is None else parts.working)

    def _blocks(self) -> Index:
        """Blocks of a group."""
        s = self._schedule
        return blocks_of_part(ceildiv(extent_of(self._found.terms), s.terms), s.parts)

    def _sums(self) -> list[list[Var]]:
        s, zero = self._schedule, self._zero()
        each = range(s.thread_columns // self._lanes)
        return [[self._outer.register("sum", zero) for _ in each] for _ in range(s.thread_rows)]

    def _zero(self) -> Expr:
        anchor = self._kernel.group.anchor
        assert anchor is not None
        return widen(self._outer.neutral(anchor), self._lanes)

    def _in_turn(self, readers: Sequence[TileReader], sums: list[list[Var]]) -> list[Stmt]:
        block, inner = self._kernel.names.fresh("kb"), self._outer.nested()
        ranges = {**self._ranges, block: loop_range(self._blocks())}
        for reader in readers:
            reader.fetch(self._first + Sym(block), inner, ranges)
            inner.statements += reader.put(0)
        body = (*inner.statements, Barrier(), *self._multiply(0, sums))
        if self._blocks() != 1:  # after one block, products would wait for loads of the next
            body = (*body, Barrier())
        return [For(block, 0, self._blocks(), body)]

    def _ahead(self, readers: Sequence[TileReader], sums: list[list[Var]]) -> list[Stmt]:
        first, inner = self._outer.nested(), self._outer.nested()
        for reader in readers:
            reader.fetch(self._first, first, self._ranges)
            first.statements += reader.put(0)
        block = self._kernel.names.fresh("kb")
        ranges = {**self._ranges, block: loop_range(self._blocks())}
        for reader in readers:
            reader.fetch(self._first + Sym(block) + 1, inner, ranges)
        inner.statements += self._multiply(mod(Sym(block), 2), sums)
        for reader in readers:
            inner.statements += reader.put(mod(Sym(block) + 1, 2))
        body = (*inner.statements, Barrier())
        return [*first.statements, Barrier(), For(block, 0, self._blocks(), body)]

    def _copied(self, copiers: Sequence[TileCopier], sums: list[list[Var]]) -> list[Stmt]:
        copied = AsyncCopyBlocks(
            copiers, self._kernel.names, self._schedule.buffers, self._blocks(), self._first,
            self._ranges,
        )  # fmt: skip
        return copied.statements(self._outer, lambda which: self._multiply(which, sums))

    def _multiply(self, which: Index, sums: list[list[Var]]) -> list[Stmt]:
        """All terms of a block, which ``sums`` get one by one, or as a sum of their own."""
        if not self._schedule.blocked or self._blocks() == 1:
            return [self._products(which, sums)]
        at = self._outer.nested()
        own = [[at.register("part", self._zero()) for _ in line] for line in sums]
        at.statements.append(self._products(which, own))
        for total, part in zip(chain(*sums), chain(*own), strict=True):
            added = ScalarCall("add", (total, part), total.dtype, total.lanes)
            at.statements.append(Assign(total.name, added))
        return at.statements

    def _products(self, which: Index, sums: list[list[Var]]) -> Stmt:
        """Of all terms of a block, added to ``sums``."""
        term = Sym(self._kernel.names.fresh("k"))
        rows = [self._left.at(which, term, self._row(r), 1) for r in range(len(sums))]
        columns = [
            right.at(which, term, self._column(c), self._lanes)
            for right in self._rights
            for c in range(self._vectors)
        ]
        body = multiplied(self._kernel.names, rows, columns, sums)
        return For(term.name, 0, self._schedule.terms, tuple(body), kind="unrolled")

    @property
    def _vectors(self) -> int:
        """A thread's results of a row, in vectors."""
        return self._found.own(self._schedule.thread_columns) // self._lanes

    def _row(self, number: int) -> Index:
        """A thread's row within the tile: ``lanes`` of them are contiguous, so that one load from
        shared memory brings them."""
        side = gcd(self._schedule.thread_rows, self._schedule.lanes)
        far, near = divmod(number, side)
        return (self._y + far * self._shape[0]) * side + near

    def _column(self, number: int) -> Index:
        return (self._x + number * self._shape[1]) * self._lanes

    def _place(self, at: Evaluation, column: Index) -> dict[str, Index]:
        """Indices of a thread's columns from ``column`` on, the last one as an explicit multiple of
        the lanes, so that loads and stores are vectors."""
        columns, lanes = self._found.columns, self._lanes
        if lanes == 1:
            return at.place(columns, column)
        return at.place_vector(columns, floordiv(column, lanes), lanes)

    def _parts(
        self, parts: PartialSums, batch: dict[str, Index], sums: list[list[Var]]
    ) -> list[Stmt]:
        """The sums of this group's terms, and the total by the last group."""
        columns = [
            self._column(c) + number * right.size
            for number, right in enumerate(self._rights)
            for c in range(self._vectors)
        ]
        found: list[Stmt] = []
        for r, line in enumerate(sums):
            for column, own in zip(columns, line, strict=True):
                place = parts.place(self._row(r), column)
                found.append(Store(place.buffer, place.offset, own))
        last, per_row = self._outer.nested(), len(columns)
        places = [(self._row(r), column) for r in range(len(sums)) for column in columns]
        totals = parts.totals(last, places, self._lanes)
        self._results(last, batch, lambda r, c: totals[r * per_row + c])
        return [*found, parts.finished(last.statements)]

    def _results(
        self,
        outer: Evaluation,
        batch: dict[str, Index],
        total: Callable[[int, int], Expr],
    ) -> None:
        """The epilogue of the contraction within range; ``total`` gives the sums."""
        found, s, count = self._found, self._schedule, self._vectors
        starts = Sym(self._groups[2]) * s.rows, Sym(self._groups[1]) * self._rights[0].size
        columns = [starts[1] + self._column(c) for c in range(count)]
        at_columns = [self._place(outer, column) for column in columns]
        lane, last = self._kernel.names.fresh("l"), found.columns[-1].name
        lanes = Lanes(lane, self._lanes) if self._lanes > 1 else None
        for number in range(s.thread_rows):
            row = starts[0] + self._row(number)
            point = {**batch, **outer.place(found.rows, row)}
            here = self._launch.unknown((Condition(row, "<", extent_of(found.rows)),))
            line_body: list[Stmt] = []
            for which, (column, at) in enumerate(zip(columns, at_columns, strict=True)):
                cell = Evaluation(self._kernel.names, lanes=lanes)
                where = {**point, **at}
                if lanes is not None:
                    where[last] = where[last] + Sym(lane)
                sums = [total(number, which + n * count) for n in range(len(self._rights))]
                cell.finish(self._kernel.group, where, sums)
                inside = Condition(column, "<", extent_of(found.columns))
                line_body += self._launch.guarded((inside,), cell.statements)
            outer.statements += only_where(here, line_body)
