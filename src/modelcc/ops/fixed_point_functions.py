"""The logistic function and the hyperbolic tangent of 16-bit fixed-point numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from modelcc.ir.op import Builder, Op, require
from modelcc.ir.types import I16, I32, Array, TensorType
from modelcc.ops import gemmlowp
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Cast, Value, of
from modelcc.ops.comparison import Equal, Greater, Min
from modelcc.ops.elementwise import Abs, Where
from modelcc.ops.logic import BitShift, BitwiseAnd
from modelcc.ops.samples import bounded, sample, tensor

_BITS = 15
"""Of a number without its sign."""

_MOST = (1 << _BITS) - 1

_EXTREMES = np.array([-32768, -32767, -4096, -1, 0, 1, 2, 4095, 4096, 20000, 32767], np.int16)


@dataclass(frozen=True)
class FixedPointActivation(Op):
    """``function`` of i16 with ``integer_bits`` before the point, in i16 with none.

    What gemmlowp's ``logistic`` and ``tanh`` give for 16 bits, by which TFLite's integer LSTMs
    compute: an exponential by powers of e and a Taylor series, a quotient by Newton's method.
    """

    differentiable = False
    function: Literal["logistic", "tanh"]
    integer_bits: int
    samples = (
        *(
            sample(_EXTREMES, function=function, integer_bits=bits)
            for function in ("logistic", "tanh")
            for bits in (0, 3, 6)
        ),
        bounded((-32768, 32767), tensor(2, "n", dtype=I16), function="tanh", integer_bits=4),
        bounded((-32768, 32767), tensor(3, 7, dtype=I16), function="logistic", integer_bits=3),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(x.dtype == I16, f"FixedPointActivation takes i16, not {x}")
        require(0 <= self.integer_bits <= 6, f"{self.integer_bits} bits are before the point")
        return (x,)

    def reference(self, x: Array) -> Array:
        found = gemmlowp.logistic if self.function == "logistic" else gemmlowp.tangent
        return found(x.astype(np.int64), self.integer_bits, 16).astype(np.int16)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        x = of(Cast(I32), Value(build, inputs[0]))
        size, zero = of(Abs(), x), x.lift(0)
        if self.function == "logistic":
            half = _half_reciprocal(_exponential(size, self.integer_bits))
            above = of(Min(), half * 2, half.lift(_MOST))
            below, middle = above.lift(_MOST) - above, 1 << (_BITS - 1)
        else:
            half = _half_reciprocal(_exponential(size, self.integer_bits + 1))
            above = of(Min(), (half - (1 << (_BITS - 2))) * 4, half.lift(_MOST))
            below, middle = -above, 0
        signed = of(Where(), of(Greater(), x, zero), above, below)
        found = of(Where(), of(Equal(), x, zero), x.lift(middle), signed)
        return (of(Cast(I16), found).name,)


def _down(x: Value, places: int) -> Value:
    return of(BitShift(left=False), x, x.lift(places)) if places else x


def _product(a: Value, b: Value | int) -> Value:
    """To the nearest, halves up; never of the least number by itself."""
    return _down(a * b + (1 << (_BITS - 1)), _BITS)


def _quotient(a: Value, places: int) -> Value:
    """By a power of two, halves away from zero."""
    return _down(a + _down(a, 31) + (1 << (places - 1)), places)


def _exponential(size: Value, integer_bits: int) -> Value:
    """``exp(-size)``, of numbers from 0 on."""
    fraction = _BITS - integer_bits
    quarter = 1 << (fraction - 2)
    rest = of(BitwiseAnd(), -size, size.lift(quarter - 1)) - quarter
    result = _last_quarter(rest * (1 << integer_bits))
    left = rest + size
    for place, factor in zip(range(-2, integer_bits), gemmlowp.POWERS, strict=False):
        bit = of(BitwiseAnd(), left, left.lift(1 << (fraction + place)))
        scaled = _product(result, gemmlowp.constant(factor, 16))
        result = of(Where(), of(Equal(), bit, bit.lift(0)), result, scaled)
    if integer_bits > 5:
        least = gemmlowp.constant(1 << (36 - integer_bits), 16)
        result = of(Where(), of(Greater(), size, size.lift(least)), size.lift(0), result)
    return of(Where(), of(Equal(), size, size.lift(0)), size.lift(_MOST), result)


def _last_quarter(a: Value) -> Value:
    """``exp`` of numbers from -1/4 on: its Taylor series around -1/8."""
    x = a + (1 << (_BITS - 3))
    square = _product(x, x)
    third = gemmlowp.constant(gemmlowp.THIRD, 16)
    higher = _product(_quotient(_product(square, square), 2) + _product(square, x), third)
    eighth = gemmlowp.constant(gemmlowp.EIGHTH, 16)
    sum_ = _product(x + _quotient(higher + square, 1), eighth) + eighth
    return of(Clip(-_MOST - 1, _MOST), sum_)


def _half_reciprocal(a: Value) -> Value:
    """``2 / (1 + a)`` with two bits before the point, for a from 0 to 1."""
    half = _down(a + (1 << _BITS), 1)
    first, slope = (gemmlowp.constant(n, 16) for n in (gemmlowp.FIRST, gemmlowp.SLOPE))
    x = _product(half, slope) + first
    for _ in range(3):
        error = x.lift(1 << (_BITS - 2)) - _product(half, x)
        step = of(Clip(-_MOST - 1, _MOST), _product(x, error) * 4)
        x = x + step
    return x


OPS: tuple[type[Op], ...] = (FixedPointActivation,)
