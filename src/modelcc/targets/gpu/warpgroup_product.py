"""Contractions on matrix units that a warpgroup uses together, from tiles that are copied as boxes.

grid b, j, i; thread warp of 128, lane
  one thread: the first blocks of terms are copied, a phase each
  for each block of terms
    wait for its phase
    sums += left tile * right tile, beside
    wait for the products of the block before, barrier
    one thread: the block that comes ``buffers - 1`` later is copied to where that one was
  before the last ones: operands of what follows sums are asked for, as registers allow
  all sums are put side by side into the memory of the tiles
  further operands are asked for, barrier
  results where there are any: sums, and what follows them

Where rows are few, of a decoder's step or of small images, the units' side of 64 is that of the
columns, and rows are the other one, of 8 or more: the sums are of the turned result, and turn back
as they are put into shared memory.

With ``parts`` a group has some of the terms, and puts its sums into memory; the last one of a tile
finishes them (:mod:`modelcc.targets.gpu.partial_sums`).

Products of a block go on while the next one is waited for: the units always have some to do.  Those
of floats of 8 bits, which the units add up in few bits, are of one block each in turns of two
fragments, and added to the sums in f32 while those of the next block go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from modelcc.ir.argument import Argument
from modelcc.ir.index import Index, Sym, ceildiv, mod
from modelcc.ir.loop import (
    Alloc,
    Barrier,
    Buffer,
    For,
    Function,
    RoutineCall,
    ScalarCall,
    Stmt,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.tiles import ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import F32, I64, DType
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.box_operand import BoxProduct, box_product
from modelcc.targets.gpu.contraction import group_contraction
from modelcc.targets.gpu.epilogue_prefetch import Early
from modelcc.targets.gpu.epilogue_staging import EpilogueStaging, slab_pitch
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    extent_of,
    not_implied,
    only_where,
)
from modelcc.targets.gpu.fragment_elements import BOTH, each_side, pair, put
from modelcc.targets.gpu.image_operand import ImageOperand
from modelcc.targets.gpu.partial_sums import (
    PartialSums,
    blocks_of_part,
    partial_sums,
    place_part,
)
from modelcc.targets.gpu.tensor_product import matrix_type
from modelcc.targets.isa.tile_products import (
    BYTES,
    COLUMNS,
    DEPTH_BYTES,
    FEW_COLUMNS,
    OPERANDS,
    PANEL,
    ROWS,
    TURNED_PANEL,
    clear_sums,
    depth,
    multiply_tiles,
    store_panel,
    store_turned,
    sums_size,
    tile_size,
)

BOXES = "wgmma"
"""The instructions that take tiles which are copied as boxes."""

WARPS = 128
"""Threads that multiply together."""

ALIGNMENT = 1024
"""Bytes at whose multiples tiles begin."""


def lower_tile_product(kernel: GroupKernel, schedule: TensorProduct) -> Function:
    """The function of a kernel, with a tile for each group; raises as :func:`find_tile_product`."""
    return TileProductKernel(kernel, schedule, *find_tile_product(kernel, schedule)).function()


def find_tile_product(kernel: GroupKernel, schedule: TensorProduct) -> tuple[DType, BoxProduct]:
    """What is multiplied; :class:`ScheduleError` if the kernel does not begin with a product of
    matrices of f16, bf16 or floats of 8 bits that are boxes of inputs, of the latter with terms
    side by side, or tiles are none of these units'."""
    anchor = kernel.group.anchor
    found = None if kernel.checks else group_contraction(kernel.group)
    dtype = None if anchor is None or found is None else matrix_type(anchor, found)
    product = None if found is None else box_product(kernel, found)
    if dtype is None or product is None or not takes_boxes(dtype, product):
        raise ScheduleError("boxes of f16, bf16 and f8 are multiplied, with rows on boundaries")
    s = schedule
    if not _is_tile(s):
        raise ScheduleError(
            f"four warps have {ROWS} rows and {COLUMNS} columns, or {FEW_COLUMNS} rows and {ROWS} "
            "columns"
        )
    if is_turned(s) and product.turned[0]:
        raise ScheduleError("few rows have their terms side by side")
    if not product.takes(s.columns):
        raise ScheduleError("halves of a tile are whole boxes")
    if s.terms != depth(dtype) or s.buffers < 2 or (dtype in BYTES and s.buffers % 2):
        raise ScheduleError(f"there are blocks of {depth(dtype)} terms, two or more in flight")
    return dtype, product


