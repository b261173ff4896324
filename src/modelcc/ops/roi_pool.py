"""MaxRoiPool: the greatest elements in bins of regions (Girshick 2015, "Fast R-CNN")."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    number,
    predicate,
)
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer, Expr
from modelcc.ir.op import Op
from modelcc.ir.types import I64, Array
from modelcc.ops.accumulate import accumulator
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
from modelcc.ops.samples import sample, tensor

_BOXES = np.array([[0, 0, 7, 5], [2, 1, 3, 6], [6, 4, 9, 9]], np.float32)
_NUMBERS = np.array([0, 1, 0])


@dataclass(frozen=True)
class MaxRoiPool(BoxPool):
    """The greatest element of x in each of ``height * width`` bins of each box; 0 of an empty bin.

    x is [n, c, h, w], or ``turned`` [n, h, w, c].  A box is (x1, y1, x2, y2) of the image of that
    number; its corners, times ``scale``, are rounded to pixels, which belong to it.
    """

    scale: float = 1.0
    samples = (
        sample(_BOXES, _NUMBERS, None, tensor(2, 6, 8, 3), height=2, width=3),
        sample(_BOXES, _NUMBERS, None, tensor(2, 6, 8, 21), height=3, width=2, scale=0.5),
        sample(_BOXES, _NUMBERS, None, tensor(2, 6, "w", "c"), height=2, width=2),
        sample(_BOXES, _NUMBERS, tensor(2, "c", 6, "w"), None, height=2, width=2),
    )

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (boxes, numbers, x, turned), (y,) = inputs, outputs
        assert boxes is not None and numbers is not None
        bins = self.height, self.width
        count, _, *extents = extents_of(x, turned)
        shares = at.capacity.shares
        edges = [_Edges(at.scratch(I64, shares * n), at.scratch(I64, shares * n), n) for n in bins]
        with each_box(at, boxes.shape[0]) as (share, box):
            for axis in (0, 1):
                self._find(at, edges[axis], share, extents[axis], boxes, box, axis)
            image = image_of(at, numbers, box, count)
            rows, columns = (partial(axis.of, at, share) for axis in edges)
            for images in layouts(at, x, turned):
                start = image * images.image
                for block, row, column, to in self.each_bin(at, y, box, rows, columns):
                    _pool(at, images, y, block, start, row, column, to)

    def _find(
        self,
        at: AlgorithmBuilder,
        edges: _Edges,
        share: Index,
        extent: Index,
        boxes: Operand,
        box: Index,
        axis: int,
    ) -> None:
        """Where the bins of a box begin and end along an axis, within the image."""
        wide = accumulator(boxes.dtype)
        start, end = (
            _rounded(at, call("mul", convert(at.load(boxes, box * 4 + c), wide), scale))
            for scale in (number(self.scale, wide),)
            for c in (1 - axis, 3 - axis)
        )
        one = number(1.0, wide)
        size = call("max", add(call("sub", end, start), one), one)
        each = at.let(call("div", size, number(float(edges.bins), wide)))
        most = index_number(extent)
        with at.loop(0, edges.bins) as bin:
            low = call("floor", call("mul", index_number(bin, wide), each))
            high = call("ceil", call("mul", index_number(bin + 1, wide), each))
            for buffer, edge in ((edges.lows, low), (edges.highs, high)):
                place = whole_between(at, add(edge, start), most)
                at.store(buffer, share * edges.bins + bin, place)

    def reference(
        self, boxes: Array, numbers: Array, x: Array | None, turned: Array | None
    ) -> Array:
        x = channels_first(x, turned)
        result = np.zeros((len(boxes), x.shape[1], self.height, self.width), x.dtype)
        for k, corners in enumerate(boxes.tolist()):
            x1, y1, x2, y2 = (
                int(np.copysign(np.floor(abs(c) + 0.5), c))
                for c in (c * self.scale for c in corners)
            )
            rows = _bins(y1, y2, self.height, x.shape[2])
            columns = _bins(x1, x2, self.width, x.shape[3])
            for i, j in np.ndindex(self.height, self.width):
                part = x[numbers[k], :, rows[i], columns[j]]
                if part.size:
                    result[k, :, i, j] = part.max((1, 2))
        return result


@dataclass(frozen=True)
class _Edges:
    """The first pixels of bins along one axis, and those after their last ones."""

    lows: Buffer
    highs: Buffer
    bins: int

    def of(self, at: AlgorithmBuilder, share: Index, bin: Index) -> tuple[Index, Index]:
        place = share * self.bins + bin
        return at.index(at.load(self.lows, place)), at.index(at.load(self.highs, place))


def _rounded(at: AlgorithmBuilder, value: Expr) -> Expr:
    """The nearest whole number, halves away from 0."""
    value = at.let(value)
    size = call("floor", add(call("abs", value), number(0.5, value.dtype)))
    return at.let(call("mul", call("sign", value), size))


def _pool(
    at: AlgorithmBuilder,
    images: Images,
    y: Operand,
    block: Channels,
    start: Index,
    rows: tuple[Index, Index],
    columns: tuple[Index, Index],
    to: Index,
) -> None:
    """The greatest elements of one bin of the image at ``start``, into y from ``to`` on."""
    best = block.registers(at, number(float("-inf"), y.dtype))
    with at.loop(*rows) as row, at.loop(*columns) as column:
        pixel = start + row * images.row + column * images.pixel
        for n, register in enumerate(best):
            at.assign(register, call("max", register, block.load(at, images, pixel, n)))
    empty = call("or", predicate(rows[0], ">=", rows[1]), predicate(columns[0], ">=", columns[1]))
    with at.when(empty):
        for register in best:
            at.assign(register, number(0.0, y.dtype, register.lanes))
    for n, register in enumerate(best):
        block.store(at, y, to, n, register)


def _bins(start: int, end: int, bins: int, extent: int) -> list[slice]:
    each = np.float32(max(end - start + 1, 1)) / np.float32(bins)
    edges = [
        (int(np.floor(i * each)) + start, int(np.ceil((i + 1) * each)) + start) for i in range(bins)
    ]
    return [slice(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in edges]


OPS: tuple[type[Op], ...] = (MaxRoiPool,)
