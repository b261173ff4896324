"""Persistent products: no more groups than the machine runs at once, each of which computes several
tiles of results, and finishes one of them while it multiplies the next.

grid g; thread warp of 128, lane
  one thread: the first blocks of terms (K) are copied
  for each tile n = g, g + groups, … of results
    for each block of terms
      operands of a slice of the previous tile's results are loaded
      wait for its phase; sums += left tile * right tile, asynchronously
      wait for the products of the previous block, barrier
      one thread: the block that comes ``buffers - 1`` later, maybe of the next tile, is copied
      that slice: its sums, and their epilogue
    all sums are stored to shared memory contiguously
  the results of the last tile

Warps issue the epilogue while the tensor cores multiply, and its operands are loaded meanwhile, so
that only the last block of terms of a tile and the stores of its sums are not overlapped (CUTLASS's
persistent kernels overlap the same by alternating warpgroups, "ping-pong").
"""

from __future__ import annotations

from modelcc.ir.argument import Argument
from modelcc.ir.index import (
    Index,
    Range,
    Sym,
    ceildiv,
    floordiv,
    loop_range,
    mod,
    product,
    simplify,
)
from modelcc.ir.loop import Alloc, Barrier, For, Function, If, Predicate, Stmt
from modelcc.ir.tensor import Condition
from modelcc.ir.tiles import WaitRoutines
from modelcc.ir.types import F32, DType
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching
from modelcc.targets.gpu.products.epilogue_prefetch import in_registers
from modelcc.targets.gpu.products.epilogue_staging import kept_type, slab_pitch
from modelcc.targets.gpu.products.warpgroup_product import (
    ResultTile,
    TileProductKernel,
    find_tile_product,
    is_turned,
)
from modelcc.targets.isa.tile_products import BYTES


def lower_persistent_product(kernel: GroupKernel, schedule: TensorProduct) -> Function:
    """The function of a kernel; :class:`ScheduleError` where
    :func:`~modelcc.targets.gpu.products.warpgroup_product.find_tile_product` raises it, for 8-bit
    floats, and where groups would have no tile each or a tile has too few blocks of terms for
    slices of results."""
    dtype, boxes = find_tile_product(kernel, schedule)
    if dtype in BYTES or schedule.parts != 1:
        raise ScheduleError("groups that have several tiles multiply whole ones of 16 bits")
    return _PersistentProduct(kernel, schedule, dtype, boxes).function()


