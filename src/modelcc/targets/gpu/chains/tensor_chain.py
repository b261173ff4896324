"""Chained contractions (sums over products' tiles) on tensor cores: tiles stay in registers.

grid b, i; thread w (16 rows each), l (lanes)
  left factors of the rows to shared memory; totals = 0
  for each block of keys that some row sees, while the next one is copied
    products of the rows and keys; a thread's elements of them become weights, which are operands
    totals += weights * values
  results: made of a thread's own totals

Values that are the transposed right factor of a product are read from that factor's tile.
Accumulators are distributed over threads like operands (:mod:`modelcc.targets.isa.nvidia_mma`), so
that weights need no shuffles.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from modelcc.ir.argument import Argument
from modelcc.ir.copies import CommitCopies, WaitCopies
from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    mod,
)
from modelcc.ir.loop import (
    Alloc,
    Barrier,
    Buffer,
    Convert,
    Expr,
    For,
    Function,
    Load,
    RoutineCall,
    Stmt,
    Store,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BF16, F16, F32
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import TensorChain
from modelcc.schedule.lanes import Lanes
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.attention_parts import TOTAL, all_fragments, within
from modelcc.targets.gpu.chains.chain_parts import (
    ChainParts,
    ChainSum,
    find_chain,
    rows_at,
    weights_at,
)
from modelcc.targets.gpu.contraction import KeptFactor
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.products.staged_tile import StagedTile, TileCopier, has_rows_of_terms
from modelcc.targets.isa.fragments import SIDE, clear_c, load_a, load_b, multiply
from modelcc.targets.isa.nvidia_mma import (
    OWN_COLUMNS,
    OWN_ROWS,
    WARP,
    own_column,
    own_element,
    own_row,
)

SQUARE = SIDE * SIDE
PAIR = 2
"""Neighbours of a row that a thread holds."""


def lower_tensor_chain(kernel: GroupKernel, schedule: TensorChain) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no chain of products in f16 or bf16
    whose factors are copied unchanged."""
    return TensorChains(kernel, schedule, find_chain(kernel)).function()


