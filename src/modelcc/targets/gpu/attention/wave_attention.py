"""Attention on matrix cores with accumulators in the layout of operands: scores stay in registers.

grid b, i; thread w (16 rows each), l (lanes of a wave)
  queries to shared memory, aliasing keys, and to fragments, or where they stay; totals = 0
  for each block of keys
    barrier; the next block is loaded to registers
    scores = keys * queries; their epilogue, the running maximum of a row by its threads,
    exponentials relative to it, as an operand of the second product
    totals * rescaling factor + exponentials * values
    barrier; the loaded block to shared memory
  results of a thread's own totals

A thread holds columns of one row in each fragment, by a :class:`WaveLayout`, and the row statistics
in registers.  These are as in :mod:`modelcc.targets.gpu.attention.thread_attention`.  If results
have more than 16 bits, an exponential is the sum of two numbers of the operands' type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from math import gcd

from modelcc.ir.argument import Argument
from modelcc.ir.index import Bounds, Index, Range, Sym, ceildiv, loop_range, minimum
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
    Splat,
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
    binary_power,
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
from modelcc.targets.gpu.products.staged_tile import (
    MOST_HELD,
    REGISTER,
    StagedTile,
    TileCopier,
    has_rows_of_terms,
)
from modelcc.targets.gpu.rows.team import combine_two, exchanged
from modelcc.targets.isa import amd_mfma, amd_wmma
from modelcc.targets.isa.fragments import (
    MOST_EVERY,
    SIDE,
    boundary,
    clear_c,
    fragment_bytes,
    load_a,
    load_b,
    multiply,
    operand_of,
)
from modelcc.targets.isa.wave_fragments import WaveLayout

MATRIX = "mfma"
RDNA3, RDNA4 = "wmma_gfx11", "wmma_gfx12"
LAYOUTS: Mapping[str, WaveLayout] = {
    MATRIX: amd_mfma.LAYOUT,
    RDNA3: amd_wmma.RDNA3,
    RDNA4: amd_wmma.RDNA4,
}
"""Layouts by families of instructions."""

SQUARE = SIDE * SIDE

BESIDE, LEAST_BESIDE, ALL, MOST_KEPT = 64, 56, 248, 200
"""Registers for addresses and masks if there are enough, and at least; all of a thread in the first
case; and the most, including all queries, with which it keeps these in registers."""


def lower_wave_attention(kernel: GroupKernel, schedule: TensorAttention) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no softmax of products in f16 or
    bf16."""
    return WaveAttention(kernel, schedule, find_attention(kernel)).function()