class _PersistentProduct(TileProductKernel):
    def _grid(self) -> tuple[tuple[str, Index], ...]:
        """Groups with several tiles each."""
        groups, tiles = self._schedule.groups, product(self._extents)
        if not isinstance(tiles, int) or tiles < groups:
            raise ScheduleError(f"{groups} groups have a tile each of a known number of them")
        return ((self._kernel.names.fresh("g"), groups),)

    @property
    def _kept(self) -> DType:
        """16 bits, where sums are rounded to these anyway, and the tile is not transposed."""
        return F32 if is_turned(self._schedule) else kept_type(self._kernel.group)

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, names, s = self._outer, self._kernel.names, self._schedule
        ahead = s.buffers - 1
        if self._blocks < s.buffers:
            raise ScheduleError(f"{self._blocks} blocks of terms are fewer than {s.buffers}")
        slab, turn = names.fresh("slab"), Sym(names.fresh("n"))
        begun = outer.nested()
        tile = self._tile(begun, 0)
        for block in range(ahead):
            begun.statements += self._begin(block, block, tile)
        outer.statements += [Alloc(self._sums), self._clear(self._sums)]
        outer.statements += self._by_one(begun.statements)
        outer.statements.append(For(turn.name, 0, self._count, tuple(self._turn(turn, slab))))
        last = self._slab(self._tile(outer, self._count - 1), slab)
        early = last.early(lambda row: row, self._schedule.ahead)
        outer.statements += [*early.before, *early.between, Barrier(), *early.rest]
        shared = [Alloc(b) for b in (*self._tiles, last.buffer, self._arrivals)]
        return self._kernel.function(self._launch.around(shared, outer.statements))

    @property
    def _group(self) -> Index:
        return Sym(self._launch.grid[0][0])

    @property
    def _count(self) -> Index:
        """Tiles of a group."""
        tiles, groups = product(self._extents), self._schedule.groups
        return ceildiv(tiles - self._group, groups)

    @property
    def _band(self) -> int:
        """Tiles of rows, a divisor of all, whose columns come one after the other: the number for
        which concurrent groups read the fewest rows and columns, so that L2 serves most of them."""
        s, (_, columns, rows) = self._schedule, self._extents
        assert isinstance(columns, int) and isinstance(rows, int)

        def read(band: int) -> int:
            beside = min(columns, -(-s.groups // band))
            return -(-s.groups // beside) * s.rows + beside * s.columns

        return min((n for n in range(1, rows + 1) if rows % n == 0), key=read)

    def _tile(self, at: Evaluation, turn: Index) -> ResultTile:
        """The group's tile number ``turn``, in bands of rows."""
        (batch, columns, rows), band = self._extents, self._band
        number = at.bind("tile", self._group + turn * self._schedule.groups)
        ranges = {**self._launch.ranges, **_below(number, batch * columns * rows)}
        within = floordiv(mod(number, columns * rows), columns * band) * band + mod(number, band)
        row = at.bind("gi", simplify(within, ranges))
        column = at.bind("gj", simplify(mod(floordiv(number, band), columns), ranges))
        one = at.bind("gb", simplify(floordiv(number, columns * rows), ranges))
        extents = (one, batch), (column, columns), (row, rows)
        known = tuple((i.name, n) for i, n in extents if isinstance(i, Sym))
        launch = Launching((*self._launch.grid, *known), self._launch.threads, self._kernel.dims)
        found = self._found.batch
        place = at.place(found, one, launch.ranges) if found else {}
        return ResultTile(place, column, row, launch)

    def _turn(self, turn: Index, slab: str) -> list[Stmt]:
        """All blocks of a tile, whose sums are then stored to the ``slab``; the previous tile's are
        finished from there meanwhile."""
        block = Sym(self._kernel.names.fresh("kb"))
        asked, finished = self._slice(turn, block, slab)
        body = (*asked, *self._multiplied(turn, block), *self._copied(turn, block), *finished)
        pitch = slab_pitch(self._schedule.columns, is_turned(self._schedule))

        def place(row: Index, column: Index) -> Argument:
            return Argument(slab, row * pitch + column)

        blocks = For(block.name, 0, self._blocks, body)
        return [blocks, WaitRoutines(0), *self._put(place, pitch), self._clear(self._sums)]

    def _multiplied(self, turn: Index, block: Index) -> list[Stmt]:
        """Issues the products of a block, and waits for those of the previous one."""
        inner, buffers = self._outer.nested(), self._schedule.buffers
        number = inner.bind("q", turn * self._blocks + block)
        which = inner.bind("slot", mod(number, buffers))
        return [*inner.statements, *self._block(which, floordiv(number, buffers), buffers)]

    def _copied(self, turn: Index, block: Index) -> list[Stmt]:
        """Copies the block that comes ``buffers - 1`` later, if there is one."""
        inner, ahead = self._outer.nested(), self._schedule.buffers - 1
        later = inner.bind("later", block + ahead)
        tile = self._tile(inner, turn + floordiv(later, self._blocks))
        which = mod(turn * self._blocks + later, self._schedule.buffers)
        copies = self._begin(inner.bind("free", which), mod(later, self._blocks), tile)
        there = Condition(turn + floordiv(block + ahead, self._blocks), "<", self._count)
        return self._by_one([*inner.statements, *copies], there)

    def _slice(
        self, turn: Index, block: Index, slab: str
    ) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
        """A slice of the previous tile's results, if there is one: the loads of its operands, and
        the rest. Barriers separate its reads of the slab from the writes before and after."""
        inner = self._outer.nested()
        before = self._slab(self._tile(inner, turn - 1), slab)
        slices = before.slices(self._blocks - 1)
        if slices is None:
            raise ScheduleError(f"{self._blocks} blocks of terms are too few to finish results by")
        asked = before.slice(block, slices, lambda row: row)
        early, place = in_registers(asked, self._kernel.names.fresh), tuple(inner.statements)
        earlier = Predicate((Condition(turn, ">=", 1), Condition(block, "<", slices)))
        rest = If(earlier, (*place, *early.rest))
        if not early.asked:
            return (), (rest,)
        return (*early.registers, If(earlier, (*place, *early.asked))), (rest,)


def _below(index: Index, extent: Index) -> dict[str, Range]:
    """The range of an index that is a symbol less than an ``extent``."""
    return {index.name: loop_range(extent)} if isinstance(index, Sym) else {}