def takes_boxes(dtype: DType, product: BoxProduct) -> bool:
    """Whether units multiply tiles of ``dtype`` that lie as those of ``product`` do."""
    return dtype in OPERANDS or (dtype in BYTES and not any(product.turned))


def is_turned(s: TensorProduct) -> bool:
    """Whether columns are the side of the tile that units have 64 of."""
    return s.rows < ROWS


def _is_tile(s: TensorProduct) -> bool:
    if is_turned(s):
        warps = s.warp_rows, s.columns
        return warps == (1, ROWS * s.warp_columns) and s.rows in FEW_COLUMNS
    return (s.warp_columns, s.rows) == (1, ROWS * s.warp_rows) and s.columns in COLUMNS


def _beside(s: TensorProduct) -> int:
    """Results of the side that all warps share."""
    return s.rows if is_turned(s) else s.columns


def tile_bytes(s: TensorProduct, kept: DType = F32) -> int:
    """Shared memory of a group: tiles, whole sums in their place, what counts arrivals.  Sums of
    groups that have several tiles are beside these, ``kept`` in such a type."""
    tiles = s.buffers * (s.rows + s.columns) * DEPTH_BYTES
    each = kept.bytes if s.groups else F32.bytes
    sums = s.rows * slab_pitch(s.columns, is_turned(s)) * each if s.parts == 1 else 0
    return (tiles + sums if s.groups else max(tiles, sums)) + s.buffers * I64.bytes


@dataclass(frozen=True)
class ResultTile:
    """One of results: of which batch, its number among those of columns and of rows, and what is
    known of the symbols in these."""

    batch: Point
    column: Index
    row: Index
    launch: Launching


