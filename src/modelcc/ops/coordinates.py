"""Where an output element of a resize lies in the input, as an exact rational of its index.

Scales and regions are rationals, so every coordinate is ``(slope*i + start) / divisor`` in
integers: its floor is a floor division and its fraction a remainder, without tables or floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Literal

from modelcc.ir.index import Index, ceildiv, floordiv, maximum, minimum, mod

Transformation = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]
Nearest = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]

Scale = float | tuple[Index, Index]
"""A number, or a numerator and a positive denominator."""


@dataclass(frozen=True)
class Coordinate:
    """``x(i) = (slope*i + start) / divisor`` with a positive divisor."""

    slope: Index
    start: Index
    divisor: Index

    def numerator(self, i: Index) -> Index:
        """``x(i) * divisor``."""
        return self.slope * i + self.start

    def floor(self, i: Index) -> Index:
        """The greatest integer not above ``x(i)``."""
        return floordiv(self.numerator(i), self.divisor)

    def remainder(self, i: Index) -> Index:
        """``(x(i) - floor) * divisor``."""
        return mod(self.numerator(i), self.divisor)

    def nearest(self, i: Index, rounding: Nearest) -> Index:
        """``x(i)`` rounded to an integer; the two round modes differ in ties."""
        value, divisor = self.numerator(i), self.divisor
        match rounding:
            case "floor":
                return floordiv(value, divisor)
            case "ceil":
                return ceildiv(value, divisor)
            case "round_prefer_floor":
                return ceildiv(2 * value - divisor, 2 * divisor)
            case "round_prefer_ceil":
                return floordiv(2 * value + divisor, 2 * divisor)

    def reduced(self) -> Coordinate:
        """Without a common numeric factor."""
        parts = self.slope, self.start, self.divisor
        numbers = [p for p in parts if isinstance(p, int)]
        factor = gcd(*numbers) if len(numbers) == len(parts) else 1
        return Coordinate(*(floordiv(p, factor) for p in parts))


def rational(value: float) -> Fraction:
    """The simplest fraction within half a part in ten million (f32 precision) of ``value``."""
    for limit in (16, 256, 4096, 65536):
        near = Fraction(value).limit_denominator(limit)
        if abs(near - Fraction(value)) <= abs(Fraction(value)) / 20_000_000:
            return near
    return Fraction(value).limit_denominator(1 << 24)


def ratio(value: Scale) -> tuple[Index, Index]:
    """Numerator and positive denominator."""
    if isinstance(value, tuple):
        return value
    fraction = rational(value)
    return fraction.numerator, fraction.denominator


def coordinate(
    transformation: Transformation,
    size: Index,
    result: Index,
    scale: Scale | None,
    region: tuple[Scale, Scale],
) -> Coordinate:
    """The ONNX ``coordinate_transformation_mode`` for an axis of ``size`` resized to ``result``.

    Without a ``scale`` it is ``result / size``; ``region`` is where a crop begins and ends,
    relative to the size.  Corners are aligned by ``size * scale``, which need not be whole: the
    standard defines a scale as the ratio of the lengths, and its reference takes it so.
    """
    q, p = (result, size) if scale is None else ratio(scale)
    match transformation:
        case "asymmetric":
            found = Coordinate(p, 0, q)
        case "align_corners":
            length, unit = (result, 1) if scale is None else (size * q, p)
            found = Coordinate((size - 1) * unit, 0, maximum(length - unit, 1))
        case "pytorch_half_pixel":
            several = minimum(result - 1, 1)  # 0 for a single element, which sits at 0
            found = Coordinate(2 * p * several, (p - q) * several, 2 * q)
        case "half_pixel":
            found = Coordinate(2 * p, p - q, 2 * q)
        case "tf_half_pixel_for_nn":
            found = Coordinate(2 * p, p, 2 * q)
        case "half_pixel_symmetric":
            found = Coordinate(2 * p, size * q - result * p + p - q, 2 * q)
        case "tf_crop_and_resize":
            found = _crop(size, result, region)
    return found.reduced()


def _crop(size: Index, result: Index, region: tuple[Scale, Scale]) -> Coordinate:
    """From begin to end of the region; a single element sits in its middle."""
    (first, below), (last, under) = map(ratio, region)
    common, a, b = below * under, first * under, last * below
    several = minimum(result - 1, 1)  # 0 for a single element
    return Coordinate(
        (b - a) * (size - 1) * several,
        (size - 1) * (a * (result - 1) + (a + b) * (1 - several)),
        common * maximum(result - 1, 2 * (1 - several)),
    )
