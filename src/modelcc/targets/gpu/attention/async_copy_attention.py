"""Attention by scalar arithmetic (FMA) with operands that are copied asynchronously: back-to-back
contractions, softmax(Q K^T) V and its like, block by block of keys.

grid b, i; thread y, x
  queries and the first block of keys are copied; totals = 0
  for each block of keys
    wait for its keys; barrier; its values are copied asynchronously
    scores of rows of y and keys of x, and their epilogue
    threads of a row exchange the running maximum; exponentials relative to it to shared memory
    totals and sums are rescaled to the new maximum
    wait for its values; barrier; the next block of keys is copied asynchronously
    totals += exponentials of the rows * values of the columns of x
  results: totals times what the sums give, and the epilogue

Terms (K) of queries and keys, and keys of exponentials, are contiguous in shared memory: a thread
loads four at once, of each of its rows and keys.  Row statistics (running maximum and sum) are as
in :mod:`modelcc.schedule.block_stages`; exponentials are powers of two, of scores that are scaled
then (:mod:`modelcc.targets.gpu.attention.score_scale`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from modelcc.ir.copies import CommitCopies, WaitCopies
from modelcc.ir.index import Bounds, Index, Range, Sym, ceildiv, floordiv, minimum
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Load,
    MulAdd,
    ScalarCall,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.types import F32
from modelcc.passes.tensor.online_softmax import seen_keys
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import GroupAttention
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.attention_grid import grid_of
from modelcc.targets.gpu.attention.attention_parts import (
    TOTAL,
    AttentionParts,
    binary_power,
    powers_under,
    shifted_score,
    store_of_rows,
    within,
)
from modelcc.targets.gpu.attention.score_scale import unscaled
from modelcc.targets.gpu.contraction import Contraction
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    only_where,
)
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.operand_tile import multiplied
from modelcc.targets.gpu.products.staged_tile import StagedTile, TileCopier
from modelcc.targets.gpu.products.warp_squares import in_a_row, interleaved, interleaves
from modelcc.targets.gpu.rows.reduction import is_power_of_two
from modelcc.targets.gpu.rows.team import combine_two, exchanged_by, neighbours

MARGIN = 16
"""Registers that ptxas may take beyond the estimate."""

LOW, ZERO = Const(float("-inf"), F32), Const(0.0, F32)


def verify_copied(s: GroupAttention, parts: AttentionParts) -> None:
    """:class:`ScheduleError` unless rows are a softmax of f32 sums, and blocks whole vectors."""
    across = s.threads // (s.rows // s.thread_rows)
    if s.keys % s.lanes or not is_power_of_two(across) or s.warp % across:
        raise ScheduleError("the threads of a row exchange registers, and keys are whole vectors")
    if s.interleaved and not has_squares(s):
        raise ScheduleError("threads that are interleaved are squares of two by two in warps of 32")
    first, second = parts.first, parts.second
    values = first.left, first.right, second.right
    made = parts.scores[-1].body, parts.weighted, parts.results[0].body
    kinds = {one.dtype for one in (*values, *(v.value for v in values), *made)}
    if kinds != {F32} or parts.shifted is None:
        raise ScheduleError("operands that are copied are f32, and weights powers of scores")


def has_squares(s: GroupAttention) -> bool:
    """Whether threads can be interleaved."""
    lines = s.rows // s.thread_rows
    across = s.threads // lines
    return interleaves(lines, across, across)


def _columns(s: GroupAttention, parts: AttentionParts) -> int:
    """Columns of a thread, in whole vectors."""
    across = s.threads // (s.rows // s.thread_rows)
    return -(-parts.width // (across * s.lanes)) * s.lanes


def copied_bytes(s: GroupAttention, parts: AttentionParts) -> int:
    """Most shared memory of a group: rows of queries, keys, values and exponentials, each padded by
    a vector."""
    across = s.threads // (s.rows // s.thread_rows)
    depth = -(-parts.depth // s.lanes) * s.lanes + s.lanes
    width = _columns(s, parts) * across + s.lanes
    return F32.bytes * ((s.rows + s.keys) * depth + s.keys * width + s.rows * (s.keys + s.lanes))


def copied_registers(s: GroupAttention, parts: AttentionParts, machine: GpuModel) -> int:
    """Registers a thread is expected to take: scores, totals, row statistics, and factors, which
    ptxas keeps as vectors where there is room."""
    keys = s.keys * s.rows // s.thread_rows // s.threads
    columns = _columns(s, parts)
    kept = s.thread_rows * (keys + columns + 2) + machine.address_registers
    factors = s.thread_rows + max(keys, columns)
    room = machine.thread_registers - MARGIN
    return kept + factors if kept + factors > room else min(kept + s.lanes * factors, room)


class AsyncCopyAttention:
    """Emits the work of a group's threads."""

    def __init__(self, kernel: GroupKernel, s: GroupAttention, parts: AttentionParts) -> None:
        verify_copied(s, parts)
        assert parts.shifted is not None
        self._kernel, self._s, self._parts = kernel, s, parts
        self._scored, self._scale = unscaled(parts.scores, parts.shifted)
        """Scores divided by the scale that the exponentials apply."""
        self._unmasked = parts.unmasked and unscaled(parts.unmasked, parts.shifted)[0]
        fresh, first = kernel.names.fresh, parts.first
        lines = s.rows // s.thread_rows
        self._shape = lines, s.threads // lines
        gb, gi = fresh("gb"), fresh("gi")
        causal = seen_keys(parts.pair, parts.weights) is not None
        rows = ceildiv(parts.pair.row.extent, s.rows)
        grid, head = grid_of(kernel, parts, (gb, gi), rows, causal)
        across = self._shape[1]
        if s.interleaved:
            threads = ((fresh("t"), s.threads),)
            self._thread: Index = Sym(threads[0][0])
            self._y, self._x = interleaved(self._thread, across, across)
            self._row_bits = in_a_row(across)
        else:
            threads = tuple(zip((fresh("ty"), fresh("tx")), self._shape, strict=True))
            self._y, self._x = (Sym(name) for name, _ in threads)
            self._thread = self._y * across + self._x
            self._row_bits = neighbours(across)
        self._launch = Launching(grid, threads, kernel.dims)
        self._start = (rows - 1 - Sym(gi) if causal else Sym(gi)) * s.rows
        self._outer = Evaluation(kernel.names)
        self._batch = self._outer.place(first.batch, head) if first.batch else {}
        self._depth = -(-parts.depth // s.lanes) * s.lanes
        self._lanes = s.lanes if self._fits_lanes() else 1
        columns = -(-parts.width // (self._shape[1] * self._lanes))
        self._rows, self._columns = range(s.thread_rows), range(columns)
        self._keys_each = range(s.keys // self._shape[1])
        self._queries = self._tile("queries", first, s.rows, self._depth, left=True)
        self._keys = self._tile("keys", first, s.keys, self._depth)
        width = columns * self._shape[1] * self._lanes
        self._values = self._tile("values", parts.second, width, s.keys, terms=False)
        self._pitch = s.keys + s.lanes
        self._weights = Buffer(fresh("weights"), F32, s.rows * self._pitch, "shared")
        self._seen: list[Var] = []
        self._sums: list[Var] = []
        self._totals: list[list[Var]] = []

    def _tile(
        self, stem: str, of: Contraction, size: int, depth: int, left: bool = False,
        terms: bool = True,
    ) -> StagedTile:  # fmt: skip
        operand, along = (of.left, of.rows) if left else (of.right, of.columns)
        names, s = self._kernel.names, self._s
        return StagedTile(
            operand, along, of.terms, size, depth, s.threads, s.lanes, 1, names, names.fresh(stem),
            terms, apart=True,
        )  # fmt: skip

    def _fits_lanes(self) -> bool:
        """Whether vectors of a thread's columns can be stored as results."""
        results, last = self._parts.results, self._parts.second.columns[-1]
        made = {TOTAL, *(n.output for n in (*self._parts.sums, *results))}
        whole = isinstance(last.extent, int) and last.extent % self._s.lanes == 0
        return whole and all(vectorisable(n.body, last.name, self._s.lanes, made) for n in results)

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, s, parts = self._outer, self._s, self._parts
        count = outer.bind("blocks", parts.blocks(self._batch, self._start, s.rows, s.keys))
        self._begin(self._queries, self._start, 0, outer, self._launch.ranges)
        self._begin(self._keys, 0, 0, outer, self._launch.ranges)
        outer.statements.append(CommitCopies())
        self._seen = [outer.register("seen", LOW) for _ in self._rows]
        self._sums = [outer.register("sum", ZERO) for _ in self._rows]
        zero = widen(ZERO, self._lanes)
        self._totals = [[outer.register("total", zero) for _ in self._columns] for _ in self._rows]
        extent = parts.pair.key.extent
        ranges = {**self._launch.ranges, **_at_most(count, ceildiv(extent, s.keys))}
        first = self._open_blocks(count)
        if first != 0:
            open_ranges = {**ranges, **_at_most(first, floordiv(extent, s.keys))}
            self._blocks(0, first, count, open_ranges, self._unmasked or self._scored)
        if first != count:
            self._blocks(first, count, count, ranges, self._scored)
        self._finish()
        tiles = (self._queries, self._keys, self._values)
        shared = [Alloc(b) for b in (*(tile.buffer for tile in tiles), self._weights)]
        return self._kernel.function(self._launch.around(shared, outer.statements))

    def _open_blocks(self, count: Index) -> Index:
        """How many of ``count`` blocks come first all of whose keys are in range and visible to all
        rows; 0 if that is not known."""
        extent, keys = self._parts.pair.key.extent, self._s.keys
        if self._unmasked is not None:
            seen = self._parts.open_blocks(self._batch, self._start, keys)
            return self._outer.bind("open", minimum(seen, count))
        return floordiv(extent, keys) if isinstance(extent, int) else 0

    def _blocks(
        self, first: Index, end: Index, count: Index, ranges: Bounds, scores: Sequence[Nest]
    ) -> None:
        """The loop body for blocks of keys, of ``count`` in all."""
        inner, block = self._outer.nested(), Sym(self._kernel.names.fresh("kb"))
        within_blocks = {**ranges, block.name: Range(first, end - 1)}
        inner.statements += [WaitCopies(0), Barrier()]
        self._begin(self._values, 0, block, inner, within_blocks)
        inner.statements.append(CommitCopies())
        products = self._products(inner)
        self._weigh(inner, self._shifted(inner, block, within_blocks, scores, products))
        inner.statements += [WaitCopies(0), Barrier()]
        ahead, there = self._outer.nested(), {**ranges, block.name: Range(first, count - 2)}
        self._begin(self._keys, (block + 1) * self._s.keys, 0, ahead, there)
        inner.statements += only_where((Condition(block + 1, "<", count),), ahead.statements)
        inner.statements += [CommitCopies(), self._add()]
        self._outer.statements.append(For(block.name, first, end, tuple(inner.statements)))

    def _begin(
        self, tile: StagedTile, start: Index, block: Index, at: Evaluation, ranges: Bounds
    ) -> None:
        """Starts the copies of a tile; elements that cannot be copied are stored there."""
        copier = TileCopier(tile, self._thread, start, ranges, at, self._batch)
        copier.begin(0, block, at, ranges)
        at.statements += copier.put(0)

    # --- a thread's own elements

    def _row(self, number: int) -> Index:
        """A thread's row within its block."""
        return self._y + number * self._shape[0]

    def _key(self, number: int) -> Index:
        """A thread's key within its block."""
        return self._x + number * self._shape[1]

    def _column(self, number: int) -> Index:
        """The first column of a thread's vector."""
        return self._key(number) * self._lanes

    # --- products

    def _products(self, at: Evaluation) -> list[list[Var]]:
        """Scores of a thread's rows and keys, before their epilogue."""
        s, term = self._s, Sym(self._kernel.names.fresh("d"))
        found = [[at.register("score", ZERO) for _ in self._keys_each] for _ in self._rows]
        body: list[Stmt] = []
        for lane in range(s.lanes):
            place = term * s.lanes + lane
            queries = [self._queries.at(0, place, self._row(r), 1) for r in self._rows]
            keys = [self._keys.at(0, place, self._key(c), 1) for c in self._keys_each]
            body += multiplied(self._kernel.names, queries, keys, found)
        at.statements.append(For(term.name, 0, self._depth // s.lanes, tuple(body)))
        return found

    def _add(self) -> Stmt:
        """Rows of exponentials times columns of values."""
        s, vector = self._s, Sym(self._kernel.names.fresh("j"))
        body: list[Stmt] = []
        for lane in range(s.lanes):
            key = vector * s.lanes + lane
            rows = [Load(self._weights.name, self._weight(r, key), F32) for r in self._rows]
            columns = [self._values.at(0, key, self._column(c), self._lanes) for c in self._columns]
            body += multiplied(self._kernel.names, rows, columns, self._totals)
        return For(vector.name, 0, s.keys // s.lanes, tuple(body))

    def _weight(self, row: int, key: Index) -> Index:
        """The index of an exponential in shared memory."""
        return self._row(row) * self._pitch + key

    # --- weights

    def _shifted(
        self, at: Evaluation, block: Index, ranges: Bounds, scores: Sequence[Nest],
        products: Sequence[Sequence[Var]],
    ) -> list[list[Expr]]:  # fmt: skip
        """The exponents, at a thread's rows and keys."""
        parts, pair = self._parts, self._parts.pair
        rows = [within(at, self._start + self._row(r), pair.row, ranges)[0] for r in self._rows]
        keys = [
            within(at, block * self._s.keys + self._key(c), pair.key, ranges)
            for c in self._keys_each
        ]
        found: list[list[Expr]] = []
        for row, line in zip(rows, products, strict=True):
            values: list[Expr] = []
            for (key, there), product in zip(keys, line, strict=True):
                point = {**self._batch, pair.row.name: row, pair.key.name: key}
                values.append(shifted_score(at, parts, scores, point, product, there))
            found.append(values)
        return found

    def _weigh(self, at: Evaluation, shifted: Sequence[Sequence[Expr]]) -> None:
        """Exponentials relative to the running maximum; sums so far are rescaled."""
        for row, values in enumerate(shifted):
            seen, total = self._seen[row], self._sums[row]
            own = reduce(lambda a, b: combine_two("max", (a, b)), values, seen)
            top = exchanged_by(at, "max", own, self._row_bits)
            power = binary_power(self._scale)
            change, powers = powers_under(at, top, seen, values, power)
            whole = reduce(lambda a, b: combine_two("sum", (a, b)), powers)
            at.statements += [
                Assign(total.name, MulAdd(total, change, whole)),
                Assign(seen.name, top),
            ]
            self._scale_totals(at, row, change)
            self._keep(at, row, powers)

    def _scale_totals(self, at: Evaluation, row: int, change: Expr) -> None:
        for total in self._totals[row]:
            factors = total, widen(change, total.lanes)
            at.statements.append(Assign(total.name, ScalarCall("mul", factors, F32, total.lanes)))

    def _keep(self, at: Evaluation, row: int, powers: Sequence[Expr]) -> None:
        """Factors made of exponentials, to shared memory for all threads of a row."""
        for column, power in enumerate(powers):
            weight = at.value(self._parts.weighted, {}, {self._parts.pair.weight: power})
            place = self._weight(row, self._key(column))
            at.statements.append(Store(self._weights.name, place, weight))

    # --- results

    def _finish(self) -> None:
        """Totals, and the sums of all threads of a row, become results."""
        outer, parts, launch = self._outer, self._parts, self._launch
        columns = parts.second.columns
        for row in self._rows:
            whole = exchanged_by(outer, "sum", self._sums[row], self._row_bits)
            number = self._start + self._row(row)
            line: list[Stmt] = []
            for column in self._columns:
                lanes = Lanes(self._kernel.names.fresh("c"), self._lanes)
                cell = outer.nested(lanes if self._lanes > 1 else None)
                at = cell.place_lanes(columns, self._key(column))
                total = self._totals[row][column]
                made: dict[str, Expr] = {n.output: widen(whole, total.lanes) for n in parts.sums}
                self._result(cell, {**self._batch, parts.pair.row.name: number, **at}, {
                    **made, TOTAL: total
                })  # fmt: skip
                inside = Condition(self._column(column), "<", parts.width)
                line += launch.guarded((inside,), cell.statements)
            if parts.of_rows:
                cell, point = outer.nested(), {**self._batch, parts.pair.row.name: number}
                top = ScalarCall("mul", (self._seen[row], Const(self._scale, F32)), F32)
                store_of_rows(cell, parts, point, top, {n.output: whole for n in parts.sums})
                line += only_where((Condition(self._x, "==", 0),), cell.statements)
            there = launch.unknown((Condition(number, "<", parts.pair.row.extent),))
            outer.statements += only_where(there, line)

    def _result(self, cell: Evaluation, point: Point, made: dict[str, Expr]) -> None:
        """Results at a point, or at a vector of points; adds intermediate values to ``made``."""
        for nest in self._parts.results:
            made[nest.output] = cell.named("v", cell.value(nest.body, point, made))
        last = self._parts.results[-1]
        cell.store(last, point, made[last.output])


def _at_most(count: Index, most: Index) -> Bounds:
    """The range of a named number: at most ``most``."""
    return {count.name: Range(0, most)} if isinstance(count, Sym) else {}
