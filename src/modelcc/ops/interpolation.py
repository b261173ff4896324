"""Interpolation as elements: kernels, clamped places and separable weighted sums."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.compute import Element, Operand, StageBuilder, index_value
from modelcc.ir.index import DIM, Index, Range, Sym, compare, loop_range, maximum, minimum, symbols
from modelcc.ir.tensor import Condition
from modelcc.ir.types import DType
from modelcc.ops.accumulate import Point
from modelcc.ops.coordinates import Coordinate
from modelcc.ops.statistics import as_number

Choice = tuple[Index | Element, Element | None]
"""A place along an axis, an index or an integer read from a table, and its weight (None: 1)."""


def separable(
    at: StageBuilder, x: Operand, choices: Sequence[Sequence[Choice]], place: Point, wide: DType
) -> Element:
    """Sum over the choices of every axis of weights times ``x``, innermost axis first."""
    if len(place) == x.rank:
        return x[place].cast(wide)
    terms: list[Element] = []
    for found, weight in choices[len(place)]:

        def inner(i: Index) -> Element:
            return separable(at, x, choices, (*place, i), wide)

        value = at.gather(found, inner, None) if isinstance(found, Element) else inner(found)
        terms.append(value if weight is None else value * weight)
    return total_of(terms)


def total_of(terms: Sequence[Element]) -> Element:
    """Sum of one or more elements."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def normalised(weights: list[Element]) -> list[Element]:
    """Weights scaled to a sum of 1."""
    total = total_of(weights)
    return [w / total for w in weights]


def fraction(map_: Coordinate, i: Index, wide: DType) -> Element:
    """Fractional part of the coordinate of output ``i``."""
    part = index_value(map_.remainder(i), wide)
    return part / as_number(map_.divisor, wide)


def near(d: Element, a: float) -> Element:
    """Keys' cubic kernel at a distance ``d`` of at most 1."""
    return ((a + 2) * d - (a + 3)) * d * d + 1.0


def far(d: Element, a: float) -> Element:
    """Keys' cubic kernel at a distance ``d`` from 1 to 2."""
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def in_range(place: Index, size: Index) -> tuple[Condition, Condition]:
    """What holds where ``place`` lies inside an axis of ``size``."""
    return Condition(0, "<=", place), Condition(place, "<", size)


def clamped(place: Index, size: Index, i: Index, count: Index) -> Index:
    """``place`` limited to ``0 … size-1``, without limits it keeps for all ``i < count``."""
    bounds: dict[str, Range] = {s: DIM for e in (size, count) for s in sorted(symbols(e))}
    if isinstance(i, Sym):
        bounds[i.name] = loop_range(count)
    low = place if compare(place, ">=", 0, bounds) else maximum(place, 0)
    return low if compare(low, "<=", size - 1, bounds) else minimum(low, size - 1)
