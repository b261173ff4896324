"""Ranges of symbols, and interval arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import TypeAlias

from modelcc.ir.index_expr import Index, Monomial


@dataclass(frozen=True, eq=False)
class Range:
    """Inclusive bounds ``lo <= value <= hi``; None is unbounded, an Expr is a symbolic bound."""

    lo: Index | None = None
    hi: Index | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and (self.lo, self.hi) == (other.lo, other.hi)

    def __hash__(self) -> int:
        return hash((self.lo, self.hi))


@dataclass(frozen=True, eq=False)
class Interval(Range):
    """A range whose bounds are numbers."""

    lo: int | None = None
    hi: int | None = None


Bounds: TypeAlias = Mapping[str, Range]
"""Ranges by symbol name; a symbol that is not listed is unbounded."""

DIM = Range(1, None)
"""Bounds of a dimension."""

ANY = Interval()


def loop_range(extent: Index) -> Range:
    """Bounds of a loop variable or axis position: ``0 <= i < extent``."""
    return Range(0, extent - 1)


def all_known(values: Sequence[int | None], pick: Callable[[list[int]], int]) -> int | None:
    """``pick`` of the values, None if one of them is unknown."""
    known = [v for v in values if v is not None]
    return pick(known) if len(known) == len(values) else None


def any_known(values: Sequence[int | None], pick: Callable[[list[int]], int]) -> int | None:
    """``pick`` of the values that are known, None if none is."""
    known = [v for v in values if v is not None]
    return pick(known) if known else None


def times(a: Interval, b: Interval) -> Interval:
    """All products of a value of ``a`` and a value of ``b``."""
    a_low, a_high = _ends(a)
    b_low, b_high = _ends(b)
    corners = [_corner(x, y) for x in (a_low, a_high) for y in (b_low, b_high)]
    return Interval(_finite(min(corners)), _finite(max(corners)))


def _ends(a: Interval) -> tuple[int | float, int | float]:
    return -inf if a.lo is None else a.lo, inf if a.hi is None else a.hi


def _corner(x: int | float, y: int | float) -> int | float:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return 0 if x == 0 or y == 0 else inf if (x > 0) == (y > 0) else -inf


def _finite(value: int | float) -> int | None:
    return value if isinstance(value, int) else None


def power(a: Interval, exponent: int) -> Interval:
    """The values of ``a`` to a positive power."""
    result = a
    for _ in range(exponent - 1):
        result = times(result, a)
    if exponent % 2 == 0 and (result.lo is None or result.lo < 0):
        result = Interval(0, result.hi)
    return result


def monomial_range(coeff: int, mono: Monomial, ranges: Mapping[str, Interval]) -> Interval:
    """Bounds of ``coeff * mono`` from those of its factors, by their text."""
    result = Interval(coeff, coeff)
    for text, group in groupby(atom.text for atom in mono):
        result = times(result, power(ranges[text], len(list(group))))
    return result


def quotient_range(a: Interval, b: Interval) -> Interval:
    """Values of ``a // b``; unbounded unless every divisor is positive."""
    if b.lo is None or b.lo < 1:
        return ANY
    return Interval(_quotient(a.lo, b.hi, b.lo), _quotient(a.hi, b.lo, b.hi))


def _quotient(value: int | None, divisor: int | None, if_negative: int | None) -> int | None:
    if value is None:
        return None
    by = divisor if value >= 0 else if_negative
    if by is None:  # an unbounded divisor
        return 0 if value >= 0 else -1
    return value // by


def remainder_range(a: Interval, b: Interval) -> Interval:
    """Values of ``a % b``; unbounded unless every divisor is positive."""
    if b.lo is None or b.lo < 1:
        return ANY
    if a.lo is not None and a.lo >= 0:
        if a.hi is not None and a.hi < b.lo:
            return a
        return Interval(0, any_known([a.hi, None if b.hi is None else b.hi - 1], min))
    return Interval(0, None if b.hi is None else b.hi - 1)
