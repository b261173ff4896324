"""MaxRoiPool: the greatest elements in bins of regions (Girshick 2015, "Fast R-CNN")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, select
from modelcc.ir.condition import Demands
from modelcc.ir.index import Index
from modelcc.ir.op import Op, Sample, equal, require, same_dtype
from modelcc.ir.types import I64, Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_equal, require_float
from modelcc.ops.runtime_index import bound_along
from modelcc.ops.samples import tensor

_BOXES = np.array([[0, 0, 0, 7, 5], [1, 2, 1, 3, 6], [0, 6, 4, 9, 9]], np.float32)


@dataclass(frozen=True)
class MaxRoiPool(Op):
    """The greatest element of x in each of ``height * width`` bins of each box; 0 of an empty bin.

    A box is (number of its image, x1, y1, x2, y2); its corners, times ``scale``, are rounded to
    pixels, which belong to it.  As stages every bin looks at the whole image.
    """

    height: int
    width: int
    scale: float = 1.0
    samples = (
        Sample((tensor(2, 3, 6, 8), _BOXES), {"height": 2, "width": 3}),
        Sample((tensor(2, 1, 6, 8), _BOXES), {"height": 3, "width": 2, "scale": 0.5}),
    )

    def infer(self, x: TensorType, boxes: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "MaxRoiPool")
        same_dtype(x, boxes)
        fits = x.rank == 4 and boxes.rank == 2
        require(fits, f"MaxRoiPool needs [n, c, h, w] and [k, 5], not {x} and {boxes}")
        require_equal(boxes.shape[1], 5, "an image's number and four corners for each box")
        return (TensorType((boxes.shape[0], x.shape[1], self.height, self.width), x.dtype),)

    def agreements(self, x: TensorType, boxes: TensorType) -> Demands:
        return equal(boxes.shape[1:], (5,))

    def compute(self, at: StageBuilder, x: Operand, boxes: Operand) -> Operand:
        (result,) = self.infer(x.type, boxes.type)
        wide = accumulator(x.dtype)

        def ends(box: Index, bin: Index, axis: int) -> tuple[Element, Element]:
            """The first position of a bin, and the one after its last."""
            bins, extent = (self.height, self.width)[axis], x.shape[2 + axis]
            corners = (boxes[box, 2 - axis].cast(wide), boxes[box, 4 - axis].cast(wide))
            start, end = (apply("floor", c * self.scale + 0.5) for c in corners)
            each = apply("max", end - start + 1.0, 1.0) / float(bins)
            first = apply("floor", index_value(bin, wide) * each) + start
            last = apply("ceil", index_value(bin + 1, wide) * each) + start
            high = index_value(extent, I64)
            low, up = (apply("max", p.cast(I64), 0) for p in (first, last))
            return apply("min", low, high), apply("min", up, high)

        def inside(o: Point, place: Index, axis: int) -> Element:
            low, high = ends(o[0], o[2 + axis], axis)
            position = index_value(place, I64)
            return apply("and", position >= low, position < high)

        def value(o: Point, r: Point) -> Element:
            number = boxes[o[0], 0].cast(I64)
            image = bound_along(x, 0, wrapped=False)
            pixel = at.gather(number, lambda n: x[n, o[1], r[0], r[1]].cast(wide), image)
            held = apply("and", inside(o, r[0], 0), inside(o, r[1], 1))
            return select(held, pixel, float("-inf"))

        best = at.reduce(result.shape, x.shape[2:], "max", value)

        def bin_value(o: Point) -> Element:
            empty = apply("eq", best[o], float("-inf"))
            return select(empty, 0.0, best[o]).cast(x.dtype)

        return at.stage(result.shape, bin_value)

    def reference(self, x: Array, boxes: Array) -> Array:
        result = np.zeros((len(boxes), x.shape[1], self.height, self.width), x.dtype)
        for k, (number, *corners) in enumerate(boxes.tolist()):
            x1, y1, x2, y2 = (int(np.floor(c * self.scale + 0.5)) for c in corners)
            rows = _bins(y1, y2, self.height, x.shape[2])
            columns = _bins(x1, x2, self.width, x.shape[3])
            for i, j in np.ndindex(self.height, self.width):
                part = x[int(number), :, rows[i], columns[j]]
                if part.size:
                    result[k, :, i, j] = part.max((1, 2))
        return result


def _bins(start: int, end: int, bins: int, extent: int) -> list[slice]:
    each = np.float32(max(end - start + 1, 1)) / np.float32(bins)
    edges = [
        (int(np.floor(i * each)) + start, int(np.ceil((i + 1) * each)) + start) for i in range(bins)
    ]
    return [slice(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in edges]


OPS: tuple[type[Op], ...] = (MaxRoiPool,)
