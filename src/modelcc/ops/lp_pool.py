"""Pooling by norms: LpPool over the spatial axes of [N, C, *S], and powers of magnitudes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply
from modelcc.ir.op import Builder, Gradients, Op, Values
from modelcc.ir.types import Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, combined, require_float, widen
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Abs, Sign
from modelcc.ops.pool import Pool, geometries, plain_sample, sum_of_taps
from modelcc.ops.samples import tensor
from modelcc.ops.transcendental import Pow


@dataclass(frozen=True)
class LpPool(Pool):
    """``(sum of |x|^p) ^ (1/p)`` over each window, padding adding nothing."""

    p: int = 2
    samples = (
        *geometries(),
        plain_sample(tensor(1, 2, 6, 6), (2, 2), p=1),
        plain_sample(tensor(1, 2, 6, 6), (2, 2), p=0, pads_before=(1, 1)),
        plain_sample(tensor(1, 2, 6, 6), (2, 2), p=-1, pads_before=(1, 1)),
        plain_sample(tensor(1, 2, 6, 6), (2, 3), p=3, pads_before=(1, 0)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "LpPool")
        return super().infer(x)

    def reference(self, x: Array) -> Array:
        wide = widen(x)
        with np.errstate(all="ignore"):
            total = sum_of_taps(np.abs(wide) ** wide.dtype.type(self.p), self.window)
        return (total ** inverse(self.p)).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        wide = accumulator(x.dtype)

        def body(o: Point, r: Point) -> Element:
            return self.read(x, o, r, lambda e: magnitude_power(e.cast(wide), self.p), 0)

        total = combined(at, result.shape, self.kernel, "sum", body)
        return at.stage(result.shape, lambda o: root(total[o], self.p).cast(x.dtype))

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        dy, value = Value(build, dys[0]), Value(build, x)
        if self.p == 0:
            return (None,)  # infinite, or 1 for a window of one element
        if self.p == 1:
            return ((of(Sign(), value) * Value(build, self.spread(build, dy, x))).name,)
        norm = of(self, value)
        scaled = Value(build, self.spread(build, dy / of(Pow(), norm, norm.lift(self.p - 1.0)), x))
        magnitude = of(Abs(), value)
        slope = of(Pow(), magnitude, magnitude.lift(self.p - 1.0)) * of(Sign(), value)
        return ((scaled * slope).name,)


def magnitude_power(x: Element, p: int) -> Element:
    """``|x| ** p``."""
    match p:
        case 1:
            return apply("abs", x)
        case 2:
            return x * x
        case _:
            return apply("pow", apply("abs", x), float(p))


def root(x: Element, p: int) -> Element:
    """``x ** (1/p)`` of a non-negative number."""
    match p:
        case 1:
            return x
        case 2:
            return apply("sqrt", x)
        case _:
            return apply("pow", x, inverse(p))


def inverse(p: int) -> float:
    """``1/p`` as in IEEE 754."""
    return 1 / p if p else float("inf")


OPS: tuple[type[Op], ...] = (LpPool,)
