"""Operands of products as columns (im2col): bytes of an image widened to halves, zeros around
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from modelcc.ir.argument import Argument
from modelcc.ir.condition import Condition
from modelcc.ir.index import (
    Index,
    Sym,
    coefficient,
    floordiv,
    maximum,
    minimum,
    substitute,
    symbols,
)
from modelcc.ir.loop import (
    Alloc,
    BindIndex,
    Buffer,
    Const,
    For,
    If,
    IndexOf,
    Load,
    Predicate,
    RoutineCall,
    Stmt,
    Store,
)
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import I16, I64, U8
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.nest import LoopVar
from modelcc.targets.isa.arm_dsp import SPREAD
from modelcc.targets.isa.arm_dsp_halves import SPREAD_16, SPREAD_U8
from modelcc.targets.mcu.blocks import WORD
from modelcc.targets.mcu.products import ByteOperand, Product, number_in

CLEAR = parse_function("""
func @clear(%columns: mut i16[12*n - 8]; n) {
  for k in 0 .. n {
    store %columns[12*k] = i16(0)
    store %columns[12*k + 1] = i16(0)
    store %columns[12*k + 2] = i16(0)
    store %columns[12*k + 3] = i16(0)
  }
}
""")
"""Stores zeros to a part of a column of ``dot_3x2``."""


class Mover(Protocol):
    """Stores elements for consecutive reduction steps, from a step on."""

    def bytes(self, step: Index, tensor: str, offset: Index, count: Index) -> list[Stmt]:
        """``count`` bytes ``tensor[offset…]``."""
        ...

    def border(self, step: Index, count: Index) -> list[Stmt]:
        """Padding around the image."""
        ...


@dataclass(frozen=True)
class Run:
    """Reduction steps with contiguous bytes: ``count`` elements of ``unit`` bytes along
    ``variable`` (none: one element), and the other reduction loops, outermost first."""

    variable: LoopVar | None
    count: int
    unit: int
    outer: tuple[LoopVar, ...]

    @property
    def length(self) -> int:
        """Bytes of a run."""
        return self.count * self.unit


def longest_run(product: Product) -> Run:
    """Loops along which both bytes and steps are contiguous, up to one that a border may clip."""
    inner = {v.name: v for v in product.reduce}
    bordered = {n for c in product.operand.conditions for n in symbols(c.left)} & inner.keys()
    unit, variable = 1, None
    left = list(product.reduce)
    while left and variable is None:
        following = [v for v in left if _follows(product, v, unit)]
        if not following:
            break
        (v,) = following[:1]
        left.remove(v)
        if v.name in bordered:
            variable = v
        else:
            assert isinstance(v.extent, int)
            unit *= v.extent
    outer = tuple(sorted(left, key=lambda v: -number_in(coefficient(product.place, v.name))))
    return Run(variable, number_in(variable.extent) if variable else 1, unit, outer)


def _follows(product: Product, v: LoopVar, unit: int) -> bool:
    places = product.operand.offset, product.place
    return all(coefficient(index, v.name) == unit for index in places)


@dataclass(frozen=True)
class Runs:
    """Gathers the bytes of a pixel, run by run."""

    product: Product
    run: Run
    names: FreshNames

    def statements(self, point: Mapping[str, Index], mover: Mover) -> list[Stmt]:
        """Statements for the pixel at ``point``."""
        operand = self.product.operand
        return self._each(point, [replace_left(c, point) for c in operand.conditions], mover)

    def by_lengths(self, point: Mapping[str, Index], mover: Mover) -> list[Stmt]:
        """As :meth:`statements`, with runs of constant length if the whole window is inside."""
        clipped = self.statements(point, mover)
        conditions = [self._everywhere(c) for c in self.product.operand.conditions]
        whole = [replace_left(c, point) for c in conditions]
        if all(_holds(c) for c in whole):
            return clipped
        inside = self._each(point, (), mover)
        return [If(Predicate(tuple(whole)), tuple(inside), tuple(clipped))]

    def _everywhere(self, c: Condition) -> Condition:
        """The condition that ``c`` holds for all reduction steps."""
        left = c.left
        for v in self.product.reduce:
            rising = number_in(coefficient(left, v.name)) >= 0
            left = substitute(left, {v.name: 0 if rising else number_in(v.extent) - 1})
        return Condition(left, c.comparison, c.right)

    def _each(
        self, point: Mapping[str, Index], conditions: Sequence[Condition], mover: Mover
    ) -> list[Stmt]:
        """A run for each point of the outer loops at which the conditions hold."""
        product, operand = self.product, self.product.operand
        own = self.run.variable.name if self.run.variable else ""
        along = [c for c in conditions if own and own in symbols(c.left)]
        across = tuple(c for c in conditions if c not in along and not _holds(c))
        place = substitute(product.place, {own: 0} if own else {})
        offset = substitute(operand.offset, {**point, **({own: 0} if own else {})})
        inner = {v.name: 0 for v in product.reduce if v not in self.run.outer}
        place, offset = substitute(place, inner), substitute(offset, inner)
        body: list[Stmt] = self._clipped(along, own, place, offset, mover)
        if across:
            outside = mover.border(place, self.run.length)
            body = [If(Predicate(across), tuple(body), tuple(outside))]
        for v in reversed(self.run.outer):
            body = [For(v.name, 0, v.extent, tuple(body))]
        return body

    def _clipped(
        self, along: Sequence[Condition], own: str, place: Index, offset: Index, mover: Mover
    ) -> list[Stmt]:
        """A run clipped to the image, with padding before and after."""
        count, unit, tensor = self.run.count, self.run.unit, self.product.operand.tensor
        if not along:
            return mover.bytes(place, tensor, offset, count * unit)
        first: Index = 0
        last: Index = count
        for c in along:
            rest = substitute(c.left, {own: 0})
            if coefficient(c.left, own) == 1:
                first = maximum(first, -rest)
            else:
                last = minimum(last, rest + 1)
        begin, end = self.names.fresh("first"), self.names.fresh("last")
        bound = [
            BindIndex(begin, IndexOf(minimum(first, count), I64)),
            BindIndex(end, IndexOf(maximum(last, Sym(begin)), I64)),
        ]
        a, b = Sym(begin), Sym(end)
        # With nothing left, the offset must still be valid.
        from_a, from_b = (unit * minimum(n, count - 1) for n in (a, b))
        return [
            *bound,
            *mover.border(place, unit * a),
            *mover.bytes(place + from_a, tensor, offset + from_a, unit * (b - a)),
            *mover.border(place + from_b, unit * (count - b)),
        ]


@dataclass(frozen=True)
class Gathering:
    """Makes columns of ``dot_3x2`` for pixels of a product."""

    product: Product
    run: Run
    names: FreshNames

    @property
    def fours(self) -> int:
        """Groups of four steps, the last one padded."""
        return -(-self.product.steps // WORD)

    @property
    def direct(self) -> bool:
        """Whether runs are widened directly; else by way of a row of bytes."""
        return self.run.unit % WORD == 0

    def column(
        self, point: Mapping[str, Index], columns: str, which: Index, patch: str
    ) -> list[Stmt]:
        """Gathers column ``which`` of ``columns``, of the pixel at ``point``."""
        operand, runs = self.product.operand, Runs(self.product, self.run, self.names)
        spread = _Spread(columns, WORD * which, operand)
        if self.direct:
            return runs.statements(point, spread)
        body = runs.by_lengths(point, _Elements(patch, operand, self.names))
        return [*body, *spread.bytes(0, patch, 0, WORD * self.fours)]

    def memory(self, columns: str, patch: str) -> list[Stmt]:
        """Memory of columns, with zeros as padding of steps."""
        size = 3 * WORD * self.fours
        made: list[Stmt] = [Alloc(Buffer(columns, I16, size, "local", WORD))]
        if not self.direct:
            operand, steps = self.product.operand, self.product.steps
            zero = Const(operand.zero, operand.dtype)
            made.append(Alloc(Buffer(patch, operand.dtype, WORD * self.fours, "local", WORD)))
            rest = range(steps, WORD * self.fours)
            made += [Store(patch, place, zero) for place in rest]
        return made


@dataclass(frozen=True)
class _Spread:
    """Widens to the column that begins at ``start``: halves less the zero point, in groups of
    four."""

    columns: str
    start: Index
    operand: ByteOperand

    def bytes(self, step: Index, tensor: str, offset: Index, count: Index) -> list[Stmt]:
        """Groups of four in sequence."""
        given = (Argument(tensor, offset), Argument(self.columns, 3 * step + self.start))
        fours, zero = floordiv(count, WORD), self.operand.zero
        if self.operand.dtype == I16:
            return [RoutineCall(SPREAD_16, given, (fours,))]
        if self.operand.dtype == U8:
            return [RoutineCall(SPREAD_U8, given, (fours, zero))]
        return [RoutineCall(SPREAD, given, (fours, zero + 128))]

    def border(self, step: Index, count: Index) -> list[Stmt]:
        """Zeros."""
        given = (Argument(self.columns, 3 * step + self.start),)
        return [RoutineCall(CLEAR, given, (floordiv(count, WORD),))]


@dataclass(frozen=True)
class _Elements:
    """Copies elements of the operand to a row, one by one."""

    patch: str
    operand: ByteOperand
    names: FreshNames

    def bytes(self, step: Index, tensor: str, offset: Index, count: Index) -> list[Stmt]:
        """Unchanged bytes."""
        i = self.names.fresh("i")
        value = Load(tensor, offset + Sym(i), self.operand.dtype)
        return [For(i, 0, count, (Store(self.patch, step + Sym(i), value),))]

    def border(self, step: Index, count: Index) -> list[Stmt]:
        """Zero points, which are subtracted later."""
        i, zero = self.names.fresh("i"), Const(self.operand.zero, self.operand.dtype)
        return [For(i, 0, count, (Store(self.patch, step + Sym(i), zero),))]


def replace_left(condition: Condition, point: Mapping[str, Index]) -> Condition:
    """The condition at ``point``."""
    return Condition(substitute(condition.left, point), condition.comparison, condition.right)


def _holds(condition: Condition) -> bool:
    return isinstance(condition.left, int) and condition.left >= 0
