"""Complex numbers, and matrices of them, inside loop functions: one value at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from modelcc.ir.algorithm import AlgorithmBuilder, call, number
from modelcc.ir.compute import Operand
from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer, Expr, Select, Var


@dataclass(frozen=True)
class ComplexNumber:
    """A number inside a loop function."""

    at: AlgorithmBuilder
    re: Expr
    im: Expr

    def _made(self, re: Expr, im: Expr) -> ComplexNumber:
        return ComplexNumber(self.at, self.at.let(re), self.at.let(im))

    def __add__(self, other: ComplexNumber) -> ComplexNumber:
        return self._made(call("add", self.re, other.re), call("add", self.im, other.im))

    def __sub__(self, other: ComplexNumber) -> ComplexNumber:
        return self._made(call("sub", self.re, other.re), call("sub", self.im, other.im))

    def __mul__(self, other: ComplexNumber) -> ComplexNumber:
        re = call("sub", call("mul", self.re, other.re), call("mul", self.im, other.im))
        im = call("add", call("mul", self.re, other.im), call("mul", self.im, other.re))
        return self._made(re, im)

    def __truediv__(self, other: ComplexNumber) -> ComplexNumber:
        """Operands are of moderate size, for matrices are scaled."""
        square = self.at.let(call("mul", other.size, other.size))
        found = self * other.conjugate
        return self._made(call("div", found.re, square), call("div", found.im, square))

    @property
    def conjugate(self) -> ComplexNumber:
        return ComplexNumber(self.at, self.re, call("neg", self.im))

    @property
    def size(self) -> Var:
        square = call("add", call("mul", self.re, self.re), call("mul", self.im, self.im))
        return self.at.let(call("sqrt", square))

    def scaled(self, factor: Expr) -> ComplexNumber:
        return self._made(call("mul", self.re, factor), call("mul", self.im, factor))

    def where(self, condition: Expr, other: ComplexNumber) -> ComplexNumber:
        """Itself if ``condition`` holds."""
        re, im = Select(condition, self.re, other.re), Select(condition, self.im, other.im)
        return self._made(re, im)

    def root(self) -> ComplexNumber:
        """The square root with a real part that is not negative."""
        zero, two = number(0.0, self.re.dtype), number(2.0, self.re.dtype)
        half = call("div", call("add", self.size, call("abs", self.re)), two)
        great = self.at.let(call("sqrt", half))
        none = self.at.let(call("eq", great, zero))
        safe = Select(none, number(1.0, self.re.dtype), great)
        small = self.at.let(call("div", self.im, call("mul", two, safe)))
        turned = Select(call("lt", self.im, zero), call("neg", great), great)
        left = self._made(call("abs", small), turned)
        return self._made(great, small).where(call("ge", self.re, zero), left)


@dataclass(frozen=True)
class ComplexLine:
    """Complex numbers ``step`` apart in the memory of their real and of their imaginary parts."""

    re: Buffer | Operand
    im: Buffer | Operand
    start: Index
    step: Index = 1

    def load(self, at: AlgorithmBuilder, place: Index) -> ComplexNumber:
        offset = self.start + place * self.step
        return ComplexNumber(at, at.let(at.load(self.re, offset)), at.let(at.load(self.im, offset)))

    def store(self, at: AlgorithmBuilder, place: Index, value: ComplexNumber) -> None:
        offset = self.start + place * self.step
        at.store(self.re, offset, value.re)
        at.store(self.im, offset, value.im)


@dataclass(frozen=True)
class ComplexSquare:
    """A matrix of ``n`` rows of complex numbers."""

    re: Buffer | Operand
    im: Buffer | Operand
    start: Index
    n: Index

    def row(self, number: Index) -> ComplexLine:
        return ComplexLine(self.re, self.im, self.start + number * self.n)

    def column(self, number: Index) -> ComplexLine:
        return ComplexLine(self.re, self.im, self.start + number, self.n)


Rotation: TypeAlias = tuple[ComplexNumber, ComplexNumber]
"""Cosine and sine."""


def turn_lines(
    at: AlgorithmBuilder, x: ComplexLine, y: ComplexLine, turn: Rotation, ends: tuple[Index, Index]
) -> None:
    """``x, y = c x + s y, c* y - s* x``, between ``ends``."""
    c, s = turn
    with at.loop(*ends) as k:
        a, b = x.load(at, k), y.load(at, k)
        x.store(at, k, a * c + b * s)
        y.store(at, k, b * c.conjugate - a * s.conjugate)


def rotation(at: AlgorithmBuilder, f: ComplexNumber, g: ComplexNumber) -> Rotation:
    """What turns rows that begin with ``f`` and ``g`` to such that begin with a real number and 0,
    if it is conjugated; columns are turned back by it as it is."""
    zero, one = number(0.0, f.re.dtype), number(1.0, f.re.dtype)
    length = ComplexNumber(at, f.size, g.size).size
    none = at.let(call("eq", length, zero))
    share = at.let(call("div", one, Select(none, one, length)))
    still = ComplexNumber(at, one, zero)
    return still.where(none, f.scaled(share)), g.scaled(share)
