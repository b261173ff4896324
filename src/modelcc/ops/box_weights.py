"""Means of points of boxes as products of matrices: what each pixel along an axis counts for.

The weight of a pixel is the sum of a hat function over points at equal distances, which is a sum of
two arithmetic series: no point is looked at by itself, however many a box has.
"""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import Index
from modelcc.ir.types import I64
from modelcc.ops.accumulate import accumulator
from modelcc.ops.arithmetic import Ceil, Floor, Value, of
from modelcc.ops.comparison import Abs, Equal, Max, Min, where
from modelcc.ops.generate import Indices, Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.views import cast, part, permuted, reshaped

LEAST = 1e-30
"""The distance of points that lie in one place, so that they can be counted."""


@dataclass(frozen=True)
class BoxPoints:
    """How boxes are made points: ``points`` in each bin along an axis, or as many as it is long."""

    points: int
    scale: float
    half_pixel: bool


def box_means(
    how: BoxPoints, bins: tuple[int, int], boxes: Value, numbers: Value, images: Value
) -> Value:
    """The means [k, c, *bins] of the points of each bin, of ``images`` [n, h, c, w]."""
    wide = accumulator(images.type.dtype)
    count, height, channels, width = images.type.shape
    k, (rows, columns) = boxes.type.shape[0], bins
    corners = cast(boxes, wide)
    down = _axis_weights(how, corners, 1, rows, height)
    right = _axis_weights(how, corners, 0, columns, width)
    own = Value(boxes.build, boxes.build.emit(Iota((1, count), 1)))
    seen = of(Equal(), reshaped(cast(numbers, I64), k, 1), own)
    mask = reshaped(where(seen, down.lift(1.0), 0.0), k, 1, count, 1)
    chosen = reshaped(mask * reshaped(down, k, rows, 1, height), k * rows, count * height)
    lines = reshaped(cast(images, wide), count * height, channels * width)
    inner = reshaped(of(MatMul(), chosen, lines), k, rows * channels, width)
    means = of(MatMul(), inner, permuted(right, 0, 2, 1))
    turned = permuted(reshaped(means, k, rows, channels, columns), 0, 2, 1, 3)
    return cast(turned, images.type.dtype)


def _axis_weights(how: BoxPoints, boxes: Value, axis: int, bins: int, extent: Index) -> Value:
    """What each pixel along an axis is multiplied by for each bin: [k, bins, extent].

    ``axis`` 0 goes along rows, from corner x1 to x2.
    """
    k = boxes.type.shape[0]
    shift = 0.5 if how.half_pixel else 0.0
    start, end = (
        reshaped(part(boxes, 1, c, 1), k, 1) * how.scale - shift for c in (axis, axis + 2)
    )
    size = end - start
    size = size if how.half_pixel else of(Max(), size, size.lift(1.0))
    step = size / float(bins)
    count = (
        step.lift(float(how.points)) if how.points else of(Max(), of(Ceil(), step), step.lift(0.0))
    )
    some = of(Max(), count, count.lift(1.0))
    numbers = _counted(boxes, (1, bins))
    base = start + numbers * step + of(Min(), step, step.lift(0.0))
    apart = of(Abs(), step / some)
    first = base + apart * 0.5
    many = count if count.type.rank == 0 else reshaped(count, k, 1, 1)
    points = _Points(reshaped(first, k, bins, 1), reshaped(apart, k, 1, 1), many)
    weights = points.weights(_counted(boxes, (1, 1, extent)), extent)
    return weights / (some if some.type.rank == 0 else reshaped(some, k, 1, 1))


def _counted(like: Value, shape: tuple[Index, ...]) -> Value:
    """0, 1, … along the last axis."""
    op = Iota(shape, len(shape) - 1, dtype=like.type.dtype)
    return Value(like.build, like.build.emit(op))


@dataclass(frozen=True, eq=False)
class _Points:
    """Points from ``first`` [k, bins, 1] on, ``apart`` from each other, ``count`` of each bin."""

    first: Value
    apart: Value
    count: Value

    def weights(self, pixel: Value, extent: Index) -> Value:
        """The sum of the weights that the points give each pixel.

        A point up to a pixel outside of the image is at its edge; those further off do not count.
        """
        build, dtype = pixel.build, pixel.type.dtype
        last = Value(build, build.emit(Indices((extent - 1,), (), dtype)))
        before, here, after = (self._below(pixel + by) for by in (-1.0, 0.0, 1.0))
        up_to = self._up_to(last + 1.0)
        left, right = here - before, after - here
        rising = left * (1.0 - pixel) + self._sum(before, here)
        falling = right * (1.0 + pixel) - self._sum(here, after)
        first_pixel, last_pixel = (of(Equal(), pixel, x) for x in (pixel.lift(0.0), last))
        return where(first_pixel, left, rising) + where(last_pixel, up_to - here, falling)

    def _below(self, place: Value) -> Value:
        """How many points lie before ``place``."""
        return self._bounded(of(Ceil(), self._number(place)))

    def _up_to(self, place: Value) -> Value:
        """How many points lie before ``place``, or there."""
        return self._bounded(of(Floor(), self._number(place)) + 1.0)

    def _number(self, place: Value) -> Value:
        return (place - self.first) / of(Max(), self.apart, self.apart.lift(LEAST))

    def _bounded(self, number: Value) -> Value:
        return of(Min(), of(Max(), number, number.lift(0.0)), self.count)

    def _sum(self, begin: Value, end: Value) -> Value:
        """The sum of the places of points from number ``begin`` on up to ``end``."""
        middle = self.first + self.apart * ((begin + end - 1.0) * 0.5)
        return (end - begin) * middle
