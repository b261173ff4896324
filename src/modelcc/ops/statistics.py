"""Mean and variance shared by the normalisations: as stages, as graph values, differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, number
from modelcc.ir.index import Index, product
from modelcc.ir.types import DType
from modelcc.ops.accumulate import Point, accumulator, combined
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.transcendental import Rsqrt


@dataclass(frozen=True, eq=False)
class Statistics:
    """``mean`` (None: taken as 0) and ``inverse = 1 / sqrt(variance + epsilon)``, same shape."""

    mean: Operand | None
    inverse: Operand

    def normalise(self, value: Element, at: Point) -> Element:
        """``value`` less the mean, times the inverse deviation at index ``at``."""
        wide = value.cast(self.inverse.dtype)
        centred = wide if self.mean is None else wide - self.mean[at]
        return centred * self.inverse[at]


def as_number(index: Index, dtype: DType) -> Element:
    """An index as a constant or a computed number."""
    return number(index, dtype) if isinstance(index, int) else index_value(index, dtype)


def statistics(
    at: StageBuilder,
    x: Operand,
    outer: tuple[Index, ...],
    inner: tuple[Index, ...],
    place: Callable[[Point, Point], Point],
    epsilon: float,
    centred: bool = True,
) -> Statistics:
    """Statistics of shape ``outer`` over the elements ``x[place(o, r)]``, ``r`` in ``inner``.

    The variance is that of the centred values, in a second pass: no cancellation.
    """
    wide = accumulator(x.dtype)
    count = as_number(product(inner), wide)
    mean = None
    if centred:
        total = combined(at, outer, inner, "sum", lambda o, r: x[place(o, r)].cast(wide))
        mean = at.stage(outer, lambda o: total[o] / count)

    def square(o: Point, r: Point) -> Element:
        value = x[place(o, r)].cast(wide)
        value = value if mean is None else value - mean[o]
        return value * value

    squares = combined(at, outer, inner, "sum", square)
    inverse = at.stage(outer, lambda o: apply("rsqrt", squares[o] / count + epsilon))
    return Statistics(mean, inverse)


def standardised(
    x: Value, axes: tuple[int, ...], epsilon: float, centred: bool = True
) -> tuple[Value, Value]:
    """``(x - mean) * inverse`` over ``axes`` and ``inverse = 1 / sqrt(variance + epsilon)``."""
    centre = x - of(ReduceMean(axes), x) if centred else x
    inverse = of(Rsqrt(), of(ReduceMean(axes), centre * centre) + epsilon)
    return centre * inverse, inverse


def standardised_adjoint(
    dy: Value, y: Value, inverse: Value, axes: tuple[int, ...], centred: bool = True
) -> Value:
    """Gradient of the operand of :func:`standardised` with result ``y``."""
    slope = dy - y * of(ReduceMean(axes), dy * y)
    slope = slope - of(ReduceMean(axes), dy) if centred else slope
    return slope * inverse
