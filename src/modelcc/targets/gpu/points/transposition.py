"""Transposes and other element-wise kernels that read an operand across the direction in which they
write: by square tiles.

grid g: a tile of ``side`` by ``side`` elements, along the axis in which results are contiguous and
that in which the operand is; thread t
  elements of the operand, coalesced, to shared memory
  barrier
  results, coalesced, from the columns of the tile

Rows of the tile are padded by one word, so that elements of a column, as those of a row, are in
different banks (G. Ruetsch and P. Micikevicius, "Optimizing matrix transpose in CUDA", NVIDIA,
2009).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, ceildiv, coefficient, floordiv, mod
from modelcc.ir.loop import Alloc, Barrier, Buffer, Function, Stmt, Store
from modelcc.ir.scalar_tree import children, transform
from modelcc.ir.tensor import Bind, Condition, Guard, Read, Scalar
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import GroupTranspose
from modelcc.schedule.lanes import Lanes
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.points.pointwise import takes_lanes

WORD = 4
"""Bytes of a bank of shared memory."""


@dataclass(frozen=True)
class Crossing:
    """``operands`` of an element-wise kernel that are contiguous along ``across``, while results
    are along ``beside``."""

    across: LoopVar
    beside: LoopVar
    operands: tuple[Read, ...]


def find_crossing(group: Group) -> Crossing | None:
    """Operands of ``group`` that are contiguous along another axis than results; None if none."""
    loops = group.final.parallel
    stored = [nest for nest in group.nests if nest.output in group.stored]
    if group.anchor is not None or len(loops) < 2:
        return None
    *others, beside = loops
    if any(coefficient(nest.store, beside.name) != 1 for nest in stored):
        return None
    found: dict[str, list[Read]] = {}
    for read in (r for nest in group.nests for r in _plain_reads(nest.body)):
        (index,) = read.indices
        step = coefficient(index, beside.name)
        across = [v.name for v in others if coefficient(index, v.name) == 1]
        if step not in (None, 0, 1) and len(across) == 1:
            found.setdefault(across[0], []).append(read)
    if not found:
        return None
    name = max(found, key=lambda name: len(found[name]))
    across_loop = next(v for v in others if v.name == name)
    return Crossing(across_loop, beside, tuple(dict.fromkeys(found[name])))


def _plain_reads(scalar: Scalar) -> Iterator[Read]:
    """Reads of tensors in memory whose indices depend on the point only."""
    match scalar:
        case Read(indices=(_,)):
            yield scalar
        case Bind() | Guard():
            return
        case _:
            for part in children(scalar):
                yield from _plain_reads(part)


def pitch(operand: Read, side: int) -> int:
    """Elements from a row of the tile of ``operand`` to the next one."""
    return side + max(WORD // operand.dtype.bytes, 1)


def transposed_bytes(crossing: Crossing, side: int) -> int:
    """Bytes of shared memory of a group."""
    return sum(side * pitch(o, side) * o.dtype.bytes for o in crossing.operands)


def reads_vectors(crossing: Crossing, lanes: int) -> bool:
    """Whether operands can be loaded in whole vectors."""
    if lanes == 1:
        return True
    extent = crossing.across.extent
    if not isinstance(extent, int) or extent % lanes:
        return False
    return all(vectorisable(o, crossing.across.name, lanes) for o in crossing.operands)


def lower_transpose(kernel: GroupKernel, schedule: GroupTranspose) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it has no such operand, or threads have
    no whole vectors."""
    group, s = kernel.group, schedule
    crossing = find_crossing(group)
    if crossing is None or kernel.leaves:
        raise ScheduleError("nothing is read across the way in which results lie")
    whole = s.side % s.read == 0 == s.side % s.lanes and s.threads >= 1 and s.side >= 1
    vectors = s.read in (1, 2, 4, 8) and s.lanes in (1, 2, 4, 8)
    if not (whole and vectors and reads_vectors(crossing, s.read) and takes_lanes(group, s.lanes)):
        raise ScheduleError("tiles are whole vectors of threads: side, read, lanes")
    return _TileThreads(kernel, crossing, s).function()


