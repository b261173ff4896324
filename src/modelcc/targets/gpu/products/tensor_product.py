"""Contractions on tensor cores by warps, from tiles in shared memory.

grid b, j, i; thread warp row, warp column, lane
  the first blocks of terms (K) are copied, a commit group each
  for each block of terms
    wait for its commit group, barrier
    the block that comes ``buffers - 1`` later is copied to the buffer of the previous one
    for each fragment of terms
      sums of each fragment += left fragment * right fragment
  for each row of fragments
    its sums are stored to shared memory contiguously, barrier
    results within range: sums, and their epilogue

Blocks are copied by :mod:`modelcc.targets.gpu.products.async_copy_blocks`.  With ``parts``
(split-K), a group has some of the terms, and stores its sums to memory; the last one of a tile
finishes them (:mod:`modelcc.targets.gpu.partial_sums`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import gcd

from modelcc.ir.argument import Argument
from modelcc.ir.index import Index, Sym, ceildiv, floordiv, mod
from modelcc.ir.loop import Alloc, Barrier, Buffer, For, Function, RoutineCall, Stmt
from modelcc.ir.types import F32, U8, DType
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.contraction import Contraction, KeptFactor, group_contraction
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching, extent_of
from modelcc.targets.gpu.partial_sums import (
    PartialSums,
    blocks_of_part,
    partial_sums,
    place_part,
)
from modelcc.targets.gpu.products.async_copy_blocks import AsyncCopyBlocks
from modelcc.targets.gpu.products.epilogue_staging import EpilogueStaging
from modelcc.targets.gpu.products.staged_tile import StagedTile, TileCopier, has_rows_of_terms
from modelcc.targets.isa.fragments import (
    INTEGERS,
    MOST_EVERY,
    OPERANDS,
    SIDE,
    clear_c,
    depth,
    fragment_bytes,
    load_a,
    load_b,
    multiply,
    store_c,
    sums_of,
)
from modelcc.targets.isa.split_product import multiply_split

EXACT, SPLIT, ROUNDED = "mma_f32", "mma_tf32x3", "mma_tf32"
"""Instructions for f32: exact, as two numbers with 10 bits of mantissa (3xTF32), and as one."""

BYTES, DEEP = "mma_f8", "mma_deep"
"""Instructions for 8-bit floats, and those with the terms of two fragments."""

UNSIGNED = "mma_u8"
"""Instructions for bytes of which either operand, or both, may be unsigned."""

MATRICES, WHOLE_MATRICES = "matrices", "matrices_f32"
"""Instructions that load and store whole matrices, of f16 and bf16, and of exact f32."""

WHOLE_ROWS = "mma_rows"
"""Instructions whose threads hold whole rows of operands, each in two threads; half the rate."""


def lower_tensor_product(kernel: GroupKernel, schedule: TensorProduct) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it does not begin with a contraction of
    rows and columns in a type that tensor cores have, or tiles do not divide among warps."""
    anchor = kernel.group.anchor
    found = group_contraction(kernel.group)
    dtype = None if anchor is None or found is None else matrix_type(anchor, found)
    if found is None or dtype is None or schedule.instruction not in families(dtype):
        raise ScheduleError(
            "matrix units multiply f16, bf16, i8, u8, f8, and f32 if it may be rounded"
        )
    check_warps(schedule, dtype)
    if schedule.columns % (SIDE * schedule.warp_columns * len(found.rights)):
        raise ScheduleError(f"warps have as many times {SIDE} columns of either of twins")
    return _TensorProduct(kernel, schedule, found, dtype).function()


def families(dtype: DType) -> tuple[str, ...]:
    """Families of instructions that multiply fragments of ``dtype``, exact ones first, and those
    with more terms."""
    if dtype == F32:
        return EXACT, WHOLE_MATRICES, SPLIT, ROUNDED
    if dtype.is_float and dtype.bits == 8:
        return (BYTES,)
    if dtype == U8:
        return (UNSIGNED,)
    return (DEEP, "mma", WHOLE_ROWS, *([MATRICES] if dtype.is_float else []))


