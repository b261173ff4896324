"""MaxRoiPool: the greatest elements in bins of regions (Girshick 2015, "Fast R-CNN")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    integer,
    number,
    predicate,
)
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index, product
from modelcc.ir.loop import Buffer, Expr
from modelcc.ir.op import Builder, Gradients, Op, Values
from modelcc.ir.types import I64, Array, TensorType
from modelcc.ops.accumulate import accumulator
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.boxes import (
    BoxPool,
    Channels,
    Images,
    channels_first,
    each_box,
    extents_of,
    first_of,
    image_of,
    layouts,
    whole_between,
)
from modelcc.ops.comparison import Less, Max, where
from modelcc.ops.gather import GatherSum
from modelcc.ops.samples import sample, tensor
from modelcc.ops.views import permuted, reshaped

_BOXES = np.array([[0, 0, 7, 5], [2, 1, 3, 6], [6, 4, 9, 9]], np.float32)
_NUMBERS = np.array([0, 1, 0])

Span = tuple[Index, Index]
"""Where a bin begins and ends along an axis."""


@dataclass(frozen=True)
class WholePixelPool(BoxPool):
    """Base: a box (x1, y1, x2, y2) of the image of that number; its corners, times ``scale``, are
    rounded to pixels, which belong to it, and bins are whole pixels."""

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
        if at.capacity.groups is not None:
            with at.each(y.shape) as (_, (box, channel, *bin)):
                rows, columns = (
                    (at.index(low), at.index(high))
                    for axis in (0, 1)
                    for low, high in (self._edges(at, extents[axis], boxes, box, axis)(bin[axis]),)
                )
                image = image_of(at, numbers, box, count)
                own, to = Channels(channel, 1, 1), first_of(y, box, *bin)
                for images in layouts(at, x, turned):
                    self.pool(at, images, extents, y, image, own, rows, columns, to)
            return
        shares = at.capacity.shares
        edges = [_Edges(at.scratch(I64, shares * n), at.scratch(I64, shares * n), n) for n in bins]
        with each_box(at, boxes.shape[0]) as (share, box):
            for axis in (0, 1):
                self._find(at, edges[axis], share, extents[axis], boxes, box, axis)
            image = image_of(at, numbers, box, count)
            rows, columns = (partial(axis.of, at, share) for axis in edges)
            for images in layouts(at, x, turned):
                for block, row, column, to in self.each_bin(at, y, box, rows, columns):
                    self.pool(at, images, extents, y, image, block, row, column, to)

    def pool(
        self, at: AlgorithmBuilder, images: Images, extents: Sequence[Index], y: Operand,
        image: Index, block: Channels, rows: Span, columns: Span, to: Index,
    ) -> None:  # fmt: skip
        """One bin of some channels, whose channel 0 is at ``to``: from where to where it is."""
        raise NotImplementedError(type(self).__name__)

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
        """Note where the bins of a box begin and end along an axis, within the image."""
        of = self._edges(at, extent, boxes, box, axis)
        with at.loop(0, edges.bins) as bin:
            for buffer, place in zip((edges.lows, edges.highs), of(bin), strict=True):
                at.store(buffer, share * edges.bins + bin, place)

    def _edges(
        self, at: AlgorithmBuilder, extent: Index, boxes: Operand, box: Index, axis: int
    ) -> Callable[[Index], tuple[Expr, Expr]]:
        """What tells where a bin of a box begins and ends along an axis."""
        wide, bins = accumulator(boxes.dtype), (self.height, self.width)[axis]
        start, end = (
            _rounded(at, call("mul", convert(at.load(boxes, box * 4 + c), wide), scale))
            for scale in (number(self.scale, wide),)
            for c in (1 - axis, 3 - axis)
        )
        one = number(1.0, wide)
        size = call("max", add(call("sub", end, start), one), one)
        each = at.let(call("div", size, number(float(bins), wide)))
        most = index_number(extent)

        def of(bin: Index) -> tuple[Expr, Expr]:
            low = call("floor", call("mul", index_number(bin, wide), each))
            high = call("ceil", call("mul", index_number(bin + 1, wide), each))
            first, last = (whole_between(at, add(edge, start), most) for edge in (low, high))
            return first, last

        return of

    def parts(
        self, boxes: Array, numbers: Array, shape: Sequence[int]
    ) -> Iterator[tuple[tuple[int, int, int], int, slice, slice]]:
        """The pixels of each bin of images of this shape: which box and bin, of which image."""
        for k, corners in enumerate(boxes.tolist()):
            x1, y1, x2, y2 = (
                int(np.copysign(np.floor(abs(c) + 0.5), c))
                for c in (c * self.scale for c in corners)
            )
            rows = _bins(y1, y2, self.height, shape[2])
            columns = _bins(x1, x2, self.width, shape[3])
            for i, j in np.ndindex(self.height, self.width):
                yield (k, i, j), int(numbers[k]), rows[i], columns[j]


@dataclass(frozen=True)
class MaxRoiPool(WholePixelPool):
    """The greatest element of x in each of ``height * width`` bins of each box; 0 of an empty bin.

    x is [n, c, h, w], or ``turned`` [n, h, w, c].  A box is (x1, y1, x2, y2) of the image of that
    number; its corners, times ``scale``, are rounded to pixels, which belong to it.
    """

    def pool(
        self, at: AlgorithmBuilder, images: Images, extents: Sequence[Index], y: Operand,
        image: Index, block: Channels, rows: Span, columns: Span, to: Index,
    ) -> None:  # fmt: skip
        best = block.registers(at, number(float("-inf"), y.dtype))
        with at.loop(*rows) as row, at.loop(*columns) as column:
            pixel = image * images.image + row * images.row + column * images.pixel
            for n, register in enumerate(best):
                at.assign(register, call("max", register, block.load(at, images, pixel, n)))
        without = [predicate(low, ">=", high) for low, high in (rows, columns)]
        with at.when(call("or", *without)):
            for register in best:
                at.assign(register, number(0.0, y.dtype, register.lanes))
        for n, register in enumerate(best):
            block.store(at, y, to, n, register)

    def reference(
        self, boxes: Array, numbers: Array, x: Array | None, turned: Array | None
    ) -> Array:
        x = channels_first(x, turned)
        result = np.zeros((len(boxes), x.shape[1], self.height, self.width), x.dtype)
        for (k, i, j), image, rows, columns in self.parts(boxes, numbers, x.shape):
            part = x[image, :, rows, columns]
            if part.size:
                result[k, :, i, j] = part.max((1, 2))
        return result

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Added at the greatest elements; images that are given twice have it as x."""
        op = MaxRoiPoolIndices(self.height, self.width, self.scale)
        places, dy = Value(build, build.emit(op, *inputs)), Value(build, dys[0])
        x, turned = (build.type_of(name) if name else None for name in inputs[2:])
        n, channels, height, width = extents_of(x, turned)
        empty = of(Less(), places, places.lift(0.0))
        given = reshaped(where(empty, 0.0, dy), product(dy.type.shape))
        line = reshaped(of(Max(), places, places.lift(0.0)), product(dy.type.shape))
        total = of(GatherSum(0, n * channels * height * width), given, line)
        dx = reshaped(total, n, channels, height, width)
        if x is None:
            return None, None, None, permuted(dx, 0, 2, 3, 1).name
        return None, None, dx.name, None


