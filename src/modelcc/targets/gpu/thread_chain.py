"""Sums of rows of tiles that products make, by the threads' own arithmetic.

grid b, i; thread y, x
  left factors of the rows stay; totals = 0
  for each block of keys that some row sees
    right factors of the keys; barrier
    products of rows of y and keys of x, and the weights made of them, to shared memory; barrier
    totals += weights of the row * values of columns of x; barrier
  results: what is made of totals

Values that are a product's right factor, turned, are read from where that is.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from modelcc.schedule.group_schedule import GroupChain
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention_parts import TOTAL, within
from modelcc.targets.gpu.chain_parts import ChainParts, ChainSum, find_chain, rows_at, weights_at
from modelcc.targets.gpu.contraction import Contraction, KeptFactor
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.operand_tile import OperandTile, TileReader, multiplied


def lower_chain(kernel: GroupKernel, schedule: GroupChain) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no chain, or blocks do not divide
    among threads."""
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
    """What threads of a group do."""

    def __init__(self, kernel: GroupKernel, s: GroupChain, parts: ChainParts) -> None:
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
        self._weights = [
            Buffer(fresh("weights"), one.kept.value.dtype, s.rows * (s.keys + 1), "shared")
            for one in parts.sums
        ]
        self._rows = range(s.thread_rows)
        self._keys = range(s.keys // self._shape[1])
        self._totals: list[list[list[Var]]] = []
        self._places: list[tuple[Index, dict[str, Expr]]] = []

    def _tile(
        self, stem: str, operand: KeptFactor, along: tuple[LoopVar, ...],
        terms: tuple[LoopVar, ...], size: tuple[int, int],
    ) -> OperandTile:  # fmt: skip
        names, threads = self._kernel.names, self._s.threads
        return OperandTile(operand, along, terms, *size, threads, 1, 1, names, names.fresh(stem))

    def _of(self, one: ChainSum) -> OperandTile:
        """Values that no product has."""
        of: Contraction = one.contraction
        size = self._columns(one) * self._shape[1], self._s.keys
        return self._tile("values", of.right, of.columns, of.terms, size)

    def _columns(self, one: ChainSum) -> int:
        """Of a thread."""
        return -(-one.width // self._shape[1])

    @property
    def shared(self) -> list[Buffer]:
        """Memory of a group."""
        own = [tile for tile in self._values if tile is not None]
        return [*(t.buffer for t in (*self._left, *self._right, *own)), *self._weights]

    def function(self) -> Function:
        """Grid, threads, and what these do."""
        outer, s = self._outer, self._s
        for tile in self._left:
            self._fill(tile, self._start, 0, outer, self._launch.ranges)
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
        zero = Const(0, one.results[0].body.dtype)
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
        reader = TileReader(tile, thread, start, ranges, at, self._batch)
        reader.fetch(block, at, ranges)
        at.statements += reader.put(0)

    def _row(self, number: int) -> Index:
        """Where a thread's row is in its block."""
        return self._y + number * self._shape[0]

    def _column(self, number: int) -> Index:
        """Where a thread's key is in its block, or its column in the results."""
        return self._x + number * self._shape[1]

    def _step(self, ranges: Bounds) -> list[Stmt]:
        """What is done with a block of keys."""
        inner, block = self._outer.nested(), Sym(self._block)
        for tile in self._right:
            self._fill(tile, block * self._s.keys, 0, inner, ranges)
        for tile in self._values:
            if tile is not None:
                self._fill(tile, 0, block, inner, ranges)
        inner.statements.append(Barrier())
        products = [self._products(inner, n) for n in range(len(self._left))]
        self._weigh(inner, products, ranges)
        added = (self._add(number) for number in range(len(self._parts.sums)))
        return [*inner.statements, Barrier(), *added, Barrier()]

    def _products(self, inner: Evaluation, number: int) -> list[list[Var]]:
        """Those of a thread's rows and keys."""
        left, right = self._left[number], self._right[number]
        names, term = self._kernel.names, Sym(self._kernel.names.fresh("d"))
        zero = Const(0, left.operand.dtype)
        found = [[inner.register("product", zero) for _ in self._keys] for _ in self._rows]
        body = multiplied(
            names,
            [left.at(0, term, self._row(r), 1) for r in self._rows],
            [right.at(0, term, self._column(c), 1) for c in self._keys],
            found,
        )
        depth = self._parts.depths[number]
        inner.statements.append(For(term.name, 0, depth, tuple(body)))
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
                place = self._row(number) * (self._s.keys + 1) + self._column(column)
                for buffer, value in zip(self._weights, found, strict=True):
                    inner.statements.append(Store(buffer.name, place, value))

    def _add(self, number: int) -> Stmt:
        """Rows of weights times columns of values."""
        one, weights = self._parts.sums[number], self._weights[number]
        key, dtype = Sym(self._kernel.names.fresh("j")), one.kept.dtype
        pitch = self._s.keys + 1

        def weight(row: int) -> Expr:
            value = Load(weights.name, self._row(row) * pitch + key, weights.dtype)
            return value if value.dtype == dtype else Convert(value, dtype)

        columns = [self._value(number, key, c) for c in range(self._columns(one))]
        rows = [weight(r) for r in self._rows]
        body = multiplied(self._kernel.names, rows, columns, self._totals[number])
        return For(key.name, 0, self._s.keys, tuple(body))

    def _value(self, number: int, key: Index, column: int) -> Expr:
        one, own = self._parts.sums[number], self._values[number]
        if own is not None:
            return own.at(0, key, self._column(column), 1)
        assert one.shared is not None
        place = self._column(column)
        if (column + 1) * self._shape[1] > one.width:
            place = minimum(place, one.width - 1)  # beyond it are results of nobody
        return self._right[one.shared].at(0, place, key, 1)

    def _finish(self, one: ChainSum, totals: Sequence[Sequence[Var]]) -> None:
        """Totals become results."""
        outer, launch, row_axis = self._outer, self._launch, self._parts.chain.row
        columns = range(self._columns(one))
        places = [outer.place(one.contraction.columns, self._column(c)) for c in columns]
        for row in self._rows:
            number = self._start + self._row(row)
            line: list[Stmt] = []
            for column, at in enumerate(places):
                cell = outer.nested()
                made: dict[str, Expr] = {TOTAL: totals[row][column]}
                point = {**self._batch, row_axis.name: number, **at}
                for nest in one.results:
                    made[nest.output] = cell.named("v", cell.value(nest.body, point, made))
                cell.store(one.results[-1], point, made[one.results[-1].output])
                inside = Condition(self._column(column), "<", one.width)
                line += launch.guarded((inside,), cell.statements)
            there = launch.unknown((Condition(number, "<", row_axis.extent),))
            outer.statements += only_where(there, line)
