"""Where the outputs of a resize lie along one axis: places of the input, and their weights.

A map of known numbers is part of every output's expression.  One that divides by what is known at
run time only is evaluated once for each index of the axis, into tables that outputs read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from modelcc.ir.compute import Element, Operand, StageBuilder, guard, index_value
from modelcc.ir.index import Index, floordiv, maximum, minimum, mod
from modelcc.ir.tensor import Condition
from modelcc.ir.types import I64, DType
from modelcc.ops.accumulate import Point
from modelcc.ops.coordinates import Coordinate, Nearest
from modelcc.ops.interpolation import Choice, clamped, far, fraction, in_range, near, normalised

Mode = Literal["nearest", "linear", "cubic"]

TAPS: Mapping[Mode, int] = MappingProxyType({"nearest": 1, "linear": 2, "cubic": 4})
"""Elements of the input along an axis that an output depends on."""

Along = Callable[[Index], list[Choice]]
"""Places and weights for an output's index along an axis."""


@dataclass(frozen=True)
class Interpolation:
    """How elements around a coordinate make an output."""

    mode: Mode
    nearest: Nearest
    cubic_a: float
    exclude_outside: bool


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of ``size`` resized to ``count`` by ``map`` (None: unchanged)."""

    map: Coordinate | None
    size: Index
    count: Index

    @property
    def is_dynamic(self) -> bool:
        """Whether its coordinates divide by what is known at run time only."""
        return self.map is not None and not isinstance(self.map.divisor, int)

    @property
    def has_tables(self) -> bool:
        """Whether places are found once for each index of the axis: so vectors are gathered, where
        the loop over the axis has no known extent."""
        return self.is_dynamic or (self.map is not None and not isinstance(self.size, int))

    def inside(self, i: Index) -> list[Condition]:
        """What holds where the coordinate of output ``i`` lies within the input."""
        if self.map is None:
            return []
        value, last = self.map.numerator(i), (self.size - 1) * self.map.divisor
        return [Condition(0, "<=", value), Condition(value, "<=", last)]


def choices_along(at: StageBuilder, line: ResizedAxis, how: Interpolation, wide: DType) -> Along:
    """The choices for every output along ``line``."""
    if line.has_tables:
        return TapTables.of(at, line, how, wide).choices
    return choices_inline(line, how, wide)


def choices_inline(line: ResizedAxis, how: Interpolation, wide: DType) -> Along:
    """The choices for every output along ``line``, found where they are wanted."""
    return lambda i: _choices(line, i, how, wide)


def _choices(line: ResizedAxis, i: Index, how: Interpolation, wide: DType) -> list[Choice]:
    map_ = line.map
    if map_ is None:
        return [(i, None)]
    if how.mode == "nearest":
        return [(clamped(map_.nearest(i, how.nearest), line.size, i, line.count), None)]
    floor = map_.floor(i)
    weights = _weights(line, floor, fraction(map_, i, wide), how)
    places = [clamped(p, line.size, i, line.count) for p in _places(floor, how)]
    return list(zip(places, weights, strict=True))


@dataclass(frozen=True, eq=False)
class TapTables:
    """Places [taps, outputs] along an axis, and the weights of each tap (none: 1)."""

    places: Operand
    weights: tuple[Operand, ...]

    @staticmethod
    def of(at: StageBuilder, line: ResizedAxis, how: Interpolation, wide: DType) -> TapTables:
        """Those of a dynamic ``line``."""
        map_, last, taps = line.map, line.size - 1, TAPS[how.mode]
        assert map_ is not None

        def place(o: Point) -> Element:
            tap, i = o
            if how.mode == "nearest":
                found = map_.nearest(i, how.nearest)
            else:
                found = _first(map_.floor(i), how) + tap
            return index_value(minimum(maximum(found, 0), last), I64)

        places = at.stage((taps, line.count), place)
        if how.mode == "nearest":
            return TapTables(places, ())
        parts = at.stage((line.count,), lambda o: fraction(map_, o[0], wide))

        def weight(tap: int) -> Callable[[Point], Element]:
            return lambda o: _weights(line, map_.floor(o[0]), parts[o], how)[tap]

        return TapTables(places, tuple(at.stage((line.count,), weight(n)) for n in range(taps)))

    def choices(self, i: Index) -> list[Choice]:
        """For output ``i``."""
        taps, _ = self.places.shape
        assert isinstance(taps, int)
        weights = [w[i] for w in self.weights] or [None]
        return [(self.places[n, i], weights[n]) for n in range(taps)]

    def of_those_read(self, at: StageBuilder, size: Index) -> tuple[Operand, TapTables]:
        """Places in the input of the elements that outputs read, and the tables for these alone.

        They are all of the axis of ``size``, or as many as there are reads, if that is less.
        """
        taps, count = self.places.shape
        reads = taps * count
        some = minimum(maximum(size - reads, 0), 1)

        def source(o: Point) -> Element:
            tap, i = mod(o[0], taps), minimum(floordiv(o[0], taps), count - 1)
            return at.gather(
                self.places[tap, i], lambda p: index_value(some * p + (1 - some) * o[0], I64), None
            )

        def place(o: Point) -> Element:
            return at.gather(
                self.places[o],
                lambda p: index_value((1 - some) * p + some * (o[1] * taps + o[0]), I64),
                None,
            )

        places = at.stage((minimum(size, reads),), source)
        return places, TapTables(at.stage((taps, count), place), self.weights)


def _first(floor: Index, how: Interpolation) -> Index:
    """The first element around a coordinate, maybe outside."""
    return floor if how.mode == "linear" else floor - 1


def _places(floor: Index, how: Interpolation) -> list[Index]:
    return [_first(floor, how) + n for n in range(TAPS[how.mode])]


def _weights(line: ResizedAxis, floor: Index, part: Element, how: Interpolation) -> list[Element]:
    """Those of :func:`_places`, for a coordinate ``part`` above its floor."""
    if how.mode == "linear":
        weights = [1.0 - part, part]
    else:
        distances = [part + 1.0, part, 1.0 - part, 2.0 - part]
        weights = [
            kernel(d, how.cubic_a)
            for kernel, d in zip((far, near, near, far), distances, strict=True)
        ]
    if not how.exclude_outside:
        return weights
    places = _places(floor, how)
    return normalised(
        [guard(in_range(p, line.size), w, 0) for p, w in zip(places, weights, strict=True)]
    )