def matrix_type(anchor: Nest, found: Contraction) -> DType | None:
    """The type of both operands, if tensor cores compute the products and sums of ``anchor``; u8 if
    these are bytes of which either is unsigned."""
    left, right = found.left, found.right
    own = {left.value.dtype, right.value.dtype}
    dtype = U8 if own == {*INTEGERS} else left.value.dtype
    if own not in ({dtype}, {*INTEGERS}) or dtype not in OPERANDS:
        return None
    sums = {left.dtype, right.dtype, anchor.body.dtype}
    return dtype if sums == {sums_of(dtype)} else None


def check_warps(s: TensorProduct, dtype: DType) -> None:
    """:class:`ScheduleError` unless tiles divide among warps, and blocks into fragments."""
    sizes = (s.rows, s.columns, s.terms, s.warp_rows, s.warp_columns, s.parts)
    if any(size < 1 for size in sizes) or s.buffers < (2 if s.copies else 1):
        raise ScheduleError("tiles have rows, columns, terms and parts, and two or more buffers")
    if s.rows % (SIDE * s.warp_rows) or s.columns % (SIDE * s.warp_columns):
        raise ScheduleError(f"warps have tiles of {SIDE} rows and columns")
    terms = depth(dtype) * _together(s)
    if s.terms % terms:
        raise ScheduleError(f"there are blocks of {terms} terms of {dtype}")


def pad_bytes(operand: KeptFactor, s: TensorProduct) -> int:
    """The padding of a tile's rows in bytes: what a thread holds of a fragment, or, for columns of
    32 bits, twice that, as the four rows of which a warp loads 8 elements at once are in all banks
    then."""
    apart = operand.value.dtype.bits == 32 and not has_rows_of_terms(operand)
    return fragment_bytes(s.warp) * (2 if apart and s.copies else 1)


def _together(s: TensorProduct) -> int:
    """Fragments of terms that are multiplied at once."""
    return 2 if s.instruction == DEEP else 1


