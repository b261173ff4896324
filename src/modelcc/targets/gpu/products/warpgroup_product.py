"""Contractions by wgmma, from tiles that TMA copies as boxes.

grid b, j, i; thread warp of 128, lane
  one thread: the first blocks of terms (K) are copied, a phase each
  for each block of terms
    wait for its phase
    sums += left tile * right tile, asynchronously
    wait for the products of the previous block, barrier
    one thread: the block that comes ``buffers - 1`` later is copied over that one
  before the last ones: operands of the epilogue are loaded, as registers allow
  all sums are stored contiguously to the memory of the tiles
  further operands are loaded, barrier
  results within range: sums, and their epilogue

With few rows, as in a decoder's step or small images, columns are the instruction's side of 64, and
rows the other one, of 8 or more: the sums are those of the transposed result, and are transposed
back when they are stored to shared memory.

With ``parts`` (split-K), a group has some of the terms, and stores its sums to memory; the last one
of a tile finishes them (:mod:`modelcc.targets.gpu.partial_sums`).

Products of a block run while threads wait for the next one: tensor cores stay busy.  8-bit floats,
whose accumulators have few bits, use two fragments in turns, one block each, which are added to the
sums in f32 while the products of the next block run.
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
from modelcc.targets.gpu.contraction import group_contraction
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    extent_of,
    not_implied,
    only_where,
)
from modelcc.targets.gpu.partial_sums import (
    PartialSums,
    blocks_of_part,
    partial_sums,
    place_part,
)
from modelcc.targets.gpu.products.box_operand import BoxProduct, box_product
from modelcc.targets.gpu.products.epilogue_prefetch import Early
from modelcc.targets.gpu.products.epilogue_staging import EpilogueStaging, slab_pitch
from modelcc.targets.gpu.products.fragment_elements import BOTH, each_side, pair, put
from modelcc.targets.gpu.products.image_operand import ImageOperand
from modelcc.targets.gpu.products.tensor_product import matrix_type
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
"""The instructions whose tiles are copied as boxes."""

WARPS = 128
"""Threads of a warpgroup."""

ALIGNMENT = 1024
"""Alignment of tiles, in bytes."""


def lower_tile_product(kernel: GroupKernel, schedule: TensorProduct) -> Function:
    """The function of a kernel, with a tile for each group; raises as :func:`find_tile_product`."""
    return TileProductKernel(kernel, schedule, *find_tile_product(kernel, schedule)).function()


def find_tile_product(kernel: GroupKernel, schedule: TensorProduct) -> tuple[DType, BoxProduct]:
    """The product; :class:`ScheduleError` if the kernel does not begin with a product of matrices
    of f16, bf16 or 8-bit floats that are boxes of inputs (of 8-bit floats, with contiguous terms),
    or tiles do not fit wgmma."""
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
    """Whether wgmma multiplies tiles of ``dtype`` in the layouts of ``product``."""
    return dtype in OPERANDS or (dtype in BYTES and not any(product.turned))


def is_turned(s: TensorProduct) -> bool:
    """Whether columns are the instruction's side of 64 (the tile is multiplied transposed)."""
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
    """Shared memory of a group: tiles, whole sums aliasing these, and arrival barriers.  Sums of
    persistent groups have memory of their own, ``kept`` in that type."""
    tiles = s.buffers * (s.rows + s.columns) * DEPTH_BYTES
    each = kept.bytes if s.groups else F32.bytes
    sums = s.rows * slab_pitch(s.columns, is_turned(s)) * each if s.parts == 1 else 0
    return (tiles + sums if s.groups else max(tiles, sums)) + s.buffers * I64.bytes


@dataclass(frozen=True)
class ResultTile:
    """A tile of results: its batch, its indices among columns and rows, and ``launch`` with the
    ranges of the symbols in these."""

    batch: Point
    column: Index
    row: Index
    launch: Launching


