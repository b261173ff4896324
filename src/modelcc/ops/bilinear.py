"""Reading an image between its pixels: positions known at run time, in stages and in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product as cartesian

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, select
from modelcc.ir.index import Index
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.types import I32, I64, Array
from modelcc.ops.accumulate import Point

LARGEST = (1 << 31) - 1
"""The greatest number of a pixel in 32 bits."""

Pixel = Callable[[Point], Element]
"""The element at a position."""


@dataclass(frozen=True, eq=False)
class Tap:
    """A pixel along one axis: its number, within the axis, and the weight it has there.

    ``bound`` is that of the axis, which a number is clamped to but where it has no elements; None
    if it has some.
    """

    place: Element
    weight: Element
    bound: IndexBound | None


@dataclass(frozen=True, eq=False)
class StoredTap:
    """Tensors of the places and weights of a pixel, for all that reads an image there."""

    places: Operand
    weights: Operand

    @staticmethod
    def of(at: StageBuilder, shape: Sequence[Index], tap: Callable[[Point], Tap]) -> StoredTap:
        """The tensors of ``tap`` at every point of ``shape``; an axis without pixels is told there.

        Places are few bits, so that vectors hold many.
        """

        return StoredTap(_stored_places(at, shape, tap), at.stage(shape, lambda o: tap(o).weight))

    def at(self, o: Point) -> Tap:
        """The tap at a point, whose place is known to lie within the axis."""
        return Tap(self.places[o], self.weights[o], None)


@dataclass(frozen=True, eq=False)
class StoredPixel:
    """Tensors of the places of a pixel, one for each axis, and of its weight."""

    places: tuple[Operand, ...]
    weights: Operand

    def at(self, o: Point) -> tuple[list[Tap], Element]:
        """Where the pixel is for a point, within the image, and its weight there."""
        weight = self.weights[o]
        return [Tap(places[o], weight, None) for places in self.places], weight


def stored_pixels(
    at: StageBuilder,
    positions: Sequence[Operand],
    sizes: Sequence[Index],
    factor: Callable[[Point], Element | None],
) -> list[StoredPixel]:
    """The pixels around ``positions``, one tensor for each axis, in an image of these ``sizes``;
    their weights are multiplied by ``factor``.  Outside of the image they are 0."""
    shape = positions[0].shape

    def along(axis: int, n: int) -> Callable[[Point], Tap]:
        return lambda o: linear_taps(positions[axis][o], sizes[axis])[n]

    axes = range(len(positions))
    places = [[_stored_places(at, shape, along(axis, n)) for n in (0, 1)] for axis in axes]

    def stored(corner: Sequence[int]) -> StoredPixel:
        def weight(o: Point) -> Element:
            product = product_of([along(axis, n)(o) for axis, n in enumerate(corner)])
            times = factor(o)
            return product if times is None else product * times

        found = tuple(places[axis][n] for axis, n in enumerate(corner))
        return StoredPixel(found, at.stage(shape, weight))

    return [stored(corner) for corner in cartesian((0, 1), repeat=len(positions))]


def _stored_places(
    at: StageBuilder, shape: Sequence[Index], tap: Callable[[Point], Tap]
) -> Operand:
    """The tensor of the places of ``tap``; an axis without pixels ends the run."""

    def place(o: Point) -> Element:
        found = tap(o)
        fits = apply("min", found.place, index_value(LARGEST, I64)).cast(I32)
        return at.gather(index_value(0, I64), lambda _: fits, found.bound)

    return at.stage(shape, place)


def weighted_pixels(
    at: StageBuilder, pixels: Sequence[tuple[Sequence[Tap], Element]], pixel: Pixel
) -> Element:
    """Sum of what ``pixel`` is at the places of ``pixels``, times their weights."""
    terms = (gathered(at, taps, pixel) * weight for taps, weight in pixels)
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def weighted(at: StageBuilder, taps: Sequence[Sequence[Tap]], pixel: Pixel) -> Element:
    """Sum over one tap of each axis of the pixel there times the taps' weights."""
    terms = (product_of(chosen) * gathered(at, chosen, pixel) for chosen in cartesian(*taps))
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def product_of(taps: Sequence[Tap]) -> Element:
    """The weight of a pixel: the product of those along its axes."""
    result = taps[0].weight
    for tap in taps[1:]:
        result = result * tap.weight
    return result


def gathered(at: StageBuilder, taps: Sequence[Tap], pixel: Pixel, found: Point = ()) -> Element:
    """The pixel at the places of ``taps``, after those ``found`` already."""
    if len(found) == len(taps):
        return pixel(found)
    tap = taps[len(found)]
    there = at.gather(tap.place, lambda i: gathered(at, taps, pixel, (*found, i)), None)
    if tap.bound is None:
        return there
    # Within the axis, if that has a first pixel: which is the same for all.
    return at.gather(index_value(0, I64), lambda _: there, tap.bound)


def pixel_bound(extent: Index) -> IndexBound:
    """The bound of a pixel's number along an axis of this extent."""
    return IndexBound(extent, "an axis of the image", "pixel")


def clamped(place: Element, extent: Index) -> Element:
    """``place`` (i64), moved into an axis of this extent."""
    return apply("min", apply("max", place, 0), index_value(extent - 1, I64))


def within(place: Element, extent: Index) -> Element:
    """Whether ``place`` (i64) lies in an axis of this extent."""
    return apply("and", place >= 0, place < index_value(extent, I64))


def linear_taps(position: Element, extent: Index) -> tuple[Tap, Tap]:
    """The two pixels around a position; outside of the axis they are 0."""
    low = apply("floor", position)
    fraction = position - low
    first = low.cast(I64)
    return (_inside(first, 1.0 - fraction, extent), _inside(first + 1, fraction, extent))


def _inside(place: Element, weight: Element, extent: Index) -> Tap:
    weight = select(within(place, extent), weight, 0.0)
    return Tap(clamped(place, extent), weight, pixel_bound(extent))


def sampled(image: Array, positions: Sequence[Array] | Array) -> Array:
    """``image[…, *spatial]`` at ``positions``, one array for each axis, linearly; 0 outside."""
    rank = len(positions)
    lows = [np.floor(p).astype(np.int64) for p in positions]
    total = np.zeros((*image.shape[: image.ndim - rank], *positions[0].shape), np.float64)
    for corner in np.ndindex(*(2,) * rank):
        weight, inside = np.ones_like(total[..., :], np.float64), np.array(True)
        places: list[Array] = []
        for p, low, step, extent in zip(
            positions, lows, corner, image.shape[image.ndim - rank :], strict=True
        ):
            place = low + step
            weight = weight * (1 - np.abs(p - place))
            inside = inside & (place >= 0) & (place < extent)
            places.append(np.clip(place, 0, extent - 1))
        total += np.where(inside, weight, 0) * image[(..., *places)]
    return total
