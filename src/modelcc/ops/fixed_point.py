"""Integers times real numbers in fixed point, as quantised models without floats compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, apply, number
from modelcc.ir.op import Builder, Op, require
from modelcc.ir.types import I32, I64, Array, TensorType
from modelcc.ops.arithmetic import Cast, PiecewiseConstant, Value, of
from modelcc.ops.comparison import Max
from modelcc.ops.logic import BitShift
from modelcc.ops.samples import bounded, sample, scalar, tensor, vector

_SUMS = -1_000_000, 1_000_000
_EXTREMES = vector(2**31 - 1, -(2**31), 2**30, -(2**30), 3, 1, -1, -3, 0, dtype=I32)


@dataclass(frozen=True)
class FixedPointMultiply(PiecewiseConstant):
    """``x * multiplier / 2^31 / 2^shift`` in i32, each quotient rounded (x, multiplier, shift).

    The first to the nearest integer, halves up, the second halves away from zero: gemmlowp's
    ``SaturatingRoundingDoublingHighMul`` and ``RoundingDivideByPOT``, by which TFLite requantizes
    (Jacob et al., 2018, section 2.2).  ``multiplier`` is not negative, ``shift`` from 0 to 31.
    With ``once`` there is one quotient, by ``2^(31 + shift)``, to the nearest integer, halves up.
    """

    once: bool = False
    samples = (
        bounded(_SUMS, tensor("n", 4, dtype=I32), scalar(1_518_500_250, I32), scalar(9, I32)),
        bounded(
            _SUMS,
            tensor(2, 3, "h", dtype=I32),
            vector(2**31 - 1, 2**30, 0, dtype=I32).reshape(3, 1),
            vector(0, 7, 12, dtype=I32).reshape(3, 1),
        ),
        *(
            sample(_EXTREMES, scalar(2**31 - 1, I32), scalar(shift, I32))
            for shift in (0, 1, 2, 30, 31)
        ),
        sample(_EXTREMES, scalar(2**31 - 1, I32), scalar(31, I32), once=True),
        bounded(
            _SUMS,
            tensor("n", 3, dtype=I32),
            scalar(1_518_500_250, I32),
            vector(0, 1, 9, dtype=I32),
            once=True,
        ),
    )

    def infer(self, *xs: TensorType) -> tuple[TensorType]:
        for x in xs:
            require(x.dtype == I32, f"FixedPointMultiply takes i32, not {x}")
        return super().infer(*xs)

    def require_contents(
        self, types: Sequence[TensorType | None], contents: Sequence[Array | None]
    ) -> None:
        _, multiplier, shift = contents
        require(multiplier is None or not (multiplier < 0).any(), "a multiplier is negative")
        in_range = shift is None or not ((shift < 0) | (shift > 31)).any()
        require(in_range, "a shift is not between 0 and 31")

    def element(self, *xs: Element) -> Element:
        x, multiplier, shift = xs
        if self.once:
            product = x.cast(I64) * multiplier.cast(I64)
            places = shift.cast(I64) + 31
            half = apply("shl", number(1, I64), places - 1)
            return apply("shr", product + half, places).cast(I32)
        return apply("rounding_shr", apply("rounding_high_mul", x, multiplier), shift)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        x, multiplier, shift = (of(Cast(I64), Value(build, name)) for name in inputs)
        down, up = BitShift(left=False), BitShift()
        if self.once:
            half = of(up, x.lift(1), shift + 30)
            return (of(Cast(I32), of(down, x * multiplier + half, shift + 31)).name,)
        high = of(down, x * multiplier + 2**30, x.lift(31))
        half = of(down, of(up, x.lift(1), shift), x.lift(1))
        # Without a shift there are no halves, and nothing is taken off a negative number.
        less = of(Max(), of(down, high, x.lift(31)), -half)
        return (of(Cast(I32), of(down, high + half + less, shift)).name,)

    def evaluate(self, *xs: Array) -> Array:
        x, multiplier, shift = xs
        product = x.astype(np.int64) * multiplier
        if self.once:
            whole = np.left_shift(np.int64(1), shift.astype(np.int64) + 31)
            return np.floor_divide(product + whole // 2, whole)
        high = np.floor_divide(product + 2**30, 2**31)
        power = np.left_shift(np.int64(1), shift.astype(np.int64))
        size = (np.abs(high) + power // 2) // power
        return np.sign(high) * size


OPS: tuple[type[Op], ...] = (FixedPointMultiply,)
