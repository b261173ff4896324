"""Attention on tensor cores by fragments (back-to-back contractions).

grid b, i; thread w (16 rows each), l (lanes)
  queries to fragments, once; totals = 0
  for each block of keys, while the next one is copied
    scores = queries * keys, to shared memory; barrier
    two lanes of each row: the epilogue of scores, the running maximum, exponentials relative to it,
    to shared memory as sums of two halves; barrier
    totals * rescaling factor + exponentials * values
  totals and sums to shared memory; barrier; results

Row statistics are as in :mod:`modelcc.targets.gpu.attention.thread_attention`.  An exponential is
the sum of two numbers of the operands' type, which hold 16 (bf16) or 22 of its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from modelcc.ir.argument import Argument
from modelcc.ir.copies import CommitCopies, WaitCopies
from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    ceildiv,
    floordiv,
    loop_range,
    mod,
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
    RoutineCall,
    ScalarCall,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.types import F32
from modelcc.schedule.group_schedule import TensorAttention
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.attention_parts import (
    TOTAL,
    AttentionParts,
    all_fragments,
    find_attention,
    powers_under,
    shifted_score,
    store_of_rows,
    verify_halves,
    within,
)
from modelcc.targets.gpu.contraction import Contraction
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.products.staged_tile import StagedTile, TileCopier, has_rows_of_terms
from modelcc.targets.gpu.rows.team import combine_two, exchanged
from modelcc.targets.isa.fragments import (
    SIDE,
    clear_c,
    load_a,
    load_b,
    multiply,
    scale_c,
    store_c,
)

WARP = 32
LANES = WARP // SIDE
"""Lanes of a row."""

PAD = 8
"""Elements by which rows of 16-bit numbers are padded, so that they begin in different banks."""


def lower_tensor_attention(kernel: GroupKernel, schedule: TensorAttention) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no softmax of products in f16 or
    bf16 whose operands are copied unchanged."""
    if kernel.checks:
        raise ScheduleError("indices of blocks are known to be in their bounds")
    s = schedule
    if min(s.rows, s.keys) < SIDE or s.rows % SIDE or s.keys % SIDE:
        raise ScheduleError(f"warps have {SIDE} rows, and blocks as many keys")
    return WarpAttention(kernel, s, find_attention(kernel)).function()


