"""Symbolic fractions: the operands of float shape arithmetic (``floor(height * 0.5)``)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from modelcc.ir.index import Bounds, Comparison, Expr, Index, ceildiv, compare, floordiv

Number = int | float | bool | Expr
MAX_DENOMINATOR = 1 << 10


@dataclass(frozen=True)
class Ratio:
    """``numerator / denominator``, with a positive constant denominator; not reduced to lowest
    terms."""

    numerator: Index
    denominator: int

    def value(self) -> Ratio | Index:
        """An index if the division is exact."""
        quotient = floordiv(self.numerator, self.denominator)
        return quotient if quotient * self.denominator == self.numerator else self

    def floor(self) -> Index:
        return floordiv(self.numerator, self.denominator)

    def ceil(self) -> Index:
        return ceildiv(self.numerator, self.denominator)


Element = Number | Ratio
"""An element of known contents: a number or a symbolic one."""


def as_fraction(value: float) -> Fraction | None:
    """The fraction meant by an f32 number: 0.1 is 1/10, as float32 products round to it."""
    if not np.isfinite(value):
        return None
    near = Fraction(value).limit_denominator(MAX_DENOMINATOR)
    if np.float32(float(near)) == np.float32(value):
        return near
    return Fraction(str(np.float32(value)))


def as_ratio(value: Element) -> Ratio | None:
    """Any finite element as a ratio; None for infinities and NaN."""
    if isinstance(value, Ratio):
        return value
    if isinstance(value, float):
        fraction = as_fraction(value)
        return None if fraction is None else Ratio(fraction.numerator, fraction.denominator)
    return Ratio(value if isinstance(value, Expr) else int(value), 1)


def add(a: Element, b: Element) -> Element | None:
    x, y = as_ratio(a), as_ratio(b)
    if x is None or y is None:
        return None
    top = x.numerator * y.denominator + y.numerator * x.denominator
    return Ratio(top, x.denominator * y.denominator).value()


def multiply(a: Element, b: Element) -> Element | None:
    x, y = as_ratio(a), as_ratio(b)
    if x is None or y is None:
        return None
    return Ratio(x.numerator * y.numerator, x.denominator * y.denominator).value()


def divide(a: Element, b: Element) -> Element | None:
    """``a / b``; None if the quotient is not a ratio (a symbolic divisor that does not divide)."""
    x, y = as_ratio(a), as_ratio(b)
    if x is None or y is None or y.numerator == 0:
        return None
    top = x.numerator * y.denominator
    if isinstance(y.numerator, int):
        sign = 1 if y.numerator > 0 else -1
        return Ratio(sign * top, x.denominator * abs(y.numerator)).value()
    quotient = floordiv(top, y.numerator)
    return Ratio(quotient, x.denominator).value() if quotient * y.numerator == top else None


def compared(a: Element, op: Comparison, b: Element, bounds: Bounds) -> bool | None:
    """Whether ``a op b``; None if the bounds do not decide."""
    x, y = as_ratio(a), as_ratio(b)
    if x is None or y is None:
        return None
    left, right = x.numerator * y.denominator, y.numerator * x.denominator
    return compare(left, op, right, bounds)