class TileProductKernel:
    """A product by groups that each have a tile of results, or a part of its terms."""

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
        """The thread's index in the group."""
        return Sym(self._threads[0]) * WARPS + Sym(self._threads[1])

    @property
    def _kept(self) -> DType:
        """The type of sums in shared memory."""
        return F32

    @cached_property
    def _blocks(self) -> int:
        """Blocks of a group."""
        terms, s = extent_of(self._found.terms), self._schedule
        blocks = blocks_of_part(ceildiv(terms, s.terms), s.parts)
        assert isinstance(blocks, int)
        return blocks

    def function(self) -> Function:
        """Grid, threads, and their statements."""
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
        """Statements that one thread executes for all."""
        return only_where((Condition(self._thread, "==", 0), *conditions), body)

    # --- blocks of terms

    def _begin(self, which: Index, block: Index, of: ResultTile) -> list[Stmt]:
        """Starts the copies of both tiles of a block to a buffer."""
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
        """Rounds through all buffers, then the remainder, or the last round if there are statements
        ``before`` it: all copies were issued by then."""
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
        """``body`` for each of ``count`` buffers from the ``first`` on; unrolled by hand where
        fragments alternate."""
        if self._parts or first >= count:
            return [s for which in range(first, count) for s in body(which)]
        which = Sym(self._kernel.names.fresh("kb"))
        return [For(which.name, first, count, tuple(body(which)), kind="unrolled")]

    def _clear(self, fragment: Buffer) -> Stmt:
        return RoutineCall(clear_sums(self._beside), (Argument(fragment.name, 0),))

    def _add(self, block: int) -> list[Stmt]:
        """Adds the sums of a block to all sums, if they are separate."""
        part, lane = self._parts[block % 2], Sym(self._threads[1])
        side, every = each_side(self._kernel.names, self._beside)
        sums = [pair(self._sums, lane, side, row) for row in BOTH]
        parts = [pair(part, lane, side, row) for row in BOTH]
        added = [ScalarCall("add", ends, F32, 2) for ends in zip(sums, parts, strict=True)]
        return [every([put(self._sums, lane, side, row, added[row]) for row in BOTH])]

    def _block(self, which: Index, turn: Index, count: int) -> list[Stmt]:
        """Issues the products of the block in a buffer, of ``count``, and waits for the previous
        one's.

        Registers that are read meanwhile are not written by products of another round, as ptxas
        sees it.
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
        """The slab for the sums of a tile, called ``name``."""
        s = self._schedule
        starts = of.row * s.rows, of.column * self._own
        pixels = self._pixels(of.row) if isinstance(self._left, ImageOperand) else None
        return EpilogueStaging(
            self._kernel, self._found, of.launch, of.batch, starts, s.rows, self._own,
            self._kept, self._thread, s.threads, name, pixels, parts, turned=is_turned(s),
        )  # fmt: skip

    def _pixels(self, tile: Index) -> Callable[[Index], dict[str, Index]]:
        """Maps rows of a tile to an image's."""
        image, size = self._left, self._schedule.rows
        assert isinstance(image, ImageOperand)
        first = image.first(size, tile)

        def places(row: Index) -> dict[str, Index]:
            further = image.within(size, row)
            return {name: first[name] + further[name] for name in first}

        return places

    def _parts_of(self, parts: PartialSums, slab: EpilogueStaging) -> list[Stmt]:
        """The sums of this group's terms, and the total by the last group."""
        last = parts.finished(slab.results(lambda row: row))
        return [*self._put(parts.place, parts.columns), last]

    def _results(self, slab: EpilogueStaging, early: Early) -> list[Stmt]:
        """Stores the sums over the tiles, once no warp reads these any more, and the epilogue."""

        def place(row: Index, column: Index) -> Argument:
            return Argument(slab.name, row * slab.pitch + column)

        sums = self._put(place, slab.pitch)
        return [Barrier(), *sums, *early.between, Barrier(), *early.rest]

    def _put(self, place: Callable[[Index, Index], Argument], pitch: int) -> list[Stmt]:
        """Stores all sums: rows and columns have a ``place``, rows a ``pitch``."""
        own, turned, result = Sym(self._threads[0]) * ROWS, is_turned(self._schedule), list[Stmt]()
        stored = store_turned() if turned else store_panel(self._kept)
        step = TURNED_PANEL if turned else PANEL
        for beside in range(0, self._beside, step):
            to = place(*((beside, own) if turned else (own, beside)))
            sums = Argument(self._sums.name, sums_size(beside))
            result.append(RoutineCall(stored, (to, sums), (pitch,)))
        return result