@dataclass(frozen=True)
class MaxRoiPoolIndices(WholePixelPool):
    """Where :class:`MaxRoiPool` finds its elements, i64: the first of equal ones in the flattened
    images [n, c, h, w]; -1 of an empty bin, and of one without any that is greater than the least.
    """

    differentiable = False

    def infer(
        self, boxes: TensorType, numbers: TensorType, *images: TensorType | None
    ) -> tuple[TensorType]:
        (pooled,) = super().infer(boxes, numbers, *images)
        return (TensorType(pooled.shape, I64),)

    def blocks(self, at: AlgorithmBuilder, channels: Index) -> Iterator[Channels]:
        with at.loop(0, channels) as channel:
            yield Channels(channel, 1, 1)

    def pool(
        self, at: AlgorithmBuilder, images: Images, extents: Sequence[Index], y: Operand,
        image: Index, block: Channels, rows: Span, columns: Span, to: Index,
    ) -> None:  # fmt: skip
        best = at.register(number(float("-inf"), images.elements.dtype))
        place = at.register(integer(-1))
        with at.loop(*rows) as row, at.loop(*columns) as column:
            pixel = image * images.image + row * images.row + column * images.pixel
            value = at.let(block.load(at, images, pixel, 0))
            with at.when(call("gt", value, best)):
                at.assign(best, value)
                plane = (image * y.shape[1] + block.first) * extents[0]
                at.assign(place, index_number((plane + row) * extents[1] + column))
        block.store(at, y, to, 0, place)

    def reference(
        self, boxes: Array, numbers: Array, x: Array | None, turned: Array | None
    ) -> Array:
        x = channels_first(x, turned)
        result = np.full((len(boxes), x.shape[1], self.height, self.width), -1)
        places = np.arange(x.size).reshape(x.shape)
        for (k, i, j), image, rows, columns in self.parts(boxes, numbers, x.shape):
            part, own = (v[image, :, rows, columns].reshape(x.shape[1], -1) for v in (x, places))
            if part.size:
                found = np.take_along_axis(own, np.argmax(part, 1)[:, None], 1)[:, 0]
                result[k, :, i, j] = np.where(part.max(1) > -np.inf, found, -1)
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


def _bins(start: int, end: int, bins: int, extent: int) -> list[slice]:
    each = np.float32(max(end - start + 1, 1)) / np.float32(bins)
    edges = [
        (int(np.floor(i * each)) + start, int(np.ceil((i + 1) * each)) + start) for i in range(bins)
    ]
    return [slice(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in edges]


OPS: tuple[type[Op], ...] = (MaxRoiPool, MaxRoiPoolIndices)
