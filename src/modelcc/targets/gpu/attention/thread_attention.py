"""Attention: back-to-back contractions, softmax(Q K^T) V and its like, block by block of keys.

grid b, i; thread y, x
  queries[d, row] stay; totals = 0, seen = -max
  for each block of keys
    keys[d, key], values[key, column]; barrier
    scores of rows of y and keys of x, and their epilogue; the maximum of each row
    part[row, x] = that; barrier
    seen = the maximum over threads; exponentials = exp(score - seen) to shared memory
    totals and sums times exp(previous seen - seen); barrier
    totals += exponentials of the row * values of columns of x; barrier
  results: totals times what the sums give, and the epilogue

Row statistics (running maximum and sum) are as in :mod:`modelcc.schedule.block_stages`; each thread
of a row has its maximum, and a partial sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from modelcc.ir.index import (
    Bounds,
    Index,
    Sym,
    ceildiv,
    loop_range,
)
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    Buffer,
    Const,
    Convert,
    Expr,
    For,
    Function,
    Load,
    MulAdd,
    Predicate,
    ScalarCall,
    Select,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.scalar import Combine
from modelcc.ir.tensor import Condition
from modelcc.ir.types import F32, DType
from modelcc.schedule.expression import accumulate
from modelcc.schedule.group_schedule import GroupAttention
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.async_copy_attention import AsyncCopyAttention
from modelcc.targets.gpu.attention.attention_parts import (
    TOTAL,
    AttentionParts,
    find_attention,
    powers_under,
    store_of_rows,
    within,
)
from modelcc.targets.gpu.contraction import Contraction
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.products.operand_tile import OperandTile, TileReader, multiplied
from modelcc.targets.gpu.rows.team import combine_two


def lower_attention(kernel: GroupKernel, schedule: GroupAttention) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no such pair of contractions, or
    threads do not divide blocks evenly."""
    s = schedule
    if min(s.rows, s.keys, s.threads, s.thread_rows) < 1 or s.rows % s.thread_rows:
        raise ScheduleError("blocks have rows, of which a thread has some, and keys")
    lines = s.rows // s.thread_rows
    if s.threads % lines or s.keys % (s.threads // lines):
        raise ScheduleError("the rows of a block divide among threads, and its keys do")
    if kernel.checks:
        raise ScheduleError("indices of blocks are known to be in their bounds")
    copied = s.lanes > 1
    return (AsyncCopyAttention if copied else _AttentionThreads)(
        kernel, s, find_attention(kernel)
    ).function()


class _AttentionThreads:
    def __init__(self, kernel: GroupKernel, s: GroupAttention, parts: AttentionParts) -> None:
        self._kernel, self._s, self._parts = kernel, s, parts
        fresh, pair = kernel.names.fresh, parts.pair
        lines = s.rows // s.thread_rows
        self._shape = lines, s.threads // lines
        gb, gi, y, x = fresh("gb"), fresh("gi"), fresh("ty"), fresh("tx")
        outer = extent_of(parts.first.batch)
        grid = ((gb, outer), (gi, ceildiv(pair.row.extent, s.rows)))
        self._launch = Launching(grid, tuple(zip((y, x), self._shape, strict=True)), kernel.dims)
        self._y, self._x, self._start = Sym(y), Sym(x), Sym(gi) * s.rows
        self._outer = Evaluation(kernel.names)
        self._batch = self._outer.place(parts.first.batch, Sym(gb)) if parts.first.batch else {}
        self._block_number = fresh("kb")
        self._queries = self._tile("queries", parts.first, s.rows, parts.depth, left=True)
        self._keys = self._tile("keys", parts.first, s.keys, parts.depth)
        columns = -(-parts.width // self._shape[1])
        self._values = self._tile("values", parts.second, columns * self._shape[1], s.keys)
        dtype = parts.scores[-1].body.dtype
        self._weights = Buffer(fresh("weights"), dtype, s.rows * (s.keys + 1), "shared")
        self._shared = [self._weights]
        self._rows = range(s.thread_rows)
        self._columns = range(columns)
        self._seen: list[Var] = []
        self._sums: dict[str, list[Var]] = {}
        self._totals: list[list[Var]] = []

    def _tile(
        self, stem: str, of: Contraction, size: int, depth: int, left: bool = False
    ) -> OperandTile:
        operand, along = (of.left, of.rows) if left else (of.right, of.columns)
        names = self._kernel.names
        return OperandTile(
            operand, along, of.terms, size, depth, self._s.threads, 1, 1, names, names.fresh(stem)
        )

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, weights = self._outer, self._parts.weights
        self._fill(self._queries, self._start, 0, outer, self._launch.ranges)
        if weights.maximum is not None:
            least = Const(float("-inf"), weights.maximum.body.dtype)
            self._seen = [outer.register("seen", least) for _ in self._rows]
        self._sums = {
            stage.output: [outer.register("sum", Const(0, stage.body.dtype)) for _ in self._rows]
            for stage in weights.sums
        }
        zero = Const(0, self._parts.results[0].body.dtype)
        self._totals = [[outer.register("total", zero) for _ in self._columns] for _ in self._rows]
        blocks = self._parts.blocks(self._batch, self._start, self._s.rows, self._s.keys)
        ranges = {**self._launch.ranges, self._block_number: loop_range(blocks)}
        outer.statements.append(For(self._block_number, 0, blocks, tuple(self._block(ranges))))
        self._finish()
        tiles = self._queries, self._keys, self._values
        buffers = [*(tile.buffer for tile in tiles), *self._shared]
        return self._kernel.function(
            self._launch.around([Alloc(b) for b in buffers], outer.statements)
        )

    def _fill(
        self, tile: OperandTile, start: Index, block: Index, at: Evaluation, ranges: Bounds
    ) -> None:
        thread = self._y * self._shape[1] + self._x
        reader = TileReader(tile, thread, start, ranges, at, self._batch)
        reader.fetch(block, at, ranges)
        at.statements += reader.put(0)

    def _row(self, number: int) -> Index:
        """A thread's row within its block."""
        return self._y + number * self._shape[0]

    def _column(self, number: int) -> Index:
        """A thread's key within its block, or its column of the results."""
        return self._x + number * self._shape[1]

    def _weight(self, row: int, key: Index) -> Index:
        """The index of a weight in shared memory; rows begin in different banks."""
        return self._row(row) * (self._s.keys + 1) + key

    def _block(self, ranges: Bounds) -> list[Stmt]:
        """The loop body for a block of keys."""
        inner, key = self._outer.nested(), Sym(self._block_number) * self._s.keys
        self._fill(self._keys, key, 0, inner, ranges)
        self._fill(self._values, 0, Sym(self._block_number), inner, ranges)
        inner.statements.append(Barrier())
        products, places = self._products(inner), self._places(inner, ranges)
        if self._parts.shifted is not None:
            self._raise(inner, places, products)
        else:
            self._plain(inner, places, products)
        return [*inner.statements, Barrier(), self._add(), Barrier()]

    def _products(self, inner: Evaluation) -> list[list[Var]]:
        """Scores of a thread's rows and keys, before their epilogue."""
        s, names, term = self._s, self._kernel.names, Sym(self._kernel.names.fresh("d"))
        zero = inner.neutral(self._parts.scores[0])
        found = [
            [inner.register("score", zero) for _ in range(s.keys // self._shape[1])]
            for _ in self._rows
        ]
        body = multiplied(
            names,
            [self._queries.at(0, term, self._row(r), 1) for r in self._rows],
            [self._keys.at(0, term, self._column(c), 1) for c in range(len(found[0]))],
            found,
        )
        inner.statements.append(For(term.name, 0, self._parts.depth, tuple(body)))
        return found

    def _places(self, inner: Evaluation, ranges: Bounds) -> list[_ScorePlace]:
        """The points of a thread's scores, row by row."""
        pair, s = self._parts.pair, self._s
        rows = [self._start + self._row(r) for r in self._rows]
        first = Sym(self._block_number) * s.keys
        keys = [first + self._column(c) for c in range(s.keys // self._shape[1])]

        at_rows = [within(inner, row, pair.row, ranges)[0] for row in rows]
        at_keys = [within(inner, key, pair.key, ranges) for key in keys]
        return [
            _ScorePlace(
                number, column, {**self._batch, pair.row.name: row, pair.key.name: key}, there
            )
            for number, row in enumerate(at_rows)
            for column, (key, there) in enumerate(at_keys)
        ]

    def _made(
        self, inner: Evaluation, place: _ScorePlace, products: list[list[Var]]
    ) -> dict[str, Expr]:
        """The epilogue of a score, element by element."""
        first, *rest = self._parts.scores
        made: dict[str, Expr] = {first.output: products[place.row][place.column]}
        for nest in rest:
            made[nest.output] = inner.named("v", inner.value(nest.body, place.point, made))
        return made

    def _raise(
        self, inner: Evaluation, places: list[_ScorePlace], products: list[list[Var]]
    ) -> None:
        """Exponentials relative to the running maximum; sums so far are rescaled."""
        shifted = self._parts.shifted
        assert shifted is not None
        found: dict[int, list[tuple[_ScorePlace, Expr]]] = {r: [] for r in self._rows}
        for place in places:
            made = self._made(inner, place, products)
            value = inner.value(shifted, place.point, made)
            least = Const(float("-inf"), value.dtype)
            value = Select(Predicate(place.there), value, least) if place.there else value
            found[place.row].append((place, inner.named("x", value)))
        tops = self._largest(inner, [[x for _, x in found[row]] for row in self._rows])
        for row, top in enumerate(tops):
            self._rescale(inner, row, top, found[row])

    def _largest(self, inner: Evaluation, found: list[list[Expr]]) -> list[Var]:
        """The maximum of each row so far and of ``found``, over all threads of the row."""
        dtype = found[0][0].dtype
        part = Buffer(
            self._kernel.names.fresh("part"), dtype, self._s.rows * self._shape[1], "shared"
        )
        self._shared.append(part)
        for row, values in enumerate(found):
            own = reduce(lambda a, b: combine_two("max", (a, b)), values)
            place = self._row(row) * self._shape[1] + self._x
            inner.statements.append(Store(part.name, place, own))
        inner.statements.append(Barrier())
        return [self._over_threads(inner, "max", part, row, self._seen[row]) for row in self._rows]

    def _over_threads(
        self, at: Evaluation, combine: Combine, part: Buffer, row: int, start: Expr
    ) -> Var:
        """The elements of ``part`` of all threads of a row, combined from ``start`` on."""
        total, number = at.register("all", start), self._kernel.names.fresh("x")
        place = self._row(row) * self._shape[1] + Sym(number)
        step = accumulate(combine, total.name, Load(part.name, place, part.dtype), 1)
        at.statements.append(For(number, 0, self._shape[1], (step,)))
        return total

    def _rescale(
        self, inner: Evaluation, row: int, top: Var, found: list[tuple[_ScorePlace, Expr]]
    ) -> None:
        seen = self._seen[row]
        change, powers = powers_under(inner, top, seen, [value for _, value in found])
        for (place, _), power in zip(found, powers, strict=True):
            self._keep(inner, place, power)
        whole = reduce(lambda a, b: combine_two("sum", (a, b)), powers)
        for sums in self._sums.values():
            more = MulAdd(sums[row], change, whole)
            inner.statements.append(Assign(sums[row].name, more))
        for total in self._totals[row]:
            scaled = ScalarCall("mul", (total, _as(change, total.dtype)), total.dtype)
            inner.statements.append(Assign(total.name, scaled))
        inner.statements.append(Assign(seen.name, top))

    def _keep(self, inner: Evaluation, place: _ScorePlace, weight: Expr) -> None:
        offset = self._weight(place.row, self._column(place.column))
        inner.statements.append(Store(self._weights.name, offset, weight))

    def _plain(
        self, inner: Evaluation, places: list[_ScorePlace], products: list[list[Var]]
    ) -> None:
        """Weights that depend on their own score only."""
        for place in places:
            made = self._made(inner, place, products)
            power = self._there(place, inner.value(self._parts.power, place.point, made))
            self._keep(inner, place, inner.named("power", power))
            for nest in self._parts.sums:
                term = self._there(place, inner.value(nest.body, place.point, made))
                register = self._sums[nest.output][place.row]
                inner.statements.append(accumulate("sum", register.name, term, 1))

    def _there(self, place: _ScorePlace, value: Expr) -> Expr:
        zero = Const(0, value.dtype)
        return Select(Predicate(place.there), value, zero) if place.there else value

    def _add(self) -> Stmt:
        """Rows of weights times columns of values."""
        names, parts = self._kernel.names, self._parts
        key, dtype = Sym(names.fresh("j")), self._weights.dtype
        inner = self._outer.nested()
        rows = [
            inner.value(
                parts.weighted,
                {},
                {parts.pair.weight: Load(self._weights.name, self._weight(r, key), dtype)},
            )
            for r in self._rows
        ]
        columns = [self._values.at(0, key, self._column(c), 1) for c in self._columns]
        body = (*inner.statements, *multiplied(names, rows, columns, self._totals))
        return For(key.name, 0, self._s.keys, body)

    def _finish(self) -> None:
        """Totals, and the sums of all threads of a row, become results."""
        outer, parts, launch = self._outer, self._parts, self._launch
        whole = self._whole_sums()
        pair, columns = parts.pair, parts.second.columns
        at_columns = [outer.place(columns, self._column(c)) for c in self._columns]
        for row in self._rows:
            number = self._start + self._row(row)
            there = launch.unknown((Condition(number, "<", pair.row.extent),))
            line: list[Stmt] = []
            for column, at in enumerate(at_columns):
                cell = outer.nested()
                made = {TOTAL: self._totals[row][column], **{n: w[row] for n, w in whole.items()}}
                point = {**self._batch, pair.row.name: number, **at}
                for nest in parts.results:
                    made[nest.output] = cell.named("v", cell.value(nest.body, point, made))
                cell.store(parts.results[-1], point, made[parts.results[-1].output])
                inside = Condition(self._column(column), "<", parts.width)
                line += launch.guarded((inside,), cell.statements)
            if parts.of_rows:
                cell = outer.nested()
                point = {**self._batch, pair.row.name: number}
                sums = {n: w[row] for n, w in whole.items()}
                store_of_rows(cell, parts, point, self._top(row), sums)
                line += only_where((Condition(self._x, "==", 0),), cell.statements)
            outer.statements += only_where(there, line)

    def _top(self, row: int) -> Expr:
        """The maximum of a row, if it is known."""
        return self._seen[row] if self._seen else Const(float("-inf"), F32)

    def _whole_sums(self) -> dict[str, list[Expr]]:
        outer, found = self._outer, dict[str, list[Expr]]()
        parts: dict[str, Buffer] = {}
        for name, sums in self._sums.items():
            size, stem = self._s.rows * self._shape[1], self._kernel.names.fresh("parts")
            parts[name] = Buffer(stem, sums[0].dtype, size, "shared")
            self._shared.append(parts[name])
            for row, own in enumerate(sums):
                place = self._row(row) * self._shape[1] + self._x
                outer.statements.append(Store(stem, place, own))
        if parts:
            outer.statements.append(Barrier())
        for name, part in parts.items():
            zero = Const(0, part.dtype)
            found[name] = [self._over_threads(outer, "sum", part, r, zero) for r in self._rows]
        return found


@dataclass(frozen=True)
class _ScorePlace:
    """A score of a thread's ``row`` and ``column``: its point, and whether it is ``there``."""

    row: int
    column: int
    point: Point
    there: tuple[Condition, ...]


def _as(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype == dtype else Convert(value, dtype)
