"""RoiAlign: regions of an image, pooled to one size (He et al. 2017, "Mask R-CNN")."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as cartesian
from typing import Any

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, select
from modelcc.ir.condition import Demands
from modelcc.ir.index import Index
from modelcc.ir.op import Op, Sample, equal, require
from modelcc.ir.types import Array, TensorType, dtype_of
from modelcc.ops.accumulate import Point, accumulator, require_equal, require_float
from modelcc.ops.bilinear import edge_taps, gathered, product_of
from modelcc.ops.runtime_index import bound_along, require_integer
from modelcc.ops.samples import tensor

_BOXES = np.array([[0, 0, 9, 9], [1, 2, 5, 4], [-1, 3, 4, 12]], np.float32)


@dataclass(frozen=True)
class RoiAlign(Op):
    """x in ``boxes`` (x1, y1, x2, y2) of images ``numbers``, in ``height * width`` bins.

    In each bin ``samples_per_axis`` points along each axis are interpolated; the bin is their
    mean or, with ``largest``, the greatest of their weighted pixels.  ``half_pixel`` moves the
    boxes by half a pixel.  ``counts`` [k, 2], where given, tell for each box how many points there
    are along height and width, up to ``samples_per_axis``; without any a bin is 0.
    """

    height: int
    width: int
    samples_per_axis: Index
    scale: float = 1.0
    largest: bool = False
    half_pixel: bool = True
    samples = tuple(
        Sample(
            (tensor(2, 3, 8, 10), _BOXES, np.array([0, 1, 0])),
            {"height": 2, "width": 3, "samples_per_axis": 2, **more},
        )
        for more in ({}, {"scale": 0.5, "half_pixel": False}, {"largest": True})
    ) + tuple(
        Sample(
            (tensor(2, 3, 8, 10), _BOXES, np.array([0, 1, 0]), np.array([[3, 1], [2, 2], [0, 3]])),
            {"height": 2, "width": 3, "samples_per_axis": 3, **more},
        )
        for more in ({}, {"largest": True})
    )

    def infer(
        self,
        x: TensorType,
        boxes: TensorType,
        numbers: TensorType,
        counts: TensorType | None = None,
    ) -> tuple[TensorType]:
        require_float(x.dtype, "RoiAlign")
        require_integer(numbers, "RoiAlign")
        require(
            x.rank == 4 and boxes.rank == 2 and numbers.rank == 1,
            f"RoiAlign needs an image [n, c, h, w], boxes [k, 4] and their images' numbers [k], "
            f"not {x}, {boxes} and {numbers}",
        )
        require_equal(boxes.shape[0], numbers.shape[0], "boxes and numbers of images differ")
        if counts is not None:
            require_integer(counts, "RoiAlign")
            require(counts.shape == (boxes.shape[0], 2), f"counts of {boxes} are not {counts}")
        return (TensorType((boxes.shape[0], x.shape[1], self.height, self.width), x.dtype),)

    def agreements(
        self,
        x: TensorType,
        boxes: TensorType,
        numbers: TensorType,
        counts: TensorType | None = None,
    ) -> Demands:
        return equal(boxes.shape, (numbers.shape[0], 4))

    def compute(
        self,
        at: StageBuilder,
        x: Operand,
        boxes: Operand,
        numbers: Operand,
        counts: Operand | None = None,
    ) -> Operand:
        (result,) = self.infer(x.type, boxes.type, numbers.type)
        wide = accumulator(x.dtype)
        count = self.samples_per_axis

        def points(k: Index, axis: int) -> Element:
            return index_value(count, wide) if counts is None else counts[k, axis].cast(wide)

        def position(k: Index, bin: Index, sample: Index, axis: int) -> Element:
            bins = (self.height, self.width)[axis]
            start, end = (boxes[k, c].cast(wide) * self.scale for c in (1 - axis, 3 - axis))
            start, end = (start - 0.5, end - 0.5) if self.half_pixel else (start, end)
            size = end - start if self.half_pixel else apply("max", end - start, 1.0)
            # In onnxruntime's order, for a point at -1 is inside and one beside it is not.
            step = size / float(bins)
            within = (index_value(sample, wide) + 0.5) * step / points(k, axis)
            return start + index_value(bin, wide) * step + within

        def value(o: Point, r: Point) -> Element:
            places = [position(o[0], o[2 + a], r[a], a) for a in (0, 1)]
            sizes = x.shape[2:]
            inside = [
                apply("and", p >= -1.0, p <= index_value(s, wide))
                for p, s in zip(places, sizes, strict=True)
            ]
            taps = [edge_taps(p, s) for p, s in zip(places, sizes, strict=True)]

            def read(image: Index) -> Element:
                terms = [
                    product_of(t) * gathered(at, t, lambda i: x[(image, o[1], *i)].cast(wide))
                    for t in cartesian(*taps)
                ]
                total = terms[0]
                for term in terms[1:]:
                    total = apply("max", total, term) if self.largest else total + term
                return total

            image = bound_along(x, 0, wrapped=False)
            found = select(apply("and", *inside), at.gather(numbers[o[0]], read, image), 0.0)
            if counts is None:
                return found
            taken = [index_value(r[a], wide) < points(o[0], a) for a in (0, 1)]
            return select(apply("and", *taken), found, -np.inf if self.largest else 0.0)

        combine = "max" if self.largest else "sum"
        total = at.reduce(result.shape, (count, count), combine, value)

        def share(o: Point) -> Element:
            number = points(o[0], 0) * points(o[0], 1)
            whole = total[o] if self.largest else total[o] / apply("max", number, 1.0)
            return whole if counts is None else select(number > 0.0, whole, 0.0)

        return at.stage(result.shape, lambda o: share(o).cast(x.dtype))

    def reference(
        self, x: Array, boxes: Array, numbers: Array, counts: Array | None = None
    ) -> Array:
        result = np.zeros((len(boxes), x.shape[1], self.height, self.width), np.float64)
        wide = accumulator(dtype_of(x)).numpy.type
        for k, box in enumerate(boxes.astype(wide) * wide(self.scale)):
            down, across = self._counts() if counts is None else counts[k].tolist()
            if 0 in (down, across):
                continue
            rows = self._points(box[1], box[3], self.height, down)
            columns = self._points(box[0], box[2], self.width, across)
            image = x[numbers[k]].astype(np.float64)
            for i, j in np.ndindex(self.height, self.width):
                values = [_around(image, y, z, self.largest) for y in rows[i] for z in columns[j]]
                result[k, :, i, j] = np.max(values, 0) if self.largest else np.mean(values, 0)
        return result.astype(x.dtype)

    def _counts(self) -> tuple[int, int]:
        assert isinstance(self.samples_per_axis, int)
        return self.samples_per_axis, self.samples_per_axis

    def _points(self, start: Any, end: Any, bins: int, count: int) -> Array:
        """Positions of the sample points of each bin along one axis."""
        wide: Any = start.dtype.type
        if self.half_pixel:
            start, end = start - wide(0.5), end - wide(0.5)
        step = (end - start if self.half_pixel else max(end - start, wide(1))) / wide(bins)
        within = (np.arange(count, dtype=wide) + wide(0.5)) * step / wide(count)
        return start + np.arange(bins, dtype=wide)[:, None] * step + within


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