class TileProductKernel:
    """A product by groups of which each has a tile of results, or a part of its terms."""

    def __init__(
        self, kernel: GroupKernel, schedule: TensorProduct, dtype: DType, product: BoxProduct
    ) -> None:
        found = product.found
        self._kernel, self._schedule, self._found = kernel, schedule, found
        self._left, self._rights = product.left, product.rights
        fresh, s = kernel.names.fresh, schedule
        self._own = found.own(s.columns)
        self._threads = fresh("w"), fresh("t")
        self._extents = (
            extent_of(found.batch),
            ceildiv(extent_of(found.columns), self._own),
            product.row_tiles(s.rows),
        )
        threads = tuple(zip(self._threads, (s.threads // WARPS, WARPS), strict=True))
        self._launch = Launching(self._grid(), threads, kernel.dims)
        self._first: Index = 0
        self._outer = Evaluation(kernel.names)
        self._sizes = tile_size(dtype, s.rows), tile_size(dtype, s.columns)
        self._tiles = tuple(
            Buffer(fresh(stem), dtype, s.buffers * size, "tile", ALIGNMENT)
            for stem, size in zip(("left", "right"), self._sizes, strict=True)
        )
        self._arrivals = Buffer(fresh("there"), I64, s.buffers, "arrivals")
        self._beside, self._order = _beside(s), (1, 0) if is_turned(s) else (0, 1)
        self._sums = Buffer(fresh("sums"), F32, sums_size(self._beside), "warp")
        self._parts = [
            Buffer(fresh("part"), F32, sums_size(self._beside), "warp")
            for _ in range(2 if dtype in BYTES else 0)
        ]
        one, other = (product.turned[side] for side in self._order)
        self._multiply = multiply_tiles(dtype, self._beside, one, other)

    def _grid(self) -> tuple[tuple[str, Index], ...]:
        """Groups, a tile each."""
        fresh, (batch, *tiles) = self._kernel.names.fresh, self._extents
        names = fresh("gb"), fresh("gj"), fresh("gi")
        return tuple(zip(names, (batch * self._schedule.parts, *tiles), strict=True))

    @cached_property
    def _thread(self) -> Index:
        """Its number in the group."""
        return Sym(self._threads[0]) * WARPS + Sym(self._threads[1])

    @property
    def _kept(self) -> DType:
        """The type of sums in shared memory."""
        return F32

    @cached_property
    def _blocks(self) -> int:
        """Of a group."""
        terms, s = extent_of(self._found.terms), self._schedule
        blocks = blocks_of_part(ceildiv(terms, s.terms), s.parts)
        assert isinstance(blocks, int)
        return blocks

    def function(self) -> Function:
        """Grid, threads, and what these do."""
        outer, found, s = self._outer, self._found, self._schedule
        ranges = dict(self._launch.ranges)
        gb, gj, gi = (Sym(name) for name, _ in self._launch.grid)
        number, part = place_part(outer, gb, s.parts, ranges)
        self._first = part * self._blocks
        batch = outer.place(found.batch, number) if found.batch else {}
        tile = ResultTile(batch, gj, gi, self._launch)
        ahead = self._schedule.buffers - 1
        outer.statements += [Alloc(b) for b in (self._sums, *self._parts)]
        outer.statements.append(self._clear(self._sums))
        first: list[Stmt] = []
        for block in range(min(ahead, self._blocks)):
            first += self._begin(block, block, tile)
        outer.statements += self._by_one(first)
        which = (number * self._extents[1] + gj) * self._extents[2] + gi
        names, shape = self._kernel.names, (s.rows, s.columns)
        parts = partial_sums(names, s.parts, self._extents, shape, F32, part, which)
        slab = self._slab(tile, names.fresh("slab"), parts)
        shared = [Alloc(b) for b in (*self._tiles, self._arrivals)]
        if parts is None:
            early = slab.early(lambda row: row, s.ahead)
            outer.statements += self._all_blocks(tile, early.before)
            outer.statements += [WaitRoutines(0), *self._results(slab, early)]
            shared.append(Alloc(slab.buffer))
        else:
            outer.statements += [*self._all_blocks(tile), WaitRoutines(0)]
            outer.statements += self._parts_of(parts, slab)
        body = self._launch.around(shared, outer.statements)
        return self._kernel.function(body, () if parts is None else parts.working)

    def _by_one(self, body: Sequence[Stmt], *conditions: Condition) -> list[Stmt]:
        """What one thread does for all."""
        return only_where((Condition(self._thread, "==", 0), *conditions), body)

    # --- blocks of terms

    def _begin(self, which: Index, block: Index, of: ResultTile) -> list[Stmt]:
        """Both tiles of a block are on their way to a buffer."""
        s, arrivals = self._schedule, (self._arrivals.name, which)
        start = of.row if isinstance(self._left, ImageOperand) else of.row * s.rows
        (left, right), (rows, columns) = self._tiles, self._sizes
        term, rest = (self._first + block) * s.terms, (s.terms, of.batch, arrivals)
        expected = (rows + columns) * left.dtype.bytes
        copies = self._left.copies(left.name, which * rows, (start, term), s.rows, *rest)
        first, size = (of.column * self._own, term), columns // len(self._rights)
        for number, operand in enumerate(self._rights):
            to = which * columns + number * size
            copies += operand.copies(right.name, to, first, self._own, *rest)
        return [ExpectBytes(*arrivals, expected), *copies]

    def _all_blocks(self, of: ResultTile, before: Sequence[Stmt] = ()) -> list[Stmt]:
        """Rounds through all buffers, then what is left, or the last round if there is something
        to do ``before``: what is on its way is there by then."""
        names, buffers = self._kernel.names, self._schedule.buffers
        rounds, left = divmod(self._blocks, buffers)
        if before and rounds and not left:
            rounds, left = rounds - 1, buffers
        turn = Sym(names.fresh("kr"))

        def block(which: Index, turn: Index, count: int) -> list[Stmt]:
            body = self._block(which, turn, count)
            later = turn * buffers + which + (buffers - 1)
            copies = self._begin(mod(which + (buffers - 1), buffers), later, of)
            there = not_implied((Condition(later, "<", self._blocks),), {})
            return body + self._by_one(copies, *there)

        inner = self._unrolled(buffers, lambda which: block(which, turn, buffers))
        found: list[Stmt] = [For(turn.name, 0, rounds, tuple(inner))] if rounds else []
        first = [block(0, rounds, left)] if left == buffers else []
        rest = self._unrolled(left, lambda which: self._block(which, rounds, left), len(first))
        return [*found, *before, *(s for one in first for s in one), *rest]

    def _unrolled(
        self, count: int, body: Callable[[Index], list[Stmt]], first: int = 0
    ) -> list[Stmt]:
        """For each of so many buffers from the ``first`` on; written out where fragments take
        turns."""
        if self._parts or first >= count:
            return [s for which in range(first, count) for s in body(which)]
        which = Sym(self._kernel.names.fresh("kb"))
        return [For(which.name, first, count, tuple(body(which)), kind="unrolled")]

    def _clear(self, fragment: Buffer) -> Stmt:
        return RoutineCall(clear_sums(self._beside), (Argument(fragment.name, 0),))

    def _add(self, block: int) -> list[Stmt]:
        """What was summed up of a block, if it is apart, to all sums."""
        part, lane = self._parts[block % 2], Sym(self._threads[1])
        side, every = each_side(self._kernel.names, self._beside)
        sums = [pair(self._sums, lane, side, row) for row in BOTH]
        parts = [pair(part, lane, side, row) for row in BOTH]
        added = [ScalarCall("add", ends, F32, 2) for ends in zip(sums, parts, strict=True)]
        return [every([put(self._sums, lane, side, row, added[row]) for row in BOTH])]

    def _block(self, which: Index, turn: Index, count: int) -> list[Stmt]:
        """Products of the block in a buffer, of ``count``; those of the one before are done.

        What is read while others go on is what no product of another round writes, as ptxas sees.
        """
        own = Sym(self._threads[0]) * (ROWS * self._schedule.terms)
        to, before, after = self._sums, list[Stmt](), list[Stmt]()
        if self._parts:
            assert isinstance(which, int)
            to = self._parts[which % 2]
            before, after = [self._clear(to)], self._add(which - 1) if which else []
            if which == count - 1:
                after += [WaitRoutines(0), *self._add(which)]
        first, second = self._order
        arguments = (
            Argument(to.name, 0),
            Argument(self._tiles[first].name, which * self._sizes[first] + own),
            Argument(self._tiles[second].name, which * self._sizes[second]),
        )
        return [
            *before,
            WaitArrival(self._arrivals.name, which, turn),
            RoutineCall(self._multiply, arguments, beside=True),
            WaitRoutines(1),
            *after,
            Barrier(),
        ]

    # --- results

    def _slab(self, of: ResultTile, name: str, parts: PartialSums | None = None) -> EpilogueStaging:
        """Where the sums of a tile are, in memory of a ``name``."""
        s = self._schedule
        starts = of.row * s.rows, of.column * self._own
        pixels = self._pixels(of.row) if isinstance(self._left, ImageOperand) else None
        return EpilogueStaging(
            self._kernel, self._found, of.launch, of.batch, starts, s.rows, self._own,
            self._kept, self._thread, s.threads, name, pixels, parts, turned=is_turned(s),
        )  # fmt: skip

    def _pixels(self, tile: Index) -> Callable[[Index], dict[str, Index]]:
        """Which ones the rows of a tile are."""
        image, size = self._left, self._schedule.rows
        assert isinstance(image, ImageOperand)
        first = image.first(size, tile)

        def places(row: Index) -> dict[str, Index]:
            further = image.within(size, row)
            return {name: first[name] + further[name] for name in first}

        return places

    def _parts_of(self, parts: PartialSums, slab: EpilogueStaging) -> list[Stmt]:
        """The sums of this group's terms, and all of them by the last one."""
        last = parts.finished(slab.results(lambda row: row))
        return [*self._put(parts.place, parts.columns), last]

    def _results(self, slab: EpilogueStaging, early: Early) -> list[Stmt]:
        """Sums in the place of the tiles, once no warp reads these any more, and what follows."""

        def place(row: Index, column: Index) -> Argument:
            return Argument(slab.name, row * slab.pitch + column)

        sums = self._put(place, slab.pitch)
        return [Barrier(), *sums, *early.between, Barrier(), *early.rest]

    def _put(self, place: Callable[[Index, Index], Argument], pitch: int) -> list[Stmt]:
        """All sums to where a row and a column have their ``place``, rows by ``pitch``."""
        own, turned, result = Sym(self._threads[0]) * ROWS, is_turned(self._schedule), list[Stmt]()
        stored = store_turned() if turned else store_panel(self._kept)
        step = TURNED_PANEL if turned else PANEL
        for beside in range(0, self._beside, step):
            to = place(*((beside, own) if turned else (own, beside)))
            sums = Argument(self._sums.name, sums_size(beside))
            result.append(RoutineCall(stored, (to, sums), (pitch,)))
        return result
