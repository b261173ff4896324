"""A tile of an operand in shared memory: which thread loads which of its elements (coalesced), and
where they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modelcc.ir.index import Bounds, Index, Sym, floordiv, mod
from modelcc.ir.loop import (
    Assign,
    Buffer,
    Const,
    Convert,
    Expr,
    Let,
    Load,
    MulAdd,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.tensor import Condition
from modelcc.schedule.expression import FreshNames, vectorisable
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import LoopVar
from modelcc.targets.gpu.contraction import KeptFactor
from modelcc.targets.gpu.evaluation import Evaluation, Point, extent_of, not_implied, only_where
from modelcc.targets.gpu.machine import SECTOR_BYTES


def vector_lanes(
    operand: KeptFactor,
    along: Sequence[LoopVar],
    terms: Sequence[LoopVar],
    tile: tuple[int, int],
    most: int,
) -> int:
    """Neighbours that are loaded at once, up to ``most``, of a ``tile`` of results by terms (K)."""
    size, depth = tile
    last, count = (terms[-1], depth) if operand.by_term else (along[-1], size)
    lanes = most
    while lanes > 1:
        whole = isinstance(last.extent, int) and last.extent % lanes == 0 == count % lanes
        if whole and vectorisable(operand.value, last.name, lanes):
            return lanes
        lanes //= 2
    return 1


@dataclass(frozen=True)
class OperandTile:
    """``size`` results by ``depth`` terms of ``operand``, loaded by ``threads``, in each of
    ``buffers``; vectors have up to ``most_lanes``."""

    operand: KeptFactor
    along: tuple[LoopVar, ...]
    terms: tuple[LoopVar, ...]
    size: int
    depth: int
    threads: int
    most_lanes: int
    buffers: int
    names: FreshNames
    name: str

    @cached_property
    def lanes(self) -> int:
        """Neighbours that a thread loads at once."""
        tile = self.size, self.depth
        return vector_lanes(self.operand, self.along, self.terms, tile, self.most_lanes)

    @property
    def pitch(self) -> int:
        """Elements from a term to the next one; vectors of terms are stored to different banks."""
        return self.size + (self.most_lanes if self.operand.by_term else 0)

    @cached_property
    def buffer(self) -> Buffer:
        """The shared memory."""
        count = self.buffers * self.depth * self.pitch
        return Buffer(self.name, self.operand.value.dtype, count, "shared")

    def place(self, thread: Index, number: Index) -> tuple[Index, Index]:
        """Result and term, in the tile, of a thread's vector ``number``.

        Single terms are loaded a sector of a row at a time, then that of the next row: they are
        stored to different banks, whereas more terms of a row would conflict.
        """
        vector = thread + number * self.threads
        if self.operand.packed:
            return mod(vector, self.size), floordiv(vector, self.size) * self.lanes
        if self.operand.by_term and self.lanes == 1:
            found = self._by_sectors(thread, number)
            if found:
                return found
        inner = (self.depth if self.operand.by_term else self.size) // self.lanes
        near, far = mod(vector, inner) * self.lanes, floordiv(vector, inner)
        return (far, near) if self.operand.by_term else (near, far)

    def _by_sectors(self, thread: Index, number: Index) -> tuple[Index, Index] | None:
        """The index by sectors, if all threads' numbers have the same distances."""
        sector = SECTOR_BYTES // self.buffer.dtype.bytes
        rows, own = self.threads // sector, floordiv(thread, sector)
        if self.threads % sector or self.depth % sector or not isinstance(number, int):
            return None
        if self.size % rows == 0:
            turns, term = self.size // rows, mod(thread, sector)
            return own + number % turns * rows, term + number // turns * sector
        if rows % self.size:
            return None
        columns = floordiv(own, self.size) + number * (rows // self.size)
        return mod(own, self.size), mod(thread, sector) + columns * sector

    @property
    def vectors(self) -> int:
        """Vectors of a thread; the last ones may be outside the tile."""
        return -(-self.size * self.depth // self.lanes // self.threads)

    def offset(self, which: Index, term: Index, result: Index) -> Index:
        """The index of an element in shared memory."""
        return (which * self.depth + term) * self.pitch + result

    @property
    def stride(self) -> int:
        """The distance of neighbours of a vector in shared memory."""
        return self.pitch if self.operand.by_term else 1

    def at(self, which: Index, term: Index, result: Index, lanes: int) -> Expr:
        """Elements of a buffer, as operands of products."""
        value = Load(self.name, self.offset(which, term, result), self.buffer.dtype, lanes)
        return value if value.dtype == self.operand.dtype else Convert(value, self.operand.dtype)


@dataclass
class TileReader:
    """Statements of one ``thread`` that fill a tile whose results begin at ``start``."""

    tile: OperandTile
    thread: Index
    start: Index
    ranges: Bounds
    outer: Evaluation
    batch: Point
    _held: list[tuple[int, Expr]] = field(default_factory=list[tuple[int, Expr]])

    def __post_init__(self) -> None:
        """Results' indices do not change from block to block."""
        numbers = range(0 if self.in_turn else self.tile.vectors)
        self._results = [self._result(number, self.outer, self.ranges) for number in numbers]

    @property
    def in_turn(self) -> bool:
        """Whether a thread stores what it has loaded before it loads more."""
        return False

    def _result(self, number: Index, evaluation: Evaluation, ranges: Bounds) -> dict[str, Index]:
        tile = self.tile
        position = self.start + tile.place(self.thread, number)[0]
        lanes = 1 if tile.operand.by_term else tile.lanes
        return evaluation.place_vector(tile.along, floordiv(position, lanes), lanes, ranges)

    def fetch(self, block: Index, evaluation: Evaluation, ranges: Bounds) -> None:
        """Loads this thread's elements of ``block``, 0 outside of the operand."""
        self._held = [
            (number, self.element(number, block, evaluation, ranges))
            for number in range(self.tile.vectors)
        ]

    def in_operand(self, number: Index, block: Index, ranges: Bounds) -> tuple[Condition, ...]:
        """The conditions that vector ``number`` is inside the operand, unless they always hold."""
        tile = self.tile
        result, term = tile.place(self.thread, number)
        conditions = (
            Condition(self.start + result, "<", extent_of(tile.along)),
            Condition(block * tile.depth + term, "<", extent_of(tile.terms)),
        )
        return not_implied(conditions, ranges)

    def in_tile(self, number: Index, ranges: Bounds) -> tuple[Condition, ...]:
        """The conditions that vector ``number`` is inside the tile, unless they always hold."""
        tile = self.tile
        count = tile.size * tile.depth // tile.lanes
        there = Condition(self.thread + number * tile.threads, "<", count)
        return not_implied((there,), ranges)

    def point(
        self, number: Index, block: Index, evaluation: Evaluation, ranges: Bounds
    ) -> dict[str, Index]:
        """The point of the first element of vector ``number``."""
        tile = self.tile
        position = block * tile.depth + tile.place(self.thread, number)[1]
        lanes = tile.lanes if tile.operand.by_term else 1
        place = evaluation.place_vector
        terms = place(tile.terms, floordiv(position, lanes), lanes, ranges)
        found = isinstance(number, int)
        result = self._results[number] if found else self._result(number, evaluation, ranges)
        return {**self.batch, **result, **terms}

    def element(self, number: Index, block: Index, evaluation: Evaluation, ranges: Bounds) -> Expr:
        """What a thread loads as its vector ``number`` of ``block``."""
        tile = self.tile
        left = (*self.in_operand(number, block, ranges), *self.in_tile(number, ranges))
        lane = tile.names.fresh("l")
        inner = Evaluation(tile.names, lanes=Lanes(lane, tile.lanes) if tile.lanes > 1 else None)
        point = self.point(number, block, inner, ranges)
        if tile.lanes > 1:
            last = (tile.terms if tile.operand.by_term else tile.along)[-1].name
            point[last] = point[last] + Sym(lane)
        found = widen(inner.value(tile.operand.value, point), tile.lanes)
        if not left:
            evaluation.statements += inner.statements
            return evaluation.named("e", found)
        value = evaluation.register("e", Const(0, found.dtype, tile.lanes))
        inner.statements.append(Assign(value.name, found))
        evaluation.statements += only_where(left, inner.statements)
        return value

    def put(self, which: Index) -> list[Stmt]:
        """Stores what was loaded to a buffer."""
        held = self._held
        return [s for number, value in held for s in self.stored(number, which, value, self.ranges)]

    def stored(self, number: Index, which: Index, value: Expr, ranges: Bounds) -> list[Stmt]:
        """Stores vector ``number``."""
        tile = self.tile
        result, term = tile.place(self.thread, number)
        store = Store(tile.name, tile.offset(which, term, result), value, tile.stride)
        return only_where(self.in_tile(number, ranges), [store])


def multiplied(
    names: FreshNames, rows: Sequence[Expr], columns: Sequence[Expr], sums: Sequence[Sequence[Var]]
) -> list[Stmt]:
    """The outer product of ``rows`` and ``columns`` is added to ``sums``."""
    body: list[Stmt] = []

    def named(value: Expr) -> Var:
        name = names.fresh("f")
        body.append(Let(name, value))
        return Var(name, value.dtype, value.lanes)

    left, right = [named(row) for row in rows], [named(column) for column in columns]
    for row, line in zip(left, sums, strict=True):
        for column, total in zip(right, line, strict=True):
            product = MulAdd(widen(row, total.lanes), column, total)
            body.append(Assign(total.name, product))
    return body
