"""Chained contractions (sums over rows of products' tiles) by scalar arithmetic (FMA).

grid b, i; thread y, x
  left factors of the rows stay; totals = 0
  for each block of keys that some row sees
    right factors of the keys; barrier
    products of rows of y and keys of x, and the weights made of them, to shared memory; barrier
    totals += weights of the row * values of columns of x; barrier
  results: made of totals

Values that are the transposed right factor of a product are read from that factor's tile.  With
``lanes``, terms (K) of factors, and keys of weights, are contiguous, so that a thread loads several
at once, and factors are copied asynchronously, where machines do that.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.copies import CommitCopies, WaitCopies
from modelcc.ir.index import Bounds, Index, Range, Sym, ceildiv, minimum
from modelcc.ir.loop import (
    Alloc,
    Barrier,
    Buffer,
    Const,
    Convert,
    Expr,
    For,
    Function,
    Load,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.types import F32
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import GroupChain
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.attention_parts import TOTAL, within
from modelcc.targets.gpu.chains.chain_parts import (
    ChainParts,
    ChainSum,
    find_chain,
    rows_at,
    weights_at,
)
from modelcc.targets.gpu.contraction import Contraction, KeptFactor
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.products.operand_tile import OperandTile, TileReader, multiplied
from modelcc.targets.gpu.products.staged_tile import StagedTile, TileCopier


def lower_chain(kernel: GroupKernel, schedule: GroupChain) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no chain, or threads do not divide
    blocks evenly."""
    s = schedule
    if min(s.rows, s.keys, s.threads, s.thread_rows) < 1 or s.rows % s.thread_rows:
        raise ScheduleError("blocks have rows, of which a thread has some, and keys")
    lines = s.rows // s.thread_rows
    if s.threads % lines or s.keys % (s.threads // lines):
        raise ScheduleError("the rows of a block divide among threads, and its keys do")
    if kernel.checks:
        raise ScheduleError("indices of blocks are known to be in their bounds")
    return ThreadChain(kernel, s, find_chain(kernel)).function()


class ThreadChain:
    """Emits the work of a group's threads; :class:`ScheduleError` if the schedule has vectors, and
    factors or results cannot be such."""

    def __init__(self, kernel: GroupKernel, s: GroupChain, parts: ChainParts) -> None:
        if s.lanes > 1:
            _verify_lanes(s, parts)
        self._kernel, self._s, self._parts = kernel, s, parts
        fresh, chain = kernel.names.fresh, parts.chain
        lines = s.rows // s.thread_rows
        self._shape = lines, s.threads // lines
        gb, gi, y, x = fresh("gb"), fresh("gi"), fresh("ty"), fresh("tx")
        grid = ((gb, extent_of(parts.batch)), (gi, ceildiv(chain.row.extent, s.rows)))
        self._launch = Launching(grid, tuple(zip((y, x), self._shape, strict=True)), kernel.dims)
        self._y, self._x, self._start = Sym(y), Sym(x), Sym(gi) * s.rows
        self._outer = Evaluation(kernel.names)
        self._batch = self._outer.place(parts.batch, Sym(gb)) if parts.batch else {}
        self._block = fresh("kb")
        self._left = [
            self._tile("left", p.left, p.rows, p.terms, (s.rows, depth))
            for p, depth in zip(parts.products, parts.depths, strict=True)
        ]
        self._right = [
            self._tile("right", p.right, p.columns, p.terms, (s.keys, depth))
            for p, depth in zip(parts.products, parts.depths, strict=True)
        ]
        self._values = [None if one.shared is not None else self._of(one) for one in parts.sums]
        self._pitch = s.keys + s.lanes
        self._weights = [
            Buffer(fresh("weights"), one.kept.value.dtype, s.rows * self._pitch, "shared")
            for one in parts.sums
        ]
        self._rows = range(s.thread_rows)
        self._keys = range(s.keys // self._shape[1])
        self._totals: list[list[list[Var]]] = []
        self._places: list[tuple[Index, dict[str, Expr]]] = []

    def _tile(
        self, stem: str, operand: KeptFactor, along: tuple[LoopVar, ...],
        terms: tuple[LoopVar, ...], size: tuple[int, int], by_term: bool = True,
    ) -> OperandTile:  # fmt: skip
        names, threads, lanes = self._kernel.names, self._s.threads, self._s.lanes
        count, depth = size[0], -(-size[1] // lanes) * lanes
        name = names.fresh(stem)
        if lanes == 1:
            return OperandTile(operand, along, terms, count, depth, threads, 1, 1, names, name)
        return StagedTile(
            operand, along, terms, count, depth, threads, lanes, 1, names, name, by_term,
            apart=True, beside=self._s.copies,
        )  # fmt: skip

    def _of(self, one: ChainSum) -> OperandTile:
        """The tile of values that are no product's factor."""
        of: Contraction = one.contraction
        size = self._columns(one) * self._shape[1] * self._s.lanes, self._s.keys
        return self._tile("values", of.right, of.columns, of.terms, size, by_term=False)

    def _columns(self, one: ChainSum) -> int:
        """Vectors of columns of a thread."""
        return -(-one.width // (self._shape[1] * self._s.lanes))

    @property
    def shared(self) -> list[Buffer]:
        """Shared memory of a group."""
        own = [tile for tile in self._values if tile is not None]
        return [*(t.buffer for t in (*self._left, *self._right, *own)), *self._weights]

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, s = self._outer, self._s
        for tile in self._left:
            self._fill(tile, self._start, 0, outer, self._launch.ranges)
        outer.statements += [CommitCopies()] if s.lanes > 1 else []
        self._totals = [self._cleared(one) for one in self._parts.sums]
        self._places = [self._place(r) for r in self._rows]
        first, end = self._parts.blocks(self._batch, self._start, s.rows, s.keys)
        last = ceildiv(self._parts.chain.key.extent, s.keys) - 1
        ranges = {**self._launch.ranges, self._block: Range(0, last)}
        outer.statements.append(For(self._block, first, end, tuple(self._step(ranges))))
        for one, totals in zip(self._parts.sums, self._totals, strict=True):
            self._finish(one, totals)
        body = self._launch.around([Alloc(b) for b in self.shared], outer.statements)
        return self._kernel.function(body)

    def _cleared(self, one: ChainSum) -> list[list[Var]]:
        zero = widen(Const(0, one.results[0].body.dtype), self._s.lanes)
        columns = range(self._columns(one))
        return [[self._outer.register("total", zero) for _ in columns] for _ in self._rows]

    def _place(self, number: int) -> tuple[Index, dict[str, Expr]]:
        """A thread's row, and what tiles read of it."""
        outer, axis = self._outer, self._parts.chain.row
        row = within(outer, self._start + self._row(number), axis, self._launch.ranges)[0]
        return row, rows_at(outer, self._parts, {**self._batch, axis.name: row})

    def _fill(
        self, tile: OperandTile, start: Index, block: Index, at: Evaluation, ranges: Bounds
    ) -> None:
        thread = self._y * self._shape[1] + self._x
        if isinstance(tile, StagedTile):
            copier = TileCopier(tile, thread, start, ranges, at, self._batch)
            copier.begin(0, block, at, ranges)
            at.statements += copier.put(0)
            return
        reader = TileReader(tile, thread, start, ranges, at, self._batch)
        reader.fetch(block, at, ranges)
        at.statements += reader.put(0)

    def _row(self, number: int) -> Index:
        """A thread's row within its block."""
        return self._y + number * self._shape[0]

    def _column(self, number: int) -> Index:
        """A thread's key within its block, or the index of its vector of columns."""
        return self._x + number * self._shape[1]

    def _step(self, ranges: Bounds) -> list[Stmt]:
        """The loop body for a block of keys."""
        inner, block = self._outer.nested(), Sym(self._block)
        for tile in self._right:
            self._fill(tile, block * self._s.keys, 0, inner, ranges)
        for tile in self._values:
            if tile is not None:
                self._fill(tile, 0, block, inner, ranges)
        inner.statements += [CommitCopies(), WaitCopies(0)] if self._s.lanes > 1 else []
        inner.statements.append(Barrier())
        products = [self._products(inner, n) for n in range(len(self._left))]
        self._weigh(inner, products, ranges)
        added = (self._add(number) for number in range(len(self._parts.sums)))
        return [*inner.statements, Barrier(), *added, Barrier()]

    def _products(self, inner: Evaluation, number: int) -> list[list[Var]]:
        """Products of a thread's rows and keys."""
        left, right = self._left[number], self._right[number]
        names, term = self._kernel.names, Sym(self._kernel.names.fresh("d"))
        zero = Const(0, left.operand.dtype)
        found = [[inner.register("product", zero) for _ in self._keys] for _ in self._rows]
        body: list[Stmt] = []
        for lane in range(self._s.lanes):
            place = term * self._s.lanes + lane
            rows = [left.at(0, place, self._row(r), 1) for r in self._rows]
            keys = [right.at(0, place, self._column(c), 1) for c in self._keys]
            body += multiplied(names, rows, keys, found)
        count = left.depth // self._s.lanes
        inner.statements.append(For(term.name, 0, count, tuple(body)))
        return found

    def _weigh(
        self, inner: Evaluation, products: Sequence[Sequence[Sequence[Var]]], ranges: Bounds
    ) -> None:
        """Weights, to shared memory."""
        chain, first = self._parts.chain, Sym(self._block) * self._s.keys
        keys = [within(inner, first + self._column(c), chain.key, ranges) for c in self._keys]
        names = [stage.output for stage in chain.products]
        for number, (row, of_row) in enumerate(self._places):
            for column, (key, there) in enumerate(keys):
                point = {**self._batch, chain.row.name: row, chain.key.name: key}
                own = (found[number][column] for found in products)
                made = {**of_row, **dict(zip(names, own, strict=True))}
                found = weights_at(inner, self._parts, point, made, there)
                place = self._row(number) * self._pitch + self._column(column)
                for buffer, value in zip(self._weights, found, strict=True):
                    inner.statements.append(Store(buffer.name, place, value))

    def _add(self, number: int) -> Stmt:
        """Rows of weights times columns of values."""
        one, weights = self._parts.sums[number], self._weights[number]
        vector, lanes, body = Sym(self._kernel.names.fresh("j")), self._s.lanes, list[Stmt]()

        def weight(row: int, key: Index) -> Expr:
            place, dtype = self._row(row) * self._pitch + key, one.kept.dtype
            value = Load(weights.name, place, weights.dtype)
            return value if value.dtype == dtype else Convert(value, dtype)

        for lane in range(lanes):
            key = vector * lanes + lane
            columns = [self._value(number, key, c) for c in range(self._columns(one))]
            rows = [weight(r, key) for r in self._rows]
            body += multiplied(self._kernel.names, rows, columns, self._totals[number])
        return For(vector.name, 0, self._s.keys // lanes, tuple(body))

    def _value(self, number: int, key: Index, column: int) -> Expr:
        one, own, lanes = self._parts.sums[number], self._values[number], self._s.lanes
        place = self._column(column) * lanes
        if own is not None:
            return own.at(0, key, place, lanes)
        assert one.shared is not None
        if (column + 1) * self._shape[1] * lanes > one.width:
            place = minimum(place, one.width - lanes)  # those beyond are not stored
        return self._right[one.shared].at(0, place, key, lanes)

    def _finish(self, one: ChainSum, totals: Sequence[Sequence[Var]]) -> None:
        """Totals become results."""
        outer, launch, row_axis = self._outer, self._launch, self._parts.chain.row
        count = self._s.lanes
        for row in self._rows:
            number = self._start + self._row(row)
            line: list[Stmt] = []
            for column in range(self._columns(one)):
                lanes = Lanes(self._kernel.names.fresh("c"), count) if count > 1 else None
                cell = outer.nested(lanes)
                made: dict[str, Expr] = {TOTAL: totals[row][column]}
                at = cell.place_lanes(one.contraction.columns, self._column(column))
                point = {**self._batch, row_axis.name: number, **at}
                for nest in one.results:
                    made[nest.output] = cell.named("v", cell.value(nest.body, point, made))
                cell.store(one.results[-1], point, made[one.results[-1].output])
                inside = Condition(self._column(column) * count, "<", one.width)
                line += launch.guarded((inside,), cell.statements)
            there = launch.unknown((Condition(number, "<", row_axis.extent),))
            outer.statements += only_where(there, line)


def _verify_lanes(s: GroupChain, parts: ChainParts) -> None:
    """:class:`ScheduleError` unless factors are f32, and keys and columns are whole vectors."""
    factors = [f for p in parts.products for f in (p.left, p.right)]
    factors += [f for one in parts.sums for f in (one.kept, one.contraction.right)]
    if {k for f in factors for k in (f.dtype, f.value.dtype)} != {F32} or s.keys % s.lanes:
        raise ScheduleError("vectors are of f32, and of all keys of a block")
    for one in parts.sums:
        last, made = one.contraction.columns[-1], {TOTAL, *(n.output for n in one.results)}
        whole = isinstance(last.extent, int) and last.extent % s.lanes == 0
        if not whole or not all(
            vectorisable(nest.body, last.name, s.lanes, made) for nest in one.results
        ):
            raise ScheduleError("results are whole vectors")