class _TileThreads:
    def __init__(self, kernel: GroupKernel, crossing: Crossing, s: GroupTranspose) -> None:
        self._kernel, self._crossing, self._s = kernel, crossing, s
        fresh = kernel.names.fresh
        g, t = fresh("g"), fresh("t")
        sides = (crossing.across, crossing.beside)
        tiles = [LoopVar(fresh("n"), ceildiv(v.extent, s.side), "") for v in sides]
        outer = [v for v in kernel.group.final.parallel if v not in sides]
        loops = (*outer, *tiles)
        self._thread: Index = Sym(t)
        self._launch = Launching(((g, extent_of(loops)),), ((t, s.threads),), kernel.dims)
        self._outer = Evaluation(kernel.names)
        self._point = self._outer.place(loops, Sym(g))
        self._numbers = [self._point[v.name] for v in tiles]
        self._tiles = {
            o: Buffer(fresh("tile"), o.dtype, s.side * pitch(o, s.side), "shared")
            for o in crossing.operands
        }
        self._row, self._column = fresh("row"), fresh("column")

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        for number in range(self._vectors(self._s.read)):
            self._outer.statements += self._read(number)
        self._outer.statements.append(Barrier())
        for number in range(self._vectors(self._s.lanes)):
            self._outer.statements += self._write(number)
        shared = [Alloc(tile) for tile in self._tiles.values()]
        return self._kernel.function(self._launch.around(shared, self._outer.statements))

    def _vectors(self, lanes: int) -> int:
        """Vectors that a thread moves; the last ones may be outside the tile."""
        return -(-self._s.side * self._s.side // (lanes * self._s.threads))

    def _places(self, number: int, lanes: int) -> tuple[Index, Index, tuple[Condition, ...]]:
        """Line of a tile, and vector there, of a thread; the conditions that these exist."""
        side, vector = self._s.side, self._thread + number * self._s.threads
        line, own = floordiv(vector, side // lanes), mod(vector, side // lanes)
        total = side * side // lanes
        inside = (number + 1) * self._s.threads <= total
        return line, own, () if inside else (Condition(vector, "<", total),)

    def _at(
        self, at: Evaluation, owns: tuple[Index, Index], lanes: tuple[int, int]
    ) -> tuple[Point, tuple[Condition, ...]]:
        """The first points of vectors of a tile, by their indices along both sides; the conditions
        that they are in range."""
        sides = (self._crossing.across, self._crossing.beside)
        point, there = dict(self._point), list[Condition]()
        for v, tile, own, count in zip(sides, self._numbers, owns, lanes, strict=True):
            place = at.bind(v.name, tile * (self._s.side // count) + own) * count
            if not (isinstance(v.extent, int) and v.extent % self._s.side == 0):
                there.append(Condition(place, "<", v.extent))
            point[v.name] = place
        return point, tuple(there)

    def _read(self, number: int) -> list[Stmt]:
        """A vector of each operand to its tile."""
        lanes, across = self._s.read, self._crossing.across.name
        row, own, mine = self._places(number, lanes)
        outside, inner, lane = self._vector(lanes)
        point, there = self._at(outside, (own, row), (lanes, 1))
        point = {**point, across: point[across] + lane}
        for operand, tile in self._tiles.items():
            value = inner.value(operand, point)
            offset = row * pitch(operand, self._s.side) + own * lanes
            inner.statements.append(Store(tile.name, offset, value))
        outside.statements += only_where(there, inner.statements)
        return only_where(mine, outside.statements)

    def _write(self, number: int) -> list[Stmt]:
        """A vector of results."""
        lanes, beside = self._s.lanes, self._crossing.beside.name
        column, own, mine = self._places(number, lanes)
        outside, inner, lane = self._vector(lanes)
        point, there = self._at(outside, (column, own), (1, lanes))
        point = {**point, beside: point[beside] + lane}
        tile = {self._row: own * lanes + lane, self._column: column}
        inner.finish(self._staged(), {**point, **tile}, ())
        outside.statements += only_where(there, inner.statements)
        return only_where(mine, outside.statements)

    def _vector(self, lanes: int) -> tuple[Evaluation, Evaluation, Index]:
        """Evaluations outside and inside of vectors, and the index of an element of one."""
        outside, lane = Evaluation(self._kernel.names), self._kernel.names.fresh("l")
        if lanes == 1:
            return outside, outside.nested(), 0
        return outside, outside.nested(Lanes(lane, lanes)), Sym(lane)

    def _staged(self) -> Group:
        """The kernel's stages, reading tiles."""
        group, side = self._kernel.group, self._s.side

        def visit(node: Scalar) -> Scalar:
            tile = self._tiles.get(node) if isinstance(node, Read) else None
            if tile is None or not isinstance(node, Read):
                return node
            place = Sym(self._row) * pitch(node, side) + Sym(self._column)
            return Read(tile.name, (place,), node.dtype)

        nests = (replace(nest, body=transform(nest.body, visit)) for nest in group.nests)
        return replace(group, nests=tuple(nests))
