"""Products of tiles by no more groups than the machine runs at once, each of which has several
tiles of results, one after the other, and finishes those of one while it multiplies the next.

grid g; thread warp of 128, lane
  one thread: the first blocks of terms are copied
  for each tile n = g, g + groups, … of results
    for each block of terms
      operands of a slice of the results of the tile before are asked for
      wait for its phase; sums += left tile * right tile, beside
      wait for the products of the block before, barrier
      one thread: the block that comes ``buffers - 1`` later, maybe of the next tile, is copied
      that slice: its sums, and what follows them
    all sums are put side by side into shared memory
  the results of the last tile

Warps issue what follows the sums while the units multiply, and its operands come meanwhile, so that
of a tile only the last block of terms and the writing of sums are by themselves
(the CUTLASS library's persistent kernels overlap the same two by groups of warps in turns).
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
from modelcc.targets.gpu.epilogue_prefetch import in_registers
from modelcc.targets.gpu.epilogue_staging import kept_type, slab_pitch
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching
from modelcc.targets.gpu.warpgroup_product import (
    ResultTile,
    TileProductKernel,
    find_tile_product,
    is_turned,
)
from modelcc.targets.isa.tile_products import BYTES


def lower_persistent_product(kernel: GroupKernel, schedule: TensorProduct) -> Function:
    """The function of a kernel; :class:`ScheduleError` where
    :func:`~modelcc.targets.gpu.warpgroup_product.find_tile_product` raises it, for floats of 8
    bits, and where groups have no tile each or a tile too few blocks of terms for slices of
    results."""
    dtype, boxes = find_tile_product(kernel, schedule)
    if dtype in BYTES or schedule.parts != 1:
        raise ScheduleError("groups that have several tiles multiply whole ones of 16 bits")
    return _PersistentProduct(kernel, schedule, dtype, boxes).function()


class _PersistentProduct(TileProductKernel):
    def _grid(self) -> tuple[tuple[str, Index], ...]:
        """Groups, several tiles each."""
        groups, tiles = self._schedule.groups, product(self._extents)
        if not isinstance(tiles, int) or tiles < groups:
            raise ScheduleError(f"{groups} groups have a tile each of a known number of them")
        return ((self._kernel.names.fresh("g"), groups),)

    @property
    def _kept(self) -> DType:
        """16 bits, where sums are rounded to these anyway, and columns are not the units' side."""
        return F32 if is_turned(self._schedule) else kept_type(self._kernel.group)

    def function(self) -> Function:
        """Grid, threads, and what these do."""
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
        """Tiles of rows, a divisor of all, whose columns come one after the other: those of which
        groups at the same time read the fewest rows and columns, which the cache of all units then
        has for most of them."""
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
        """All blocks of a tile, and its sums put into the ``slab``, from where the last turn's are
        finished meanwhile."""
        block = Sym(self._kernel.names.fresh("kb"))
        asked, finished = self._slice(turn, block, slab)
        body = (*asked, *self._multiplied(turn, block), *self._copied(turn, block), *finished)
        pitch = slab_pitch(self._schedule.columns, is_turned(self._schedule))

        def place(row: Index, column: Index) -> Argument:
            return Argument(slab, row * pitch + column)

        blocks = For(block.name, 0, self._blocks, body)
        return [blocks, WaitRoutines(0), *self._put(place, pitch), self._clear(self._sums)]

    def _multiplied(self, turn: Index, block: Index) -> list[Stmt]:
        """The products of a block have begun, and those of the one before are done."""
        inner, buffers = self._outer.nested(), self._schedule.buffers
        number = inner.bind("q", turn * self._blocks + block)
        which = inner.bind("slot", mod(number, buffers))
        return [*inner.statements, *self._block(which, floordiv(number, buffers), buffers)]

    def _copied(self, turn: Index, block: Index) -> list[Stmt]:
        """The block that comes when all but one buffers are used, if there is one."""
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
        """A slice of the results of the tile before, where there is one: what asks for its
        operands, and the rest.  What reads the slab is behind a barrier that is behind what wrote
        it, and before one that is before what writes it again."""
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
    """What is known of an index that is a symbol and below an ``extent``."""
    return {index.name: loop_range(extent)} if isinstance(index, Sym) else {}