class _TensorProduct:
    def __init__(
        self, kernel: GroupKernel, schedule: TensorProduct, found: Contraction, dtype: DType
    ) -> None:
        self._kernel, self._schedule, self._found = kernel, schedule, found
        self._dtype, self._sums = dtype, sums_of(dtype)
        fresh, s = kernel.names.fresh, schedule
        self._groups = fresh("gb"), fresh("gj"), fresh("gi")
        self._threads = fresh("wi"), fresh("wj"), fresh("t")
        extents = (
            extent_of(found.batch),
            ceildiv(extent_of(found.columns), found.own(s.columns)),
            ceildiv(extent_of(found.rows), s.rows),
        )
        self._tiles = extents
        counts = (extents[0] * s.parts, *extents[1:])
        grid = tuple(zip(self._groups, counts, strict=True))
        threads = tuple(zip(self._threads, (s.warp_rows, s.warp_columns, s.warp), strict=True))
        self._launch = Launching(grid, threads, kernel.dims)
        self._ranges = dict(self._launch.ranges)
        self._first: Index = 0
        self._outer = Evaluation(kernel.names)
        self._left = self._tile(found.left, found.rows, s.rows, "left")
        own = found.own(s.columns)
        self._rights = [self._tile(f, found.columns, own, "right") for f in found.rights]
        self._shape = s.rows // (SIDE * s.warp_rows), s.columns // (SIDE * s.warp_columns)
        self._fragments = self._shape[0], found.own(self._shape[1])
        sides = zip((self._left, self._rights[0]), self._fragments, strict=True)
        apart = not s.copies and s.instruction not in (MATRICES, WHOLE_MATRICES)
        self._every = tuple(
            gcd(count, MOST_EVERY) if apart and not tile.rows_of_terms else 1
            for tile, count in sides
        )
        part, terms = SIDE * depth(dtype) * _together(s), self._shape
        self._types = found.left.value.dtype, found.right.value.dtype
        self._a = Buffer(fresh("fa"), self._types[0], terms[0] * part, "warp")
        self._b = Buffer(fresh("fb"), self._types[1], terms[1] * part, "warp")
        self._c = Buffer(fresh("fc"), self._sums, terms[0] * terms[1] * SIDE * SIDE, "warp")

    def _tile(
        self, operand: KeptFactor, along: tuple[LoopVar, ...], size: int, stem: str
    ) -> StagedTile:
        s, names = self._schedule, self._kernel.names
        return StagedTile(
            operand, along, self._found.terms, size, s.terms, s.threads, 8, s.buffers, names,
            names.fresh(stem), has_rows_of_terms(operand), pad=pad_bytes(operand, s),
            beside=s.copies,
        )  # fmt: skip

    @cached_property
    def _thread(self) -> Index:
        """The thread's index in the group."""
        row, column, lane = map(Sym, self._threads)
        return (row * self._schedule.warp_columns + column) * self._schedule.warp + lane

    @cached_property
    def _blocks(self) -> Index:
        """Blocks of a group."""
        s = self._schedule
        return blocks_of_part(ceildiv(extent_of(self._found.terms), s.terms), s.parts)

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, found, s = self._outer, self._found, self._schedule
        _, gj, gi = map(Sym, self._groups)
        number, part = place_part(outer, Sym(self._groups[0]), s.parts, self._ranges)
        self._first = part * self._blocks
        batch = outer.place(found.batch, number) if found.batch else {}
        places = [(self._left, gi * s.rows)]
        places += [(right, gj * right.size) for right in self._rights]
        common = self._ranges, outer, batch
        readers = [TileCopier(tile, self._thread, start, *common) for tile, start in places]
        outer.statements += [Alloc(b) for b in (self._a, self._b, self._c)]
        outer.statements += self._clear()
        names, ranges = self._kernel.names, self._ranges
        copied = AsyncCopyBlocks(
            readers, names, s.buffers, self._blocks, self._first, ranges, not s.copies
        )
        outer.statements += copied.statements(outer, self._multiply)
        tile = (number * self._tiles[1] + gj) * self._tiles[2] + gi
        parts = partial_sums(
            self._kernel.names, s.parts, self._tiles, (s.rows, s.columns), self._sums, part, tile
        )
        slab = self._slab(batch, parts)
        shared = [Alloc(tile.buffer) for tile, _ in places]
        if parts is None:
            outer.statements += self._results(slab)
            shared.append(Alloc(slab.buffer))
        else:
            outer.statements += self._parts(parts, slab)
        body = self._launch.around(shared, outer.statements)
        return self._kernel.function(body, () if parts is None else parts.working)

    # --- blocks of terms

    def _clear(self) -> list[Stmt]:
        part = Sym(self._kernel.names.fresh("f"))
        each = RoutineCall(clear_c(self._sums), (Argument(self._c.name, part * SIDE * SIDE),))
        count = self._shape[0] * self._shape[1]
        return [For(part.name, 0, count, (each,), kind="unrolled")]

    def _multiply(self, which: Index) -> list[Stmt]:
        """All terms of a block."""
        fresh, d, parts = self._kernel.names.fresh, depth(self._dtype), _together(self._schedule)
        step, i, j = (Sym(fresh(stem)) for stem in ("k", "i", "j"))
        row, column, _ = map(Sym, self._threads)
        (rows, columns), own = self._shape, self._fragments[1]
        left, loads_a = self._left, list[Stmt]()
        loads_b = [list[Stmt]() for _ in self._rights]
        take_a = load_a(self._types[0], not left.rows_of_terms, self._every[0])
        take_b = load_b(self._types[1], self._rights[0].rows_of_terms, self._every[1])
        for part in range(parts):
            term = (step * parts + part) * d
            first = left.offset(which, term, self._place(0, row, i))
            a = Argument(self._a.name, (i * parts + part) * SIDE * d)
            loads_a.append(RoutineCall(take_a, (a, Argument(left.name, first)), (left.pitch,)))
            for number, right in enumerate(self._rights):
                second = right.offset(which, term, self._place(1, column, j))
                b = Argument(self._b.name, ((number * own + j) * parts + part) * SIDE * d)
                arguments = b, Argument(right.name, second)
                loads_b[number].append(RoutineCall(take_b, arguments, (right.pitch,)))
        a = Argument(self._a.name, i * parts * SIDE * d)
        b = Argument(self._b.name, j * parts * SIDE * d)
        total = Argument(self._c.name, (i * columns + j) * SIDE * SIDE)
        instruction = self._schedule.instruction
        exact = instruction in (EXACT, WHOLE_MATRICES)
        own_type, other = self._types
        multiplied = (
            multiply_split()
            if instruction == SPLIT
            else multiply(own_type, exact, parts, None if other == own_type else other)
        )
        body = (
            _unrolled(i, rows, *loads_a),
            *(_unrolled(j, own, *loads) for loads in loads_b),
            _unrolled(i, rows, _unrolled(j, columns, RoutineCall(multiplied, (total, a, b)))),
        )
        steps = self._schedule.terms // (parts * d)
        return [For(step.name, 0, steps, body, kind="unrolled")]

    def _place(self, side: int, warp: Index, fragment: Index) -> Index:
        """The first row (``side`` 0), or column, in the tile of an operand, of a ``fragment`` of a
        ``warp``: those of several may alternate."""
        every = self._every[side]
        group, inside = floordiv(fragment, every), mod(fragment, every)
        return (warp * self._fragments[side] + every * group) * SIDE + inside

    # --- results

    def _slab(self, batch: dict[str, Index], parts: PartialSums | None) -> EpilogueStaging:
        """The slab for a row of fragments of each warp, or for all of them in parts."""
        s = self._schedule
        rows = SIDE * s.warp_rows if parts is None else s.rows
        own = self._rights[0].size
        starts = Sym(self._groups[2]) * s.rows, Sym(self._groups[1]) * own
        return EpilogueStaging(
            self._kernel, self._found, self._launch, batch, starts, rows, own,
            self._sums, self._thread, s.threads, self._kernel.names.fresh("slab"), parts=parts,
            over=not s.copies,
        )  # fmt: skip

    def _parts(self, parts: PartialSums, slab: EpilogueStaging) -> list[Stmt]:
        """The sums of this group's terms, and the total by the last group."""
        row, i = Sym(self._threads[0]), Sym(self._kernel.names.fresh("i"))

        def place(column: Index) -> Argument:
            return parts.place(self._place(0, row, i), column)

        put = self._put(i, place, parts.columns * self._every[0])
        last = parts.finished(slab.results(lambda r: r))
        return [_unrolled(i, self._shape[0], *put), last]

    def _put(self, i: Index, place: Callable[[Index], Argument], pitch: int) -> list[Stmt]:
        """Stores row ``i`` of fragments, whose columns have a ``place``, rows a ``pitch``."""
        result, (column, own) = list[Stmt](), (Sym(self._threads[1]), self._fragments[1])
        store = store_c(self._sums, self._sums, self._every[1])
        for number, right in enumerate(self._rights):
            j = Sym(self._kernel.names.fresh("j"))
            at = place(self._place(1, column, j) + number * right.size)
            which = i * self._shape[1] + number * own + j
            sums = Argument(self._c.name, which * SIDE * SIDE)
            put = RoutineCall(store, (at, sums), (pitch,))
            result.append(_unrolled(j, own, put))
        return result

    def _results(self, slab: EpilogueStaging) -> list[Stmt]:
        """Rows of fragments one after the other, unrolled as fragments are registers."""
        row, result = Sym(self._threads[0]), list[Stmt]()
        result += [Barrier()] if slab.over else []

        def place(column: Index) -> Argument:
            return Argument(slab.name, row * SIDE * slab.pitch + column)

        for i in range(self._shape[0]):
            result += [Barrier()] if i else []
            result += [*self._put(i, place, slab.pitch), Barrier()]

            def row_of(r: Index, i: int = i) -> Index:
                return self._place(0, floordiv(r, SIDE), i) + self._every[0] * mod(r, SIDE)

            result += slab.results(row_of)
        return result


def _unrolled(variable: Sym, count: int, *body: Stmt) -> Stmt:
    return For(variable.name, 0, count, body, kind="unrolled")
