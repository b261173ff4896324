"""Col2Im: columns of blocks, summed into an image."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call, convert, number, predicate
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, Sym, ceildiv, floordiv, maximum, minimum, product
from modelcc.ir.loop import Buffer
from modelcc.ir.op import Builder, Gradients, Op, Sample, Values, require
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import accumulator, require_numeric
from modelcc.ops.broadcast import Reshape
from modelcc.ops.conv import Conv
from modelcc.ops.samples import sample, tensor
from modelcc.ops.window import numbers, row_major


def _samples() -> tuple[Sample, ...]:
    plain: dict[str, object] = {
        "image": (5, 6), "block": (2, 3), "strides": (1, 1), "dilations": (1, 1),
        "before": (0, 0), "after": (0, 0),
    }  # fmt: skip
    wide = {"strides": (2, 1), "dilations": (1, 2), "before": (1, 0), "after": (0, 2)}
    line: dict[str, object] = {"strides": (1,), "dilations": (1,), "before": (0,), "after": (0,)}
    return (
        sample(tensor(2, 12, 16), **plain),
        sample(tensor(1, 6, 12), **{**plain, **wide}),
        sample(tensor(1, 12, 16, dtype=F16), **plain),
        sample(tensor(1, 4, "n"), image=(Sym("n") + 1,), block=(2,), **line),
    )


@dataclass(frozen=True)
class Col2Im(Op):
    """Each column [channels * block] of x [batch, channels * block, columns] added at its place.

    Blocks lie in the ``image`` as the windows of a convolution do; extents may be symbolic.
    """

    image: tuple[Index, ...]
    block: tuple[Index, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    samples = _samples()

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_numeric(x.dtype, "Col2Im")
        require(x.rank == 3, f"Col2Im needs [batch, channels * block, columns], not {x}")
        rank = len(self.image)
        given = (self.block, self.strides, self.dilations, self.before, self.after)
        require(all(len(v) == rank for v in given), f"Col2Im of {rank} axes got {given}")
        return (TensorType((x.shape[0], self._channels(x.shape), *self.image), x.dtype),)

    def shape_constraints(self, x: TensorType) -> Constraints:
        rows = self._channels(x.shape) * product(self.block)
        return (x.shape[1], "==", rows), (x.shape[2], "==", product(self.counts()))

    def _channels(self, shape: Sequence[Index]) -> Index:
        return floordiv(shape[1], product(self.block))

    def counts(self) -> tuple[Index, ...]:
        """Blocks along each axis of the image."""
        rows = zip(
            *(self.image, self.block, self.strides, self.dilations, self.before, self.after),
            strict=True,
        )
        return tuple(floordiv(n + b + a - (k - 1) * d - 1, s) + 1 for n, k, s, d, b, a in rows)

    def reference(self, x: Array) -> Array:
        image, block = numbers(self.image, "image"), numbers(self.block, "block")
        counts = numbers(self.counts(), "columns")
        channels = x.shape[1] // int(np.prod(block))
        blocks = x.reshape(x.shape[0], channels, *block, *counts)
        extents = [n + b + a for n, b, a in zip(image, self.before, self.after, strict=True)]
        y = np.zeros((x.shape[0], channels, *extents), np.float64)
        for tap in np.ndindex(*block):
            spots = tuple(
                slice(k * d, k * d + (c - 1) * s + 1, s)
                for k, d, c, s in zip(tap, self.dilations, counts, self.strides, strict=True)
            )
            y[(..., *spots)] += blocks[(slice(None), slice(None), *tap)]
        inner = tuple(slice(b, b + n) for b, n in zip(self.before, image, strict=True))
        return y[(..., *inner)].astype(x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """The windows as columns: a convolution by kernels of one 1 each."""
        shape, dtype = build.type_of(inputs[0]).shape, build.type_of(inputs[0]).dtype
        (channels,) = numbers((self._channels(shape),), "channels of a Col2Im")
        block = numbers(self.block, "the block of a Col2Im")
        ones = np.eye(prod(block), dtype=dtype.numpy).reshape(-1, 1, *block)
        kernels = build.constant(np.tile(ones, (channels, *(1,) * (len(block) + 1))))
        windows = Conv(self.strides, self.before, self.after, self.dilations, channels)
        return (build.emit(Reshape(shape), build.emit(windows, dys[0], kernels)),)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (y,) = inputs, outputs
        assert x is not None
        if at.capacity.groups is not None:
            self._each_pixel(at, x, y)
            return
        images, size, work = product(y.shape[:2]), product(self.image), x.type.elements
        blocks = 1 if at.capacity.is_little(work) else at.capacity.blocks(images)
        sums = at.scratch(accumulator(x.dtype), blocks * size)
        with (
            at.shared_loop(blocks, work) as block,
            at.loop(block * images // blocks, (block + 1) * images // blocks) as image,
        ):
            start = block * size
            at.fill(sums, start, size, number(0, sums.dtype))
            self._add_blocks(at, x, image, sums, start)
            for place, lanes in at.vectors(size):
                value = at.load(sums, start + place, lanes)
                at.store(y, image * size + place, convert(value, y.dtype))

    def _each_pixel(self, at: AlgorithmBuilder, x: Operand, y: Operand) -> None:
        """What the taps of blocks bring to a pixel, as many blocks as it is in."""
        counts = self.counts()
        with at.each(y.shape) as (element, (image, channel, *pixel)):
            total = at.register(number(0, accumulator(x.dtype)))
            with ExitStack() as taps:
                tap = [taps.enter_context(at.loop(0, extent)) for extent in self.block]
                steps: list[Index] = []
                for axis, stride in enumerate(self.strides):
                    ahead = pixel[axis] + self.before[axis] - tap[axis] * self.dilations[axis]
                    step = ahead // stride
                    meets = predicate(ahead, ">=", 0), predicate(step, "<", counts[axis])
                    taps.enter_context(at.when(call("and", *meets)))
                    taps.enter_context(at.when(predicate(ahead % stride, "==", 0)))
                    steps.append(step)
                places = (image, channel, *tap, *steps)
                extents = (y.shape[0], y.shape[1], *self.block, *counts)
                value = at.load(x, row_major(places, extents))
                at.assign(total, call("add", total, convert(value, total.dtype)))
            at.store(y, element, convert(total, y.dtype))

    def _add_blocks(
        self, at: AlgorithmBuilder, x: Operand, image: Index, sums: Buffer, start: Index
    ) -> None:
        """All of an image: for each tap, the rows of the blocks' elements there, as they lie."""
        counts = self.counts()
        with ExitStack() as stack:
            taps = [stack.enter_context(at.loop(0, extent)) for extent in self.block]
            steps = [stack.enter_context(at.loop(0, count)) for count in counts[:-1]]
            row: Index = 0
            for axis, (step, tap) in enumerate(zip(steps, taps, strict=False)):
                place = step * self.strides[axis] + tap * self.dilations[axis] - self.before[axis]
                inside = predicate(place, ">=", 0), predicate(place, "<", self.image[axis])
                stack.enter_context(at.when(call("and", *inside)))
                row = row * self.image[axis] + place
            line = image * product(self.block) + row_major(taps, self.block)
            source = line * product(counts) + row_major((*steps, 0), counts)
            first = taps[-1] * self.dilations[-1] - self.before[-1]
            self._add_run(at, (x, source), (sums, start + row * self.image[-1]), first)

    def _add_run(
        self,
        at: AlgorithmBuilder,
        source: tuple[Operand, Index],
        target: tuple[Buffer, Index],
        first: Index,
    ) -> None:
        """A row of blocks' elements, the first of which belongs to place ``first`` of a row."""
        (x, origin), (sums, start), stride = source, target, self.strides[-1]
        begin = ceildiv(maximum(-first, 0), stride)
        inside = ceildiv(maximum(self.image[-1] - first, 0), stride)
        count = maximum(minimum(self.counts()[-1], inside) - begin, 0)
        with at.loop(0, ceildiv(count, at.lanes)) as vector:
            n = vector * at.lanes
            active = None if at.lanes == 1 else count - n
            value = at.load(x, origin + begin + n, at.lanes, 1, active)
            place = start + first + (begin + n) * stride
            known = at.load(sums, place, at.lanes, stride, active)
            total = call("add", known, convert(value, sums.dtype))
            at.store(sums, place, total, stride, active)


OPS: tuple[type[Op], ...] = (Col2Im,)
"""Ops that take images apart and put them together."""
