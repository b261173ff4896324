"""RoiAlign: regions of an image, pooled to one size (He et al. 2017, "Mask R-CNN")."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    integer,
    number,
    splat,
)
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index, minimum
from modelcc.ir.loop import Expr, MulAdd, Select, Var
from modelcc.ir.op import Builder, Gradients, Op, Values
from modelcc.ir.types import I64, Array, DType, dtype_of
from modelcc.ops.accumulate import accumulator
from modelcc.ops.arithmetic import Value
from modelcc.ops.box_taps import TapLists, Taps
from modelcc.ops.box_weights import BoxPoints, box_means
from modelcc.ops.boxes import (
    BoxPool,
    Channels,
    Images,
    channels_first,
    each_box,
    extents_of,
    image_of,
    layouts,
    whole_between,
)
from modelcc.ops.reverse import GradientError, Recorder, adjoints
from modelcc.ops.samples import sample, tensor
from modelcc.ops.views import permuted

MOST_POINTS = 1 << 30
"""Points along an axis of a bin whose number the size of its box decides."""

_BOXES = np.array([[0, 0, 9, 9], [1, 2, 5, 4], [-1, 3, 4, 12], [6, 5, 2, 1]], np.float32)
_NUMBERS = np.array([0, 1, 0, 1])
_BINS: dict[str, object] = {"height": 2, "width": 3}


@dataclass(frozen=True)
class RoiAlign(BoxPool):
    """x in ``boxes`` (x1, y1, x2, y2) of images ``numbers``, in ``height * width`` bins.

    x is [n, c, h, w], or ``turned`` [n, h, w, c].  In each bin ``points`` points along each axis
    are interpolated, or if that is 0 as many as the bin has pixels there, rounded up; the bin is
    their mean or, with ``largest``, the greatest of their weighted pixels, and 0 without any.
    Points far outside of the image are 0.  ``half_pixel`` moves boxes by half a pixel.
    """

    points: int = 0
    scale: float = 1.0
    largest: bool = False
    half_pixel: bool = True
    samples = (
        *(
            sample(_BOXES, _NUMBERS, None, tensor(2, 8, 10, 3), **_BINS, points=points, **more)
            for points in (0, 2)
            for more in ({}, {"scale": 0.5, "half_pixel": False}, {"largest": True})
        ),
        sample(_BOXES, _NUMBERS, None, tensor(2, "h", 10, "c"), **_BINS),
        sample(_BOXES, _NUMBERS, tensor(2, "c", "h", 10), None, **_BINS),
    )

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Of the mean as a product of matrices; images that are given twice have it as x."""
        if self.largest:
            raise GradientError("RoiAlign of greatest pixels has no gradient: only means have one")
        boxes, numbers, x, turned = inputs
        parts = Recorder(build)
        order, own = ((0, 2, 1, 3), x) if x else ((0, 1, 3, 2), turned)
        images = permuted(Value(parts, own), *order)
        how = BoxPoints(self.points, self.scale, self.half_pixel)
        corners, owners = Value(parts, boxes), Value(parts, numbers)
        means = box_means(how, (self.height, self.width), corners, owners, images)
        found = adjoints(build, parts.nodes, {means.name: dys[0]}, (boxes, own))
        return tuple(found.get(name) for name in inputs)

    # --- loops

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (boxes, numbers, x, turned), (y,) = inputs, outputs
        assert boxes is not None and numbers is not None
        count, _, *extents = extents_of(x, turned)
        if at.capacity.groups is not None:
            with at.each(y.shape) as (element, (box, channel, *bin)):
                along = self._axes(at, extents, boxes, box)
                image = image_of(at, numbers, box, count)
                for images in layouts(at, x, turned):
                    start = image * images.image + channel * images.channel
                    value = self._point_by_point(at, images, start, along, bin)
                    at.store(y, element, convert(value, y.dtype))
            return
        lists = [self._lists(at, extents, axis, y.dtype) for axis in (0, 1)]
        with each_box(at, boxes.shape[0]) as (share, box):
            along = self._axes(at, extents, boxes, box)
            for axis, own in zip(along, lists, strict=True):
                axis.fill(at, own, share)
            divisor = _points_of(at, along)
            image = image_of(at, numbers, box, count)
            rows, columns = (partial(taps.of_bin, at, share) for taps in lists)
            for images in layouts(at, x, turned):
                start = image * images.image
                for block, row, column, to in self.each_bin(at, y, box, rows, columns):
                    for n, value in enumerate(self._bin(at, images, block, start, row, column)):
                        whole = splat(divisor, value.lanes)
                        mean = value if self.largest else call("div", value, whole)
                        block.store(at, y, to, n, mean)

    def _lists(
        self, at: AlgorithmBuilder, extents: Sequence[Index], axis: int, dtype: DType
    ) -> TapLists:
        extent, bins = extents[axis], (self.height, self.width)[axis]
        slot = minimum(2 * self.points, extent) if self.points else extent
        return TapLists.of(at, bins, slot, accumulator(dtype), self.largest)

    def _axes(
        self, at: AlgorithmBuilder, extents: Sequence[Index], boxes: Operand, box: Index
    ) -> tuple[_Axis, _Axis]:
        def along(axis: int, bins: int) -> _Axis:
            corners = at.load(boxes, box * 4 + 1 - axis), at.load(boxes, box * 4 + 3 - axis)
            return _Axis.of(at, self, corners, extents[axis], bins)

        return along(0, self.height), along(1, self.width)

    def _point_by_point(
        self,
        at: AlgorithmBuilder,
        images: Images,
        start: Index,
        along: tuple[_Axis, _Axis],
        bin: Sequence[Index],
    ) -> Expr:
        """One bin of the plane at ``start``: the mean of its points, or their greatest pixel."""
        (down, right), wide = along, accumulator(images.elements.dtype)
        total = at.register(number(float("-inf") if self.largest else 0.0, wide))
        seen = at.register(number(0.0, wide))
        with down.points(at, bin[0]) as y:
            rows = down.around(at, y)
            with right.points(at, bin[1]) as x:
                at.assign(seen, add(seen, number(1.0, wide)))
                for (row, weight), (column, other) in product(rows, right.around(at, x)):
                    place = at.index(row) * images.row + at.index(column) * images.pixel
                    value = convert(at.load(images.elements, start + place), wide)
                    part = call("mul", call("mul", weight, other), value)
                    at.assign(total, call("max" if self.largest else "add", total, part))
        count = _points_of(at, along)
        if not self.largest:
            return call("div", total, count)
        # Points outside are 0; so is the bin without points.
        with at.when(call("lt", seen, count)):
            at.assign(total, call("max", total, number(0.0, wide)))
        return total

    def _bin(
        self,
        at: AlgorithmBuilder,
        images: Images,
        block: Channels,
        start: Index,
        rows: Taps,
        columns: Taps,
    ) -> Sequence[Var]:
        """The sum of the weighted pixels of one bin, or the greatest."""
        wide = accumulator(images.elements.dtype)
        totals = block.registers(at, number(float("-inf") if self.largest else 0.0, wide))
        if self.largest:
            # Points outside are 0; so is the bin without points.
            with at.when(call("or", rows.missed, columns.missed)):
                for total in totals:
                    at.assign(total, number(0.0, wide, total.lanes))
        with rows.each(at) as (down, row_weights), columns.each(at) as (right, column_weights):
            pixel = start + down * images.row + right * images.pixel
            weights = [
                splat(at.let(call("mul", a, b)), block.lanes)
                for a, b in zip(row_weights, column_weights, strict=True)
            ]
            for n, total in enumerate(totals):
                value = at.let(convert(block.load(at, images, pixel, n), wide))
                if not self.largest:
                    at.assign(total, MulAdd(weights[0], value, total))
                    continue
                for weight in weights:
                    at.assign(total, call("max", total, call("mul", weight, value)))
        return totals

    # --- NumPy

    def reference(
        self, boxes: Array, numbers: Array, x: Array | None, turned: Array | None
    ) -> Array:
        x = channels_first(x, turned)
        result = np.zeros((len(boxes), x.shape[1], self.height, self.width), np.float64)
        wide = accumulator(dtype_of(x)).numpy.type
        for k, box in enumerate(boxes.astype(wide) * wide(self.scale)):
            rows = self._points(box[1], box[3], self.height)
            columns = self._points(box[0], box[2], self.width)
            if not rows.size or not columns.size:
                continue
            image = x[numbers[k]].astype(np.float64)
            for i, j in np.ndindex(self.height, self.width):
                values = [_around(image, y, z, self.largest) for y in rows[i] for z in columns[j]]
                result[k, :, i, j] = np.max(values, 0) if self.largest else np.mean(values, 0)
        return result.astype(x.dtype)

    def _points(self, start: Array, end: Array, bins: int) -> Array:
        """Positions of the sample points of each bin along one axis."""
        wide = start.dtype.type
        if self.half_pixel:
            start, end = start - wide(0.5), end - wide(0.5)
        step = (end - start if self.half_pixel else max(end - start, wide(1))) / wide(bins)
        count = self.points or max(0, int(np.ceil(step)))
        within = (np.arange(count, dtype=wide) + wide(0.5)) * step / wide(count)
        return start + np.arange(bins, dtype=wide)[:, None] * step + within


