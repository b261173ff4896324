"""Col2Im: columns of blocks, summed into an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, guard
from modelcc.ir.condition import Demands
from modelcc.ir.index import Index, Sym, floordiv, mod, product
from modelcc.ir.op import Op, Sample, require
from modelcc.ir.tensor import Condition
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_numeric, rounded
from modelcc.ops.samples import tensor
from modelcc.ops.window import numbers


def _samples() -> tuple[Sample, ...]:
    plain: dict[str, object] = {
        "image": (5, 6), "block": (2, 3), "strides": (1, 1), "dilations": (1, 1),
        "before": (0, 0), "after": (0, 0),
    }  # fmt: skip
    wide = {"strides": (2, 1), "dilations": (1, 2), "before": (1, 0), "after": (0, 2)}
    line = {"strides": (1,), "dilations": (1,), "before": (0,), "after": (0,)}
    open_ = {"image": (Sym("n") + 1,), "block": (2,)}
    return (
        Sample((tensor(2, 12, 16),), plain),
        Sample((tensor(1, 6, 12),), {**plain, **wide}),
        Sample((tensor(1, 12, 16, dtype=F16),), plain),
        Sample((tensor(1, 4, "n"),), {**line, **open_}),
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
    samples: ClassVar[tuple[Sample, ...]] = _samples()

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_numeric(x.dtype, "Col2Im")
        require(x.rank == 3, f"Col2Im needs [batch, channels * block, columns], not {x}")
        rank = len(self.image)
        given = (self.block, self.strides, self.dilations, self.before, self.after)
        require(all(len(v) == rank for v in given), f"Col2Im of {rank} axes got {given}")
        return (TensorType((x.shape[0], self._channels(x.shape), *self.image), x.dtype),)

    def agreements(self, x: TensorType) -> Demands:
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

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        wide, counts = accumulator(x.dtype), self.counts()

        def body(o: Point, r: Point) -> Element:
            row, column = o[1], 0
            inside: list[Condition] = []
            for axis, (tap, count) in enumerate(zip(r, counts, strict=True)):
                stride = self.strides[axis]
                place = o[2 + axis] + self.before[axis] - tap * self.dilations[axis]
                step = floordiv(place, stride)
                inside += [Condition(0, "<=", step), Condition(step, "<", count)]
                if stride > 1:
                    inside.append(Condition(mod(place, stride), "==", 0))
                row, column = row * self.block[axis] + tap, column * count + step
            return guard(inside, x[(o[0], row, column)].cast(wide), 0)

        shape = (x.shape[0], self._channels(x.shape), *self.image)
        return rounded(at, at.reduce(shape, self.block, "sum", body), x.dtype)


OPS: tuple[type[Op], ...] = (Col2Im,)
"""Ops that take images apart and put them together."""