class WaveAttention:
    """Emits the work of a group's threads; :class:`ScheduleError` if operands are no whole
    fragments of one type, or there are no registers for a block."""

    def __init__(self, kernel: GroupKernel, s: TensorAttention, parts: AttentionParts) -> None:
        if kernel.checks:
            raise ScheduleError("indices of blocks are known to be in their bounds")
        if min(s.rows, s.keys) < SIDE or s.rows % SIDE or s.keys % SIDE:
            raise ScheduleError(f"waves have {SIDE} rows, and blocks as many keys")
        verify_halves(parts)
        self._kernel, self._s, self._parts = kernel, s, parts
        layout = self._layout = LAYOUTS[s.instruction]
        fresh = self._fresh = kernel.names.fresh
        gb, gi, w, lane = fresh("gb"), fresh("gi"), fresh("w"), fresh("t")
        pair = parts.pair
        grid = ((gb, extent_of(parts.first.batch)), (gi, ceildiv(pair.row.extent, s.rows)))
        self._launch = Launching(grid, ((w, s.rows // SIDE), (lane, layout.wave)), kernel.dims)
        self._first, self._lane = Sym(w) * SIDE, Sym(lane)
        self._thread = Sym(w) * layout.wave + Sym(lane)
        self._start = Sym(gi) * s.rows
        self._outer = Evaluation(kernel.names)
        self._batch = self._outer.place(parts.first.batch, Sym(gb)) if parts.first.batch else {}
        self._block = fresh("kb")
        self._dtype = parts.first.left.value.dtype
        self._keys = self._tile("keys", parts.first, s.keys, parts.depth)
        self._queries = self._tile("queries", parts.first, s.rows, parts.depth, left=True)
        self._values = self._tile("values", parts.second, parts.width, s.keys)
        self._shape = parts.depth // SIDE, s.keys // SIDE, parts.width // SIDE
        terms, keys, width = self._shape
        self._every = 1 if self._values.rows_of_terms else gcd(width, MOST_EVERY)
        self._fb = Buffer(fresh("fb"), self._dtype, self._every * SQUARE, "warp")
        self._fs = Buffer(fresh("fs"), F32, keys * SQUARE, "warp")
        self._fo = Buffer(fresh("fo"), F32, width * SQUARE, "warp")
        whole = parts.results[-1].body.dtype.bits > 16
        self._powers = [
            Buffer(fresh("fp"), self._dtype, keys * SQUARE, "warp") for _ in range(1 + whole)
        ]
        self._check_registers()
        self._kept = self._least(terms) <= MOST_KEPT
        if self._kept:
            self._queries = replace(self._queries, name=self._keys.name)
        size = (terms if self._kept else 1) * SQUARE
        self._fq = Buffer(fresh("fq"), self._dtype, size, "warp")
        self._seen = Var("", F32)
        self._sums: dict[str, Var] = {}

    def _tile(
        self, stem: str, of: Contraction, size: int, depth: int, left: bool = False
    ) -> StagedTile:
        operand, along = (of.left, of.rows) if left else (of.right, of.columns)
        names = self._kernel.names
        tile = StagedTile(
            operand, along, of.terms, size, depth, self._s.threads, 8, 1, names, names.fresh(stem),
            has_rows_of_terms(operand), pad=fragment_bytes(self._layout.wave), beside=False,
        )  # fmt: skip
        if not left and self._held(tile) > MOST_HELD:
            raise ScheduleError("a thread holds its part of a block in registers")
        return tile

    def _check_registers(self) -> None:
        """:class:`ScheduleError` where LLVM was seen to spill: whole rows of operands take twice
        the registers, and loads under conditions, or of single elements, take more."""
        if self._layout.copies == 1:
            return
        tiles = self._keys, self._values
        even = all(t.size * t.depth == t.vectors * t.lanes * self._s.threads for t in tiles)
        if self._parts.width > 128 or (self._s.keys > SIDE and not (even and self._every > 1)):
            raise ScheduleError("threads have registers for 128 columns, and for 16 keys at least")

    def _held(self, tile: StagedTile) -> int:
        return tile.vectors * -(-tile.lanes * self._dtype.bytes // REGISTER)

    @property
    def shared(self) -> tuple[Buffer, ...]:
        """Shared memory of a group: keys, values, and queries, which alias the keys if threads keep
        them in registers afterwards."""
        if not self._kept:
            return self._keys.buffer, self._values.buffer, self._queries.buffer
        size = max(self._keys.elements, self._queries.elements)
        return replace(self._keys.buffer, size=size), self._values.buffer

    @property
    def registers(self) -> int:
        """Registers a thread is expected to take: with all values of a block, which LLVM loads
        ahead as far as registers allow."""
        terms, keys, width = self._shape
        least = self._least(terms if self._kept else 1)
        ahead = self._layout.operand_bytes // REGISTER * (keys * width - self._every)
        return min(least - LEAST_BESIDE + ahead + BESIDE, max(least, ALL))

    def _least(self, queries: int) -> int:
        """Registers for fragments, among them those of ``queries`` terms, for the next block,
        addresses, and masks."""
        (_, keys, width), layout = self._shape, self._layout
        operands = queries + keys * len(self._powers) + self._every
        own = layout.operand_bytes // REGISTER * operands + layout.own * (keys + width)
        return own + self._held(self._keys) + self._held(self._values) + LEAST_BESIDE

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, ranges = self._outer, self._launch.ranges
        fragments = (self._fq, *self._powers, self._fb, self._fs, self._fo)
        outer.statements += [Alloc(b) for b in fragments]
        e, every = self._loop("e", self._shape[2])
        clear = RoutineCall(clear_c(F32), (Argument(self._fo.name, e * SQUARE),))
        outer.statements.append(every(clear))
        queries = self._copier(self._queries, self._start, outer, ranges)
        queries.begin(0, 0, outer, ranges)
        outer.statements += queries.put(0)
        if self._kept:
            d, all_terms = self._loop("d", self._shape[0])
            outer.statements += [Barrier(), all_terms(self._take_query(d, d)), Barrier()]
        blocks = self._parts.blocks(self._batch, self._start, self._s.rows, self._s.keys)
        self._put(self._read(0, outer, ranges), outer)
        self._seen = outer.register("seen", Const(float("-inf"), F32))
        zero = Const(0, F32)
        self._sums = {n.output: outer.register("sum", zero) for n in self._parts.sums}
        ranges = {**ranges, self._block: loop_range(blocks)}
        outer.statements.append(For(self._block, 0, blocks, tuple(self._one(ranges, blocks))))
        self._finish()
        body = self._launch.around([Alloc(b) for b in self.shared], outer.statements)
        return self._kernel.function(body)

    # --- tiles

    def _copier(self, tile: StagedTile, start: Index, at: Evaluation, ranges: Bounds) -> TileCopier:
        return TileCopier(tile, self._thread, start, ranges, at, self._batch)

    def _read(self, block: Index, at: Evaluation, ranges: Bounds) -> tuple[TileCopier, TileCopier]:
        """Loads a block of keys and values to registers."""
        keys = self._copier(self._keys, block * self._s.keys, at, ranges)
        keys.fetch(0, at, ranges)
        values = self._copier(self._values, 0, at, ranges)
        values.fetch(block, at, ranges)
        return keys, values

    def _put(self, read: Sequence[TileCopier], at: Evaluation) -> None:
        """Stores the loaded block to shared memory."""
        for copier in read:
            at.statements += copier.put(0)

    def _one(self, ranges: Bounds, blocks: Index) -> list[Stmt]:
        """The loop body for a block of keys, while the next one is loaded; after the last one, that
        is loaded again."""
        inner = self._outer.nested()
        inner.statements.append(Barrier())
        last = ceildiv(self._parts.pair.key.extent, self._s.keys) - 1
        coming = inner.bind("next", minimum(Sym(self._block) + 1, blocks - 1))
        there = {**ranges, **({coming.name: Range(0, last)} if isinstance(coming, Sym) else {})}
        read = self._read(coming, inner, there)
        inner.statements += self._scores()
        self._weigh(inner, ranges)
        inner.statements += [*self._add(), Barrier()]
        self._put(read, inner)
        return inner.statements

    # --- fragments

    def _loop(self, stem: str, count: int) -> tuple[Sym, Callable[..., For]]:
        return all_fragments(self._kernel.names, stem, count)

    def _take_query(self, d: Index, to: Index) -> Stmt:
        """Loads a fragment of a wave's queries."""
        tile = self._queries
        at = Argument(tile.name, tile.offset(0, d * SIDE, self._first))
        load = load_a(self._dtype, not tile.rows_of_terms)
        return RoutineCall(load, (Argument(self._fq.name, to * SQUARE), at), (tile.pitch,))

    def _scores(self) -> list[Stmt]:
        """Queries of a wave times all keys."""
        tile = self._keys
        (d, all_terms), (j, all_keys) = (
            self._loop("d", self._shape[0]),
            self._loop("j", self._shape[1]),
        )
        score, b = Argument(self._fs.name, j * SQUARE), Argument(self._fb.name, 0)
        at = Argument(tile.name, tile.offset(0, d * SIDE, j * SIDE))
        load = RoutineCall(load_b(self._dtype, tile.rows_of_terms), (b, at), (tile.pitch,))
        query = Argument(self._fq.name, (d if self._kept else 0) * SQUARE)
        multiplied = RoutineCall(multiply(self._dtype), (score, query, b))
        taken = [] if self._kept else [self._take_query(d, 0)]
        return [
            all_keys(RoutineCall(clear_c(F32), (score,))),
            all_terms(*taken, all_keys(load, multiplied)),
            *self._boundary(self._layout.wave == 32),
        ]

    def _add(self) -> list[Stmt]:
        """Exponentials times values are added."""
        tile, every = self._values, self._every
        (k, all_keys), (g, all_columns), (n, each), (j, all_loads) = (
            self._loop("k", self._shape[1]),
            self._loop("e", self._shape[2] // every),
            self._loop("n", every),
            self._loop("j", every),
        )
        value = Argument(tile.name, tile.offset(0, k * SIDE, g * every * SIDE + j))
        routine = load_b(self._dtype, tile.rows_of_terms, every)
        load = RoutineCall(routine, (Argument(self._fb.name, j * SQUARE), value), (tile.pitch,))
        total = Argument(self._fo.name, (g * every + n) * SQUARE)
        b = Argument(self._fb.name, n * SQUARE)
        powers = (Argument(p.name, k * SQUARE) for p in self._powers)
        products = [RoutineCall(multiply(self._dtype), (total, power, b)) for power in powers]
        end = self._boundary(self._layout.copies > 1)
        return [all_keys(all_columns(all_loads(load), each(*products), *end))]

    def _boundary(self, needed: bool) -> list[Stmt]:
        """A scheduling barrier: loads of values stay below scores, and some below products of
        others.  LLVM would take too many registers, start over, and wait for each load."""
        return [RoutineCall(boundary(), ())] if needed else []

    # --- a thread's own elements

    @property
    def _row(self) -> Index:
        """The row of which a thread holds elements."""
        return self._start + self._first + self._layout.row(self._lane)

    def _own(self, fragment: Index, number: int = 0) -> Index:
        """The index of one of the thread's elements."""
        return fragment * SQUARE + self._layout.element(self._lane, number)

    def _weigh(self, inner: Evaluation, ranges: Bounds) -> None:
        """Exponentials relative to a row's running maximum; sums so far are rescaled."""
        layout, values = self._layout, self._shifted(inner, ranges)
        own = reduce(lambda a, b: combine_two("max", (a, b)), values, self._seen)
        top = exchanged(inner, "max", own, layout.row_threads, SIDE)
        change, powers = powers_under(inner, top, self._seen, values, binary_power(1.0))
        whole = reduce(lambda a, b: combine_two("sum", (a, b)), powers)
        for total in self._sums.values():
            inner.statements.append(Assign(total.name, MulAdd(total, change, whole)))
        inner.statements.append(Assign(self._seen.name, top))
        self._keep(inner, powers)
        (e, every), own, apart = self._loop("e", self._shape[2]), layout.own, layout.apart
        old = Load(self._fo.name, self._own(e), F32, own, apart)
        scaled = ScalarCall("mul", (old, Splat(change, own)), F32, own)
        inner.statements.append(every(Store(self._fo.name, self._own(e), scaled, apart)))

    def _keep(self, inner: Evaluation, powers: Sequence[Expr]) -> None:
        """Stores exponentials over scores, as one or two operands."""
        for number, operand in enumerate(self._powers):
            if number:
                high = (Convert(Convert(power, self._dtype), F32) for power in powers)
                powers = [ScalarCall("sub", both, F32) for both in zip(powers, high, strict=True)]
            inner.statements += [
                Store(self._fs.name, self._own(*divmod(n, self._layout.own)), power)
                for n, power in enumerate(powers)
            ]
            j, all_keys = self._loop("j", self._shape[1])
            given = Argument(operand.name, j * SQUARE), Argument(self._fs.name, j * SQUARE)
            inner.statements.append(all_keys(RoutineCall(operand_of(self._dtype), given)))

    def _shifted(self, inner: Evaluation, ranges: Bounds) -> list[Expr]:
        """The exponents, at a thread's keys of its row."""
        parts, pair = self._parts, self._parts.pair
        row = within(inner, self._row, pair.row, ranges)[0]
        found: list[Expr] = []
        for number in range(self._s.keys // self._layout.row_threads):
            side, own = divmod(number, self._layout.own)
            column = side * SIDE + self._layout.column(self._lane, own)
            key = Sym(self._block) * self._s.keys + column
            at, there = within(inner, key, pair.key, ranges)
            point = {**self._batch, pair.row.name: row, pair.key.name: at}
            score = inner.named("s", Load(self._fs.name, self._own(side, own), F32))
            found.append(shifted_score(inner, parts, parts.scores, point, score, there))
        return found

    # --- results

    def _finish(self) -> None:
        """The epilogue of a thread's totals."""
        outer, parts = self._outer, self._parts
        sums: dict[str, Expr] = {
            name: exchanged(outer, "sum", own, self._layout.row_threads, SIDE)
            for name, own in self._sums.items()
        }
        g, all_columns = self._loop("e", self._shape[2] // self._every)
        inner, number = outer.nested(), self._row
        for mine, n in product(range(self._layout.own), range(self._every)):
            cell, fragment = inner.beside(), g * self._every + n
            made = {TOTAL: Load(self._fo.name, self._own(fragment, mine), F32), **sums}
            column = self._layout.column(self._lane, mine)
            place = g * self._every * SIDE + self._every * column + n
            point = {
                **self._batch,
                parts.pair.row.name: number,
                **cell.place(parts.second.columns, place),
            }
            for nest in parts.results:
                made[nest.output] = cell.named("v", cell.value(nest.body, point, made))
            cell.store(parts.results[-1], point, made[parts.results[-1].output])
        cell = outer.nested()
        store_of_rows(cell, parts, {**self._batch, parts.pair.row.name: number}, self._seen, sums)
        first = only_where((Condition(self._layout.column(self._lane), "==", 0),), cell.statements)
        there = (Condition(number, "<", parts.pair.row.extent),)
        line = [all_columns(*inner.statements), *(first if parts.of_rows else ())]
        outer.statements += only_where(there, line)