@dataclass(frozen=True)
class _Axis:
    """The points of a box along one axis: where the box starts, its size in each bin, and how many
    points (``given``, or as many as the size asks for) a bin has."""

    bins: int
    extent: Index
    start: Var
    step: Var
    count: Expr
    given: int

    @staticmethod
    def of(
        at: AlgorithmBuilder, op: RoiAlign, corners: tuple[Expr, Expr], extent: Index, bins: int
    ) -> _Axis:
        wide = accumulator(corners[0].dtype)
        shift = number(0.5 if op.half_pixel else 0.0, wide)
        scaled = [call("mul", convert(c, wide), number(op.scale, wide)) for c in corners]
        start, end = (at.let(call("sub", c, shift)) for c in scaled)
        size = call("sub", end, start)
        size = size if op.half_pixel else call("max", size, number(1.0, wide))
        step = at.let(call("div", size, number(float(bins), wide)))
        asked = whole_between(at, call("ceil", step), integer(MOST_POINTS))
        count = integer(op.points) if op.points else asked
        return _Axis(bins, extent, start, step, count, op.points)

    def fill(self, at: AlgorithmBuilder, lists: TapLists, share: Index) -> None:
        """Note the pixels around the points of every bin, by ascending position."""
        with at.loop(0, self.bins) as bin:
            taps = lists.writer(at, share, bin)
            with self.points(at, bin) as place:
                for pixel, weight in self.around(at, place):
                    taps.add(at, pixel, weight)
                taps.point(at)
            taps.finish(at, self.count)

    @contextmanager
    def points(self, at: AlgorithmBuilder, bin: Index) -> Generator[Expr]:
        """The points of a bin that are in the image, by ascending position."""
        wide = self.step.dtype
        back = at.let(call("lt", self.step, number(0.0, wide)))
        base = at.let(add(self.start, call("mul", index_number(bin, wide), self.step)))
        with at.loop(*self._near(at, base, back)) as n:
            turned = call("sub", add(self.count, -1), index_number(n))
            point = convert(Select(back, turned, index_number(n)), wide)
            # In onnxruntime's order, for a point at -1 is inside and one beside it is not.
            within = call("mul", add(point, number(0.5, wide)), self.step)
            place = at.let(add(base, call("div", within, convert(self.count, wide))))
            low, high = number(-1.0, wide), index_number(self.extent, wide)
            with at.when(call("and", call("ge", place, low), call("le", place, high))):
                yield place

    def around(self, at: AlgorithmBuilder, place: Expr) -> Sequence[tuple[Var, Expr]]:
        """The two pixels around a point, which is first moved into the image, by their weights."""
        wide, last = place.dtype, self.extent - 1
        ahead = call("max", place, number(0.0, wide))
        moved = at.let(call("min", ahead, index_number(last, wide)))
        low = at.let(call("floor", moved))
        part = at.let(call("sub", moved, low))
        pixel = at.let(convert(low, I64))
        above = at.let(call("min", add(pixel, 1), index_number(last)))
        return (pixel, call("sub", number(1.0, wide), part)), (above, part)

    def _near(self, at: AlgorithmBuilder, base: Var, back: Expr) -> tuple[Index, Index]:
        """Numbers of points, by ascending position, beyond which all are outside of the image.

        What is left are about twice as many as the image has pixels, however large the box.
        """
        if self.given:
            return 0, self.given
        wide = self.step.dtype
        lowest = at.let(Select(back, add(base, self.step), base))
        apart = at.let(call("div", call("abs", self.step), convert(self.count, wide)))

        def reach(rim: Expr, side: str) -> Index:
            found = at.let(call("div", call("sub", rim, lowest), apart))
            error = add(call("mul", call("abs", found), number(2.0**-20, wide)), number(2.0, wide))
            return at.index(whole_between(at, call(side, found, error), self.count))

        first = reach(number(-1.0, wide), "sub")
        return first, reach(index_number(self.extent, wide), "add")


def _points_of(at: AlgorithmBuilder, along: Sequence[_Axis]) -> Var:
    """How many points a bin has, at least one."""
    points = call("max", call("mul", *(axis.count for axis in along)), integer(1))
    return at.let(convert(points, along[0].step.dtype))


def _around(image: Array, y: float, x: float, largest: bool) -> Array:
    """The weighted pixels around a point of every channel: their sum, or the greatest."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(image))
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    terms = [
        (1 - abs(y - i)) * (1 - abs(x - j)) * image[:, min(i, height - 1), min(j, width - 1)]
        for i in (int(y), int(y) + 1)
        for j in (int(x), int(x) + 1)
    ]
    return np.max(terms, 0) if largest else np.sum(terms, 0)


OPS: tuple[type[Op], ...] = (RoiAlign,)