class TensorChains:
    """Emits the work of a group's threads; :class:`ScheduleError` if factors are no whole fragments
    of one type, or not copied unchanged."""

    def __init__(self, kernel: GroupKernel, s: TensorChain, parts: ChainParts) -> None:
        if kernel.checks:
            raise ScheduleError("indices of blocks are known to be in their bounds")
        if min(s.rows, s.keys) < SIDE or s.rows % SIDE or s.keys % SIDE:
            raise ScheduleError(f"warps have {SIDE} rows, and blocks as many keys")
        _verify(parts)
        self._kernel, self._s, self._parts = kernel, s, parts
        fresh = self._fresh = kernel.names.fresh
        self._dtype = parts.products[0].left.value.dtype
        gb, gi, w, lane = fresh("gb"), fresh("gi"), fresh("w"), fresh("t")
        blocks = ceildiv(parts.chain.row.extent, s.rows)
        grid = ((gb, extent_of(parts.batch)), (gi, blocks))
        self._launch = Launching(grid, ((w, s.rows // SIDE), (lane, WARP)), kernel.dims)
        self._first, self._lane = Sym(w) * SIDE, Sym(lane)
        self._thread = Sym(w) * WARP + Sym(lane)
        self._start = (blocks - 1 - Sym(gi) if parts.ends_early else Sym(gi)) * s.rows
        self._outer = Evaluation(kernel.names)
        self._batch = self._outer.place(parts.batch, Sym(gb)) if parts.batch else {}
        self._block = fresh("kb")
        self._left = [
            self._tile("left", p.left, p.rows, p.terms, (s.rows, depth), 1)
            for p, depth in zip(parts.products, parts.depths, strict=True)
        ]
        self._right = [
            self._tile("right", p.right, p.columns, p.terms, (s.keys, depth), 2)
            for p, depth in zip(parts.products, parts.depths, strict=True)
        ]
        self._own = [None if one.shared is not None else self._values(one) for one in parts.sums]
        if any(tile.copied is None for tile in self._tiles):
            raise ScheduleError("factors are read as they are")
        keys = s.keys // SIDE
        self._fa = Buffer(fresh("fa"), self._dtype, SQUARE, "warp")
        self._fb = Buffer(fresh("fb"), self._dtype, SQUARE, "warp")
        most = max(len(parts.products), len(parts.sums))
        self._fs = [Buffer(fresh("fs"), F32, keys * SQUARE, "warp") for _ in range(most)]
        self._fw = [Buffer(fresh("fw"), self._dtype, keys * SQUARE, "warp") for _ in parts.sums]
        self._rows: list[tuple[Index, dict[str, Expr]]] = []
        self._fo = [
            Buffer(fresh("fo"), F32, one.width // SIDE * SQUARE, "warp") for one in parts.sums
        ]

    def _tile(
        self, stem: str, operand: KeptFactor, along: tuple[LoopVar, ...],
        terms: tuple[LoopVar, ...], size: tuple[int, int], buffers: int,
    ) -> StagedTile:  # fmt: skip
        names = self._kernel.names
        return StagedTile(
            operand, along, terms, *size, self._s.threads, 8, buffers, names, names.fresh(stem),
            has_rows_of_terms(operand),
        )  # fmt: skip

    def _values(self, one: ChainSum) -> StagedTile:
        """The tile of values that are no product's factor."""
        of, size = one.contraction, (one.width, self._s.keys)
        return self._tile("values", of.right, of.columns, of.terms, size, 2)

    @property
    def _tiles(self) -> list[StagedTile]:
        return [*self._left, *self._right, *(t for t in self._own if t is not None)]

    @property
    def shared(self) -> list[Buffer]:
        """Shared memory of a group."""
        return [tile.buffer for tile in self._tiles]

    @property
    def registers(self) -> int:
        """Registers a thread is expected to take: sums, weights, fragments of operands, addresses,
        conditions and intermediate values of a few weights."""
        own = (*self._fs, *self._fw, *self._fo, self._fa, self._fb)
        held = sum(_number(b.size) * b.dtype.bytes // (4 * WARP) for b in own)
        return held + 56

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, ranges, s = self._outer, self._launch.ranges, self._s
        fragments = (self._fa, self._fb, *self._fs, *self._fw, *self._fo)
        outer.statements += [Alloc(b) for b in fragments]
        for fo, one in zip(self._fo, self._parts.sums, strict=True):
            e, every = self._loop("e", one.width // SIDE)
            outer.statements.append(every(_clear(fo, e)))
        for tile in self._left:
            self._copier(tile, self._start, outer, ranges).begin(0, 0, outer, ranges)
        first, end = self._parts.blocks(self._batch, self._start, s.rows, s.keys)
        first, end = outer.bind("first", first), outer.bind("end", end)
        last = ceildiv(self._parts.chain.key.extent, s.keys) - 1
        ahead = outer.nested()
        self._copy(mod(first, 2), first, ahead, _known(ranges, first, 0, last))
        there = (Condition(first, "<", end),)
        outer.statements += [*only_where(there, ahead.statements), CommitCopies()]
        self._rows = [self._row(number) for number in OWN_ROWS]
        self._blocks(first, end, _known(ranges, end, 0, last + 1))
        outer.statements.append(WaitCopies(0))
        for fo, one in zip(self._fo, self._parts.sums, strict=True):
            self._finish(fo, one)
        around = self._launch.around([Alloc(b) for b in self.shared], outer.statements)
        return self._kernel.function(around)

    def _blocks(self, first: Index, end: Index, ranges: Bounds) -> None:
        """The loops over blocks of keys: those without masks, and others before and after them."""
        outer, parts, s = self._outer, self._parts, self._s
        extent = parts.chain.key.extent
        last, open_last = ceildiv(extent, s.keys) - 1, floordiv(extent, s.keys) - 1
        begin, stop = parts.open_blocks(self._batch, self._start, s.rows, s.keys)
        begin = outer.bind("open", minimum(maximum(begin, first), end))
        stop = outer.bind("masked", minimum(maximum(stop, begin), end))
        for low, high, known, most in (
            (first, begin, parts, last),
            (begin, stop, parts.unmasked, open_last),
            (stop, end, parts, last),
        ):
            if low == high or most == -1:
                continue
            inside = {**ranges, self._block: Range(0, most)}
            body = self._step(inside, last, end, known)
            outer.statements.append(For(self._block, low, high, tuple(body)))

    # --- tiles

    def _copier(self, tile: StagedTile, start: Index, at: Evaluation, ranges: Bounds) -> TileCopier:
        return TileCopier(tile, self._thread, start, ranges, at, self._batch)

    def _copy(self, which: Index, block: Index, at: Evaluation, ranges: Bounds) -> None:
        """Starts the copies for a block of keys."""
        for tile in self._right:
            copier = self._copier(tile, block * self._s.keys, at, ranges)
            copier.begin(which, 0, at, ranges)
        for tile in self._own:
            if tile is not None:
                self._copier(tile, 0, at, ranges).begin(which, block, at, ranges)

    def _step(self, ranges: Bounds, last: Index, end: Index, parts: ChainParts) -> list[Stmt]:
        """The loop body for a block of keys, while the next one is copied."""
        inner, block, ahead = self._outer.nested(), Sym(self._block), self._outer.nested()
        now, after = inner.bind("now", mod(block, 2)), inner.bind("next", mod(block + 1, 2))
        self._copy(after, block + 1, ahead, {**ranges, self._block: Range(0, last - 1)})
        inner.statements += [WaitCopies(0), Barrier()]
        inner.statements += only_where((Condition(block + 1, "<", end),), ahead.statements)
        inner.statements.append(CommitCopies())
        for number in range(len(self._left)):
            inner.statements += self._multiply(number, now)
        inner.statements.append(self._weigh(ranges, parts))
        for number in range(len(self._parts.sums)):
            inner.statements += self._add(number, now)
        return inner.statements

    # --- fragments

    def _loop(self, stem: str, count: int) -> tuple[Sym, Callable[..., For]]:
        return all_fragments(self._kernel.names, stem, count)

    def _multiply(self, number: int, now: Index) -> list[Stmt]:
        """A warp's rows times all keys."""
        left, right, fs = self._left[number], self._right[number], self._fs[number]
        (d, all_terms), (j, all_keys), (n, all_sums) = (
            self._loop("d", self._parts.depths[number] // SIDE),
            self._loop("j", self._s.keys // SIDE),
            self._loop("j", self._s.keys // SIDE),
        )
        a, b = Argument(self._fa.name, 0), Argument(self._fb.name, 0)
        row = Argument(left.name, left.offset(0, d * SIDE, self._first))
        key = Argument(right.name, right.offset(now, d * SIDE, j * SIDE))
        load_row = RoutineCall(load_a(self._dtype, not left.rows_of_terms), (a, row), (left.pitch,))
        load_key = RoutineCall(load_b(self._dtype, right.rows_of_terms), (b, key), (right.pitch,))
        total = Argument(fs.name, j * SQUARE)
        multiplied = RoutineCall(multiply(self._dtype), (total, a, b))
        return [all_sums(_clear(fs, n)), all_terms(load_row, all_keys(load_key, multiplied))]

    def _add(self, number: int, now: Index) -> list[Stmt]:
        """Weights times values are added."""
        one, own = self._parts.sums[number], self._own[number]
        (k, all_keys), (e, all_columns) = (
            self._loop("k", self._s.keys // SIDE),
            self._loop("e", one.width // SIDE),
        )
        if own is not None:
            at, pitch, turned = own.offset(now, k * SIDE, e * SIDE), own.pitch, own.rows_of_terms
            name = own.name
        else:
            assert one.shared is not None
            tile = self._right[one.shared]
            at, pitch, turned = tile.offset(now, e * SIDE, k * SIDE), tile.pitch, False
            name, turned = tile.name, not tile.rows_of_terms
        b = Argument(self._fb.name, 0)
        load = RoutineCall(load_b(self._dtype, turned), (b, Argument(name, at)), (pitch,))
        weight = Argument(self._fw[number].name, k * SQUARE)
        total = Argument(self._fo[number].name, e * SQUARE)
        multiplied = RoutineCall(multiply(self._dtype), (total, weight, b))
        return [all_keys(all_columns(load, multiplied))]

    # --- a thread's own elements

    def _row(self, number: int) -> tuple[Index, dict[str, Expr]]:
        """One of a thread's rows, and what tiles read of it."""
        outer, axis = self._outer, self._parts.chain.row
        place = self._start + self._first + own_row(self._lane) + number
        row = within(outer, place, axis, self._launch.ranges)[0]
        return row, rows_at(outer, self._parts, {**self._batch, axis.name: row})

    def _place(self, fragment: Index, row: int, column: int) -> Index:
        """The index of one of the thread's elements."""
        return fragment * SQUARE + own_element(self._lane) + row * SIDE + column

    def _weigh(self, ranges: Bounds, parts: ChainParts) -> Stmt:
        """A thread's elements of products become weights, as operands."""
        chain = parts.chain
        j, every = self._loop("j", self._s.keys // SIDE)
        inner = self._outer.nested()
        ranges = {**ranges, j.name: Range(0, self._s.keys // SIDE - 1)}
        first = Sym(self._block) * self._s.keys + j * SIDE + own_column(self._lane)
        keys = [within(inner, first + c, chain.key, ranges) for c in OWN_COLUMNS]
        names = [stage.output for stage in chain.products]
        for (number, (row, of_row)), (column, (key, there)) in product(
            zip(OWN_ROWS, self._rows, strict=True), zip(OWN_COLUMNS, keys, strict=True)
        ):
            place = self._place(j, number, column)
            point = {**self._batch, chain.row.name: row, chain.key.name: key}
            own = (inner.named("s", Load(fs.name, place, F32)) for fs in self._fs)
            made = {**of_row, **dict(zip(names, own, strict=False))}
            found = weights_at(inner, parts, point, made, there, narrow=True)
            for fs, value in zip(self._fs, found, strict=False):
                wide = value if value.dtype == F32 else Convert(value, F32)
                inner.statements.append(Store(fs.name, place, wide))
        for number, column in product(OWN_ROWS, OWN_COLUMNS[::PAIR]):
            place = self._place(j, number, column)
            for fs, fw in zip(self._fs, self._fw, strict=False):
                both = Convert(Load(fs.name, place, F32, PAIR), self._dtype)
                inner.statements.append(Store(fw.name, place, both))
        return every(*inner.statements)

    # --- results

    def _finish(self, fo: Buffer, one: ChainSum) -> None:
        """The epilogue of a thread's totals of a sum."""
        outer, axis = self._outer, self._parts.chain.row
        columns, made = one.contraction.columns, {TOTAL, *(n.output for n in one.results)}
        fits = all(vectorisable(n.body, columns[-1].name, PAIR, made) for n in one.results)
        lanes = Lanes(self._fresh("c"), PAIR) if fits else None
        e, every = self._loop("e", one.width // SIDE)
        for number in OWN_ROWS:
            row = self._start + self._first + own_row(self._lane) + number
            inner = outer.nested(lanes)
            for column in OWN_COLUMNS[:: PAIR if fits else 1]:
                cell, place = inner.beside(lanes), e * SIDE + own_column(self._lane) + column
                at = Load(fo.name, self._place(e, number, column), F32, PAIR if fits else 1)
                values: dict[str, Expr] = {TOTAL: cell.named("v", at)}
                place = floordiv(place, PAIR) if fits else place
                point = {**self._batch, axis.name: row, **cell.place_lanes(columns, place)}
                for nest in one.results:
                    values[nest.output] = cell.named("v", cell.value(nest.body, point, values))
                cell.store(one.results[-1], point, values[one.results[-1].output])
            there = (Condition(row, "<", axis.extent),)
            outer.statements += only_where(there, [every(*inner.statements)])


def _verify(parts: ChainParts) -> None:
    """:class:`ScheduleError` unless tensor cores multiply the factors."""
    sums = parts.sums
    factors = [f for p in parts.products for f in (p.left, p.right)]
    factors += [f for one in sums for f in (one.kept, one.contraction.right)]
    kinds = {f.value.dtype for f in factors}
    if len(kinds) != 1 or not kinds <= {F16, BF16} or any(f.dtype != F32 for f in factors):
        raise ScheduleError("matrix units multiply f16 and bf16, and sum up in f32")
    if any(n % SIDE for n in (*parts.depths, *(one.width for one in sums))):
        raise ScheduleError(f"terms and columns are whole fragments of {SIDE}")


def _clear(fragment: Buffer, number: Index) -> RoutineCall:
    return RoutineCall(clear_c(F32), (Argument(fragment.name, number * SQUARE),))


def _number(size: Index) -> int:
    assert isinstance(size, int)
    return size


def _known(ranges: Bounds, index: Index, least: Index, most: Index) -> Bounds:
    """``ranges`` with the range of a named number."""
    return {**ranges, index.name: Range(least, most)} if isinstance(index, Sym) else ranges
