"""The normalisation family in one place; LpNormalization and LRN are defined here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, guard, number, select
from modelcc.ir.index import product
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.tensor import Condition
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops import channel_norm, layer_norm, moments
from modelcc.ops.accumulate import Point, accumulator, combined, require_float, widen
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum, Reshape
from modelcc.ops.channel_norm import BatchNorm as BatchNorm
from modelcc.ops.channel_norm import GroupNorm as GroupNorm
from modelcc.ops.channel_norm import InstanceNorm as InstanceNorm
from modelcc.ops.channel_norm import require_channels
from modelcc.ops.comparison import Abs, Equal, Sign, where
from modelcc.ops.conv import Conv
from modelcc.ops.layer_norm import LayerNorm as LayerNorm
from modelcc.ops.layer_norm import RMSNorm as RMSNorm
from modelcc.ops.lp_pool import magnitude_power, root
from modelcc.ops.samples import sample, tensor
from modelcc.ops.transcendental import Pow, Sqrt
from modelcc.ops.views import cast


@dataclass(frozen=True)
class LpNormalization(Op):
    """``x / (sum of |x|^p along axis)^(1/p)``; zero vectors stay zero."""

    axis: int
    p: int = 2
    samples = (
        sample(tensor(3, "n"), axis=1),
        sample(tensor(2, 3, 4), axis=1, p=1),
        sample(tensor(2, 4, dtype=F16), axis=0),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "LpNormalization")
        require(0 <= self.axis < x.rank, f"LpNormalization along axis {self.axis} of {x}")
        require(self.p in (1, 2), f"LpNormalization knows p of 1 and 2, not {self.p}")
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array) -> Array:
        wide = widen(x)
        norm = np.linalg.norm(wide, self.p, axis=self.axis, keepdims=True)
        return (wide / np.where(norm == 0, 1, norm)).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        wide, axis = accumulator(x.dtype), self.axis

        def term(o: Point, r: Point) -> Element:
            return magnitude_power(x[(*o[:axis], *r, *o[axis:])].cast(wide), self.p)

        outer, inner = (*x.shape[:axis], *x.shape[axis + 1 :]), x.shape[axis : axis + 1]
        total = combined(at, outer, inner, "sum", term)
        norm = at.stage(outer, lambda o: _nonzero(root(total[o], self.p)))
        return at.stage(
            x.shape, lambda o: (x[o].cast(wide) / norm[(*o[:axis], *o[axis + 1 :])]).cast(x.dtype)
        )

    def decompose(self, build: Builder, x: str) -> tuple[str]:
        dtype = build.type_of(x).dtype
        value = cast(Value(build, x), accumulator(dtype))
        return (cast(value / self._norm(value), dtype).name,)

    def _norm(self, x: Value) -> Value:
        """The norm along the axis, 1 where it is 0."""
        axes = (self.axis,)
        if self.p == 1:
            norm = of(ReduceSum(axes), of(Abs(), x))
        else:
            norm = of(Sqrt(), of(ReduceSum(axes), x * x))
        return where(of(Equal(), norm, norm.lift(0.0)), norm.lift(1.0), norm)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        dy, value = Value(build, dys[0]), Value(build, x)
        norm = self._norm(value)
        y = value / norm
        direction = of(Sign(), value) if self.p == 1 else y
        return (((dy - direction * of(ReduceSum((self.axis,)), dy * y)) / norm).name,)


def _nonzero(x: Element) -> Element:
    return select(apply("eq", x, 0.0), number(1, x.dtype), x)


@dataclass(frozen=True)
class LRN(Op):
    """``x / (bias + alpha/size * sum of x^2 over size neighbouring channels) ^ beta``.

    Krizhevsky et al., "ImageNet classification with deep CNNs", 2012, section 3.3.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    samples = (
        sample(tensor("n", 5, 3, 4), size=3, alpha=0.5),
        sample(tensor(1, 6, 2, "w"), size=5, alpha=0.5, beta=0.5, bias=2.0),
        sample(tensor(1, 3, 2, 2), size=7, alpha=0.5),
        sample(tensor(1, 3, 2, 2), size=1, alpha=0.5),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "LRN")
        require_channels(x)
        require(self.size >= 1, f"LRN needs a size of at least 1, not {self.size}")
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array) -> Array:
        squares, before = np.square(widen(x)), (self.size - 1) // 2
        total = np.zeros_like(squares)
        for c in range(x.shape[1]):
            near = slice(max(0, c - before), c - before + self.size)
            total[:, c] = squares[:, near].sum(axis=1)
        scale = self.bias + self.alpha / self.size * total
        return (widen(x) / scale**self.beta).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        wide, before, channels = accumulator(x.dtype), (self.size - 1) // 2, x.shape[1]

        def square(o: Point, r: Point) -> Element:
            near = o[1] + r[0] - before
            inside = (Condition(0, "<=", near), Condition(near, "<", channels))
            value = guard(inside, x[(o[0], near, *o[2:])], 0).cast(wide)
            return value * value

        total = combined(at, x.shape, (self.size,), "sum", square)

        def body(o: Point) -> Element:
            scale = self.bias + total[o] * (self.alpha / self.size)
            return (x[o].cast(wide) / apply("pow", scale, self.beta)).cast(x.dtype)

        return at.stage(x.shape, body)

    def decompose(self, build: Builder, x: str) -> tuple[str]:
        dtype = build.type_of(x).dtype
        value = cast(Value(build, x), accumulator(dtype))
        scale = self._scale(value)
        return (cast(value / of(Pow(), scale, scale.lift(self.beta)), dtype).name,)

    def _scale(self, x: Value) -> Value:
        return self._neighbours(x * x, (self.size - 1) // 2) * (self.alpha / self.size) + self.bias

    def _neighbours(self, x: Value, before: int) -> Value:
        """Sum over ``size`` neighbouring channels, as a convolution along the channels."""
        batch, channels, *spatial = x.type.shape
        images = of(Reshape((batch, 1, channels, product(spatial))), x)
        ones = np.ones((1, 1, self.size, 1), x.type.dtype.numpy)
        window = Conv((1, 1), (before, 0), (self.size - 1 - before, 0), (1, 1))
        total = of(window, images, Value(x.build, x.build.constant(ones)))
        return of(Reshape(x.type.shape), total)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        dy, value = Value(build, dys[0]), Value(build, x)
        scale = self._scale(value)
        power = dy / of(Pow(), scale, scale.lift(self.beta))
        mirrored = self._neighbours(power * value / scale, self.size // 2)
        slope = 2 * self.alpha * self.beta / self.size
        return ((power - value * mirrored * slope).name,)


OPS: tuple[type[Op], ...] = (
    *(*channel_norm.OPS, *layer_norm.OPS, *moments.OPS),
    *(LpNormalization, LRN),
)