class WarpAttention:
    """Emits the work of a group's threads; :class:`ScheduleError` if operands are no whole
    fragments of one type, or not copied unchanged."""

    def __init__(self, kernel: GroupKernel, s: TensorAttention, parts: AttentionParts) -> None:
        verify_halves(parts)
        self._kernel, self._s, self._parts = kernel, s, parts
        fresh = self._fresh = kernel.names.fresh
        gb, gi, w, lane = fresh("gb"), fresh("gi"), fresh("w"), fresh("t")
        pair = parts.pair
        grid = ((gb, extent_of(parts.first.batch)), (gi, ceildiv(pair.row.extent, s.rows)))
        self._launch = Launching(grid, ((w, s.rows // SIDE), (lane, WARP)), kernel.dims)
        self._first, self._lane = Sym(w) * SIDE, Sym(lane)
        self._thread = Sym(w) * WARP + Sym(lane)
        self._start = Sym(gi) * s.rows
        self._outer = Evaluation(kernel.names)
        self._batch = self._outer.place(parts.first.batch, Sym(gb)) if parts.first.batch else {}
        self._block = fresh("kb")
        self._dtype = parts.first.left.value.dtype
        self._queries = self._tile("queries", parts.first, s.rows, parts.depth, 1, left=True)
        self._keys = self._tile("keys", parts.first, s.keys, parts.depth, 2)
        self._values = self._tile("values", parts.second, parts.width, s.keys, 2)
        if self._keys.copied is None or self._values.copied is None:
            raise ScheduleError("keys and values are read as they are")
        terms, width, keys = parts.depth // SIDE, parts.width // SIDE, s.keys // SIDE
        self._shape = terms, keys, width
        square = SIDE * SIDE
        self._fq = Buffer(fresh("fq"), self._dtype, terms * square, "warp")
        self._fp = Buffer(fresh("fp"), self._dtype, 2 * square, "warp")
        self._fb = Buffer(fresh("fb"), self._dtype, square, "warp")
        self._fs = Buffer(fresh("fs"), F32, keys * square, "warp")
        self._fo = Buffer(fresh("fo"), F32, width * square, "warp")
        self._pitch = s.keys + 2, s.keys + PAD, parts.width + PAD
        slab = s.rows * max(self._pitch[0], self._pitch[2])
        self._slab = Buffer(fresh("slab"), F32, slab, "shared")
        self._powers = [
            Buffer(fresh("powers"), self._dtype, s.rows * self._pitch[1], "shared") for _ in (0, 1)
        ]
        self._factors = Buffer(fresh("factors"), F32, s.rows, "shared")
        self._of_rows = {n.output: Buffer(fresh("sums"), F32, s.rows, "shared") for n in parts.sums}
        self._seen = Var("", F32)
        self._sums: dict[str, Var] = {}
        self._wholes: dict[str, Expr] = {}

    def _tile(
        self, stem: str, of: Contraction, size: int, depth: int, buffers: int, left: bool = False
    ) -> StagedTile:
        operand, along = (of.left, of.rows) if left else (of.right, of.columns)
        names = self._kernel.names
        return StagedTile(
            operand, along, of.terms, size, depth, self._s.threads, 8, buffers, names,
            names.fresh(stem), has_rows_of_terms(operand),
        )  # fmt: skip

    @property
    def shared(self) -> tuple[Buffer, ...]:
        """Shared memory of a group."""
        tiles = (t.buffer for t in (self._queries, self._keys, self._values))
        return (*tiles, self._slab, *self._powers, self._factors, *self._of_rows.values())

    @property
    def registers(self) -> int:
        """Registers a thread is expected to take: fragments, scores and exponentials, addresses."""
        terms, keys, width = self._shape
        return 4 * terms + 8 * (keys + width) + self._s.keys // LANES + 60

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, ranges = self._outer, self._launch.ranges
        fragments = (self._fq, self._fp, self._fb, self._fs, self._fo)
        outer.statements += [Alloc(b) for b in fragments]
        e, every = self._loop("e", self._shape[2])
        clear = RoutineCall(clear_c(F32), (Argument(self._fo.name, e * SIDE * SIDE),))
        outer.statements.append(every(clear))
        queries = self._copier(self._queries, self._start, outer, ranges)
        queries.begin(0, 0, outer, ranges)
        outer.statements += queries.put(0)
        blocks = self._parts.blocks(self._batch, self._start, self._s.rows, self._s.keys)
        self._copy(0, 0, outer, ranges)
        outer.statements += [CommitCopies(), WaitCopies(0), Barrier()]
        outer.statements.append(self._put_queries())
        self._seen = outer.register("seen", Const(float("-inf"), F32))
        zero = Const(0, F32)
        self._sums = {n.output: outer.register("sum", zero) for n in self._parts.sums}
        ranges = {**ranges, self._block: loop_range(blocks)}
        outer.statements.append(For(self._block, 0, blocks, tuple(self._one(ranges, blocks))))
        self._finish()
        return self._kernel.function(
            self._launch.around([Alloc(b) for b in self.shared], outer.statements)
        )

    # --- tiles

    def _copier(self, tile: StagedTile, start: Index, at: Evaluation, ranges: Bounds) -> TileCopier:
        return TileCopier(tile, self._thread, start, ranges, at, self._batch)

    def _copy(self, which: Index, block: Index, at: Evaluation, ranges: Bounds) -> None:
        """Starts the copies of a block of keys and values."""
        keys = self._copier(self._keys, block * self._s.keys, at, ranges)
        keys.begin(which, 0, at, ranges)
        self._copier(self._values, 0, at, ranges).begin(which, block, at, ranges)

    def _one(self, ranges: Bounds, blocks: Index) -> list[Stmt]:
        """The loop body for a block of keys, while the next one is copied."""
        inner, block, ahead = self._outer.nested(), Sym(self._block), self._outer.nested()
        now, after = inner.bind("now", mod(block, 2)), inner.bind("next", mod(block + 1, 2))
        self._copy(after, block + 1, ahead, {**ranges, self._block: Range(0, blocks - 2)})
        inner.statements += [WaitCopies(0), Barrier()]
        inner.statements += only_where((Condition(block + 1, "<", blocks),), ahead.statements)
        inner.statements += [CommitCopies(), *self._scores(now), Barrier()]
        self._weigh(inner, ranges)
        inner.statements += [Barrier(), *self._add(now)]
        return inner.statements

    # --- fragments

    def _loop(self, stem: str, count: int) -> tuple[Sym, Callable[..., For]]:
        return all_fragments(self._kernel.names, stem, count)

    def _put_queries(self) -> Stmt:
        tile, (d, every) = self._queries, self._loop("d", self._shape[0])
        at = tile.offset(0, d * SIDE, self._first)
        load = load_a(self._dtype, not tile.rows_of_terms)
        to = Argument(self._fq.name, d * SIDE * SIDE)
        return every(RoutineCall(load, (to, Argument(tile.name, at)), (tile.pitch,)))

    def _scores(self, now: Index) -> list[Stmt]:
        """Queries of a warp times all keys, to shared memory."""
        tile, square = self._keys, SIDE * SIDE
        (d, all_terms), (j, all_keys) = (
            self._loop("d", self._shape[0]),
            self._loop("j", self._shape[1]),
        )
        score, b = Argument(self._fs.name, j * square), Argument(self._fb.name, 0)
        at = Argument(tile.name, tile.offset(now, d * SIDE, j * SIDE))
        load = RoutineCall(load_b(self._dtype, tile.rows_of_terms), (b, at), (tile.pitch,))
        query = Argument(self._fq.name, d * square)
        product = RoutineCall(multiply(self._dtype), (score, query, b))
        slab = Argument(self._slab.name, self._first * self._pitch[0] + j * SIDE)
        store = RoutineCall(store_c(F32, F32), (slab, score), (self._pitch[0],))
        return [
            all_keys(RoutineCall(clear_c(F32), (score,))),
            all_terms(all_keys(load, product)),
            all_keys(store),
        ]

    def _add(self, now: Index) -> list[Stmt]:
        """Totals are rescaled, and exponentials times values added."""
        tile, square, pitch = self._values, SIDE * SIDE, self._pitch[1]
        (k, all_keys), (e, all_columns) = (
            self._loop("k", self._shape[1]),
            self._loop("e", self._shape[2]),
        )
        total, b = Argument(self._fo.name, e * square), Argument(self._fb.name, 0)
        factors = Argument(self._factors.name, self._first)
        parts = [Argument(self._fp.name, n * square) for n in (0, 1)]
        at = self._first * pitch + k * SIDE
        loads = [
            RoutineCall(load_a(self._dtype), (part, Argument(powers.name, at)), (pitch,))
            for part, powers in zip(parts, self._powers, strict=True)
        ]
        value = Argument(tile.name, tile.offset(now, k * SIDE, e * SIDE))
        load = RoutineCall(load_b(self._dtype, tile.rows_of_terms), (b, value), (tile.pitch,))
        products = [RoutineCall(multiply(self._dtype), (total, part, b)) for part in parts]
        return [
            all_columns(RoutineCall(scale_c(), (total, factors))),
            all_keys(*loads, all_columns(load, *products)),
        ]

    # --- weights

    @property
    def _row(self) -> Index:
        """The row of a lane in its block."""
        return self._first + floordiv(self._lane, LANES)

    def _weigh(self, inner: Evaluation, ranges: Bounds) -> None:
        """Exponentials relative to a row's running maximum; sums so far are rescaled."""
        values = self._shifted(inner, ranges)
        own = reduce(lambda a, b: combine_two("max", (a, b)), values, self._seen)
        top = exchanged(inner, "max", own, LANES)
        change, powers = powers_under(inner, top, self._seen, values)
        whole = reduce(lambda a, b: combine_two("sum", (a, b)), powers)
        for total in self._sums.values():
            inner.statements.append(Assign(total.name, MulAdd(total, change, whole)))
        inner.statements.append(Assign(self._seen.name, top))
        for number, power in enumerate(powers):
            self._keep(inner, number, power)
        factor = Store(self._factors.name, self._row, change)
        inner.statements += only_where((self._first_lane,), [factor])

    @property
    def _first_lane(self) -> Condition:
        return Condition(mod(self._lane, LANES), "==", 0)

    def _place(self, number: int) -> Index:
        """The key of a lane's score, in its block."""
        return mod(self._lane, LANES) + number * LANES

    def _keep(self, inner: Evaluation, number: int, power: Expr) -> None:
        """Stores an exponential as two numbers of the operands' type."""
        high = inner.named("high", Convert(power, self._dtype))
        rest = ScalarCall("sub", (power, Convert(high, F32)), F32)
        at = self._row * self._pitch[1] + self._place(number)
        for buffer, value in zip(self._powers, (high, Convert(rest, self._dtype)), strict=True):
            inner.statements.append(Store(buffer.name, at, value))

    def _shifted(self, inner: Evaluation, ranges: Bounds) -> list[Expr]:
        """The exponents, at a lane's keys of its row."""
        parts, pair = self._parts, self._parts.pair
        row = within(inner, self._start + self._row, pair.row, ranges)[0]
        found: list[Expr] = []
        for number in range(self._s.keys // LANES):
            key = Sym(self._block) * self._s.keys + self._place(number)
            at, there = within(inner, key, pair.key, ranges)
            point = {**self._batch, pair.row.name: row, pair.key.name: at}
            offset = self._row * self._pitch[0] + self._place(number)
            score = Load(self._slab.name, offset, F32)
            found.append(shifted_score(inner, parts, parts.scores, point, score, there))
        return found

    # --- results

    def _finish(self) -> None:
        outer, square, pitch = self._outer, SIDE * SIDE, self._pitch[2]
        for name, own in self._sums.items():
            whole = self._wholes[name] = exchanged(outer, "sum", own, LANES)
            store = Store(self._of_rows[name].name, self._row, whole)
            outer.statements += only_where((self._first_lane,), [store])
        self._store_of_rows()
        e, every = self._loop("e", self._shape[2])
        slab = Argument(self._slab.name, self._first * pitch + e * SIDE)
        total = Argument(self._fo.name, e * square)
        put = every(RoutineCall(store_c(F32, F32), (slab, total), (pitch,)))
        outer.statements += [put, Barrier(), self._results()]

    def _store_of_rows(self) -> None:
        """Results per row, stored by its first lane."""
        cell, number = self._outer.nested(), self._start + self._row
        point = {**self._batch, self._parts.pair.row.name: number}
        store_of_rows(cell, self._parts, point, self._seen, self._wholes)
        there = Condition(number, "<", self._parts.pair.row.extent)
        if cell.statements:
            self._outer.statements += only_where((self._first_lane, there), cell.statements)

    def _results(self) -> Stmt:
        """The epilogue of totals, vector by vector."""
        parts, pair, inner, name = (
            self._parts,
            self._parts.pair,
            self._outer.nested(),
            self._fresh("i"),
        )
        row = inner.bind("r", floordiv(Sym(name), parts.width))
        column = inner.bind("c", mod(Sym(name), parts.width))
        number = self._start + row
        made: dict[str, Expr] = {TOTAL: Load(self._slab.name, row * self._pitch[2] + column, F32)}
        made |= {n: Load(buffer.name, row, F32) for n, buffer in self._of_rows.items()}
        cell = inner.nested()
        point = {**self._batch, pair.row.name: number, **cell.place(parts.second.columns, column)}
        for nest in parts.results:
            made[nest.output] = cell.named("v", cell.value(nest.body, point, made))
        cell.store(parts.results[-1], point, made[parts.results[-1].output])
        there = (Condition(number, "<", pair.row.extent),)
        inner.statements += only_where(there, cell.statements)
        count = self._s.rows * parts.width
        return For(name, self._thread, count, tuple(inner.statements), self._s.threads)
