"""Multistage tiles of operands for tensor cores, several of them in flight to shared memory.

A row of a tile is what is contiguous there: terms (K), or, where instructions read down the columns
of a tile, results.  Rows are padded by what a thread reads of one, to avoid bank conflicts.
Elements that are read unchanged, in aligned vectors, are copied asynchronously, and where an image
has pads that are not 0, these are stored instead; other elements pass through registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modelcc.ir.copies import CopyAsync
from modelcc.ir.index import Bounds, Index, Sym, coefficient, divides, loop_range, substitute
from modelcc.ir.loop import Buffer, Const, Expr, For, If, Predicate, Select, Splat, Stmt, Store
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Condition, Guard, Number, Read
from modelcc.ir.types import I64
from modelcc.schedule.expression import conditions_at, vectorisable
from modelcc.schedule.nest import LoopVar
from modelcc.targets.gpu.contraction import KeptFactor
from modelcc.targets.gpu.evaluation import Evaluation, only_where
from modelcc.targets.gpu.products.operand_tile import OperandTile, TileReader

VECTOR_BYTES = 16
"""Bytes that a thread moves at once."""

REGISTER, MOST_HELD = 4, 32
"""Bytes of a register, and how many registers a thread holds until products are done."""

LEAST_COPIED = 4
"""Bytes; this many, 8 and 16 can be copied asynchronously."""


def has_rows_of_terms(operand: KeptFactor) -> bool:
    """Whether terms are contiguous in its tiles: with elements of 16 and 32 bits, which
    instructions also read down the columns of a tile, only if they are contiguous in memory."""
    return operand.by_term or operand.value.dtype.bits not in (16, 32)


@dataclass(frozen=True)
class StagedTile(OperandTile):
    """``rows_of_terms``: terms are contiguous in shared memory, whatever they are in memory.  If
    ``apart``, elements that are neighbours in memory but not there are copied one by one.  Rows are
    padded by ``pad`` bytes.  Unless ``beside`` (asynchronous copies), all elements pass through
    registers."""

    rows_of_terms: bool = True
    apart: bool = False
    pad: int = VECTOR_BYTES
    beside: bool = True

    @cached_property
    def lanes(self) -> int:
        """Neighbours that a thread loads at once: those that can be copied, if there are any."""
        most = VECTOR_BYTES // self.operand.value.dtype.bytes
        copied = (lanes for lanes in _halves(most) if self._copies(lanes))
        return next(copied, None) or super().lanes

    @property
    def pitch(self) -> int:
        """Elements from a row of the tile to the next one."""
        row = self.depth if self.rows_of_terms else self.size
        return row + self.pad // self.operand.value.dtype.bytes

    @property
    def elements(self) -> int:
        """Elements of one buffer."""
        return (self.size if self.rows_of_terms else self.depth) * self.pitch

    @cached_property
    def buffer(self) -> Buffer:
        """The shared memory."""
        return Buffer(self.name, self.operand.value.dtype, self.buffers * self.elements, "shared")

    def offset(self, which: Index, term: Index, result: Index) -> Index:
        row, column = (result, term) if self.rows_of_terms else (term, result)
        return which * self.elements + row * self.pitch + column

    @property
    def stride(self) -> int:
        return 1 if self.rows_of_terms == self.operand.by_term else self.pitch

    @property
    def copied(self) -> Guard | Read | None:
        """What is copied, maybe under a guard; None if elements pass through registers."""
        if not self.beside:
            return None
        value = self.operand.value
        return value if isinstance(value, Guard | Read) and self._copies(self.lanes) else None

    @property
    def _neighbours(self) -> tuple[LoopVar, int]:
        """The loop along which neighbours in memory lie, and its extent in a tile."""
        if self.operand.by_term:
            return self.terms[-1], self.depth
        return self.along[-1], self.size

    def _copies(self, lanes: int) -> bool:
        """Whether the operand is read unchanged, in aligned vectors of ``lanes``."""
        value = self.operand.value
        inside = value.inside if isinstance(value, Guard) else value
        if isinstance(value, Guard) and not isinstance(value.outside, Number):
            return False
        if not isinstance(inside, Read) or lanes * value.dtype.bytes < LEAST_COPIED:
            return False
        if self.stride != 1 or lanes == 1:
            return self.stride == 1 or (self.apart and lanes == 1)
        last, count = self._neighbours
        whole = isinstance(last.extent, int) and last.extent % lanes == 0 == count % lanes
        return whole and vectorisable(value, last.name, lanes) and _whole(inside, last.name, lanes)


def _halves(most: int) -> Iterator[int]:
    while most:
        yield most
        most //= 2


def _whole(read: Read, last: str, lanes: int) -> bool:
    """Whether ``read`` has stride 1 along ``last``, and else multiples of ``lanes``."""
    (index,) = read.indices
    return coefficient(index, last) == 1 and divides(lanes, substitute(index, {last: 0}), {})


@dataclass
class TileCopier(TileReader):
    """A reader of a :class:`StagedTile`: what can be copied is, when it is fetched."""

    @property
    def _copied(self) -> Guard | Read | None:
        assert isinstance(self.tile, StagedTile)
        return self.tile.copied

    @property
    def in_turn(self) -> bool:
        size = self.tile.lanes * self.tile.operand.value.dtype.bytes
        return self._copied is None and self.tile.vectors * -(-size // REGISTER) > MOST_HELD

    @property
    def holds(self) -> bool:
        """Whether elements are in registers until they are :meth:`put`."""
        return self._copied is None and not self.in_turn

    def begin(self, which: Index, block: Index, evaluation: Evaluation, ranges: Bounds) -> None:
        """Copies the elements of ``block`` to a buffer, or loads them for :meth:`put`."""
        copied = self._copied
        if copied is not None:
            for number in range(self.tile.vectors):
                self._copy(number, copied, which, block, evaluation, ranges)
        elif self.in_turn:
            self._move(which, block, evaluation, ranges)
        else:
            self.fetch(block, evaluation, ranges)

    def _move(self, which: Index, block: Index, outer: Evaluation, ranges: Bounds) -> None:
        """Moves them to a buffer, vector by vector."""
        number, inner = self.tile.names.fresh("n"), outer.nested()
        ranges = {**ranges, number: loop_range(self.tile.vectors)}
        value = self.element(Sym(number), block, inner, ranges)
        body = (*inner.statements, *self.stored(Sym(number), which, value, ranges))
        outer.statements.append(For(number, 0, self.tile.vectors, body))

    def _copy(
        self, number: int, value: Guard | Read, which: Index, block: Index, outer: Evaluation,
        ranges: Bounds,
    ) -> None:  # fmt: skip
        tile = self.tile
        there = self.in_operand(number, block, ranges)
        inner = outer.beside()
        point = self.point(number, block, inner, ranges)
        guarded = value.conditions if isinstance(value, Guard) else ()
        inside = conditions_at(guarded, point)
        (read,) = reads(value)
        padding = _padding(value)
        needed = there if padding is not None else (*there, *(inside or ()))
        active = 0 if inside is None else _active(needed, tile.lanes, inner)
        result, term = tile.place(self.thread, number)
        to = tile.offset(which, term, result)
        place = substitute(read.indices[0], point)
        moved: Stmt = CopyAsync(tile.name, to, read.tensor, place, tile.lanes, active)
        if padding is not None and (inside is None or inside):
            pads = Store(tile.name, to, _where(there, padding, tile.lanes))
            moved = pads if inside is None else If(Predicate(inside), (moved,), (pads,))
        outer.statements += only_where(self.in_tile(number, self.ranges), [moved])


def _padding(value: Guard | Read) -> Const | None:
    """What is outside an image, if that is not 0, which copies write themselves."""
    if not isinstance(value, Guard) or not isinstance(value.outside, Number):
        return None
    return Const(value.outside.value, value.dtype) if value.outside.value else None


def _where(conditions: Sequence[Condition], value: Const, lanes: int) -> Expr:
    """``value`` in all lanes where ``conditions`` hold, else 0."""
    if not conditions:
        return replace(value, lanes=lanes)
    found = Select(Predicate(tuple(conditions)), value, Const(0, value.dtype))
    return found if lanes == 1 else Splat(found, lanes)


def _active(conditions: Sequence[Condition], lanes: int, evaluation: Evaluation) -> Index | None:
    """All lanes where ``conditions`` hold, else none."""
    if not conditions:
        return None
    predicate = Predicate(tuple(conditions))
    count = Select(predicate, Const(lanes, I64), Const(0, I64))
    return evaluation.bind_value("n", count)
