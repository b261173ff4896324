"""Images read between their pixels, as graph ops: what gradients of such reads are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as cartesian

from modelcc.ir.index import Index, product
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Add, Cast, Floor, Mul, Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import GreaterOrEqual, LessOrEqual, Max, Min, where
from modelcc.ops.gather_elements import GatherElements
from modelcc.ops.generate import Indices
from modelcc.ops.logic import And
from modelcc.ops.views import reshaped


@dataclass(frozen=True, eq=False)
class PixelTap:
    """A pixel along one axis: its number, a float that is whole, and its weight, for each place."""

    number: Value
    weight: Value


def size_like(x: Value, extent: Index) -> Value:
    """An extent as a scalar of the dtype of ``x``."""
    return Value(x.build, x.build.emit(Indices((extent,), (), x.type.dtype)))


def between(x: Value, low: Value, high: Value) -> Value:
    """Whether ``low <= x <= high``."""
    return of(And(), of(GreaterOrEqual(), x, low), of(LessOrEqual(), x, high))


def inside_only(tap: PixelTap, extent: Index) -> PixelTap:
    """The tap with weight 0 outside of the axis."""
    number = tap.number
    inside = between(number, number.lift(0.0), size_like(number, extent - 1))
    return PixelTap(number, where(inside, tap.weight, 0.0))


def linear_taps(position: Value, extent: Index) -> list[PixelTap]:
    """The two pixels around a position; outside of the axis they are 0."""
    low = of(Floor(), position)
    fraction = position - low
    taps = (PixelTap(low, 1.0 - fraction), PixelTap(low + 1.0, fraction))
    return [inside_only(tap, extent) for tap in taps]


def read_between(image: Value, taps: Sequence[Sequence[PixelTap]]) -> Value:
    """``[n, c, p]``: sums over one tap of each axis of the pixel of ``image`` ``[n, c, *s]`` there
    times the taps' weights, which are ``[n, p]``.  Numbers are moved into the image."""
    n, channels, *sizes = image.type.shape
    line = reshaped(image, n, channels, product(sizes))
    total: Value | None = None
    for chosen in cartesian(*taps):
        term = _pixels(line, chosen, sizes)
        total = term if total is None else of(Add(), total, term)
    assert total is not None
    return total


def _pixels(line: Value, taps: Sequence[PixelTap], sizes: Sequence[Index]) -> Value:
    """What lies at one tap of each axis, times the product of the weights."""
    n, places = taps[0].number.type.shape
    weight, place = taps[0].weight, _number(taps[0].number, sizes[0])
    for tap, extent in zip(taps[1:], sizes[1:], strict=True):
        weight = weight * tap.weight
        place = place * size_like(place, extent) + _number(tap.number, extent)
    wide = of(Expand((n, line.type.shape[1], places)), reshaped(place, n, 1, places))
    return of(Mul(), of(GatherElements(2), line, wide), reshaped(weight, n, 1, places))


def _number(number: Value, extent: Index) -> Value:
    whole = of(Cast(I64), number)
    return of(Min(), of(Max(), whole, whole.lift(0)), size_like(whole, extent - 1))
