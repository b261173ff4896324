"""Softmax of bytes in integers, by a table of exponentials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.op import Builder, Op, require
from modelcc.ir.types import I8, I16, I32, I64, U8, Array, DType, TensorType
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Cast, Value, of
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.comparison import GreaterOrEqual, Min
from modelcc.ops.fixed_point import FixedPointMultiply
from modelcc.ops.gather import Gather
from modelcc.ops.logic import BitShift, BitwiseAnd
from modelcc.ops.quant import limits, quantised
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.samples import bounded, tensor

STEPS = 256
"""Differences that bytes can have."""

_SUM_BITS = 19
"""Fraction bits of the sum of exponentials, which has 12 before the point."""

_FIRST, _SLOPE, _ONE = 1_515_870_810, -1_010_580_540, 1 << 29
"""48 / 17, -32 / 17 and 1 with 29 fraction bits, of the first guess of a reciprocal."""

_TABLE = np.round((2**31 - 1) * np.exp(-np.arange(STEPS) / 20)).astype(np.int32)


@dataclass(frozen=True)
class FixedPointSoftmax(Op):
    """Softmax along the last axis of bytes, ``2^bits`` of ``to`` standing for 1 (x, table).

    ``table`` has the exponentials of 0, -1, … -255 steps of x with 31 fraction bits.  Their sum is
    taken with 19 bits, its reciprocal by Newton's method as gemmlowp's
    ``one_over_one_plus_x_for_x_in_0_1``: TFLite's reference.  The axis has up to 4,095 elements.
    """

    differentiable = False
    to: DType = I8
    samples = (
        bounded((-128, 127), tensor("n", 10, dtype=I8), _TABLE),
        bounded((0, 255), tensor(2, 3, 5, dtype=U8), _TABLE, to=U8),
        bounded((-128, 127), tensor(3, 7, dtype=I8), _TABLE, to=I16),
        bounded((-128, 127), tensor(2, 1, dtype=I8), _TABLE),
    )

    def infer(self, x: TensorType, table: TensorType) -> tuple[TensorType]:
        require(x.dtype in (I8, U8) and x.rank >= 1, f"FixedPointSoftmax takes bytes, not {x}")
        fits = table.dtype == I32 and table.shape == (STEPS,)
        require(fits, f"the table of exponentials has {STEPS} of i32, not {table}")
        extent = x.shape[-1]
        require(not isinstance(extent, int) or extent < 4096, f"the last axis of {x} is too long")
        return (TensorType(x.shape, self.to),)

    def reference(self, x: Array, table: Array) -> Array:
        steps = x.max(axis=-1, keepdims=True).astype(np.int32) - x
        terms = np.asarray(table, np.int64)[steps]
        total = ((terms + (1 << 11)) >> 12).sum(axis=-1, keepdims=True)
        places = np.floor(np.log2(np.maximum(total, 1))).astype(np.int64)
        scale = _reciprocal_array(total, places)
        shift = places + (31 - _SUM_BITS) - self.to.bits
        multiply = FixedPointMultiply().evaluate
        return quantised(multiply(terms, scale, shift) + limits(self.to)[0], self.to)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        x = Value(build, inputs[0])
        wide, axis = of(Cast(I32), x), x.type.rank - 1
        steps = of(ReduceMax((axis,), keepdims=True), wide) - wide
        terms = Value(build, build.emit(Gather(0), inputs[1], steps.name))
        half = of(BitwiseAnd(), _down(terms, 11), terms.lift(1))  # the sum could overflow before
        total = of(ReduceSum((axis,), keepdims=True), _down(terms, 12) + half)
        powers = Value(build, build.constant(np.left_shift(1, np.arange(1, 31)), I32))
        bits = of(Cast(I32), of(GreaterOrEqual(), total, powers))
        places = of(ReduceSum((axis,), keepdims=True), bits)
        shift = places + (31 - _SUM_BITS - self.to.bits)
        scaled = of(FixedPointMultiply(), terms, _reciprocal(total, places), shift)
        low, high = limits(self.to)
        return (of(Cast(self.to), of(Clip(low, high), scaled + low)).name,)


def _down(x: Value, places: int) -> Value:
    return of(BitShift(left=False), x, x.lift(places))


def _up(x: Value, places: int) -> Value:
    return of(BitShift(), x, x.lift(places))


def _product(a: Value, b: Value) -> Value:
    """Of numbers with 31 fraction bits, rounded."""
    return _down(a * b + (1 << 30), 31)


def _reciprocal(total: Value, places: Value) -> Value:
    """``2^places / total`` with 31 fraction bits."""
    wide = of(Cast(I64), total)
    shifted = of(BitShift(), wide, of(Cast(I64), places.lift(31) - places))
    half = _down(shifted, 1)
    x = _product(half, half.lift(_SLOPE)) + _FIRST
    for _ in range(3):
        x = x + _up(_product(x, x.lift(_ONE) - _product(half, x)), 2)
    return of(Cast(I32), of(Min(), _up(x, 1), x.lift(2**31 - 1)))


def _reciprocal_array(total: Array, places: Array) -> Array:
    half = np.left_shift(total, 31 - places) // 2

    def product(a: Array, b: Array | int) -> Array:
        return (a * b + 2**30) // 2**31

    x = product(half, _SLOPE) + _FIRST
    for _ in range(3):
        x = x + product(x, _ONE - product(half, x)) * 4
    return np.minimum(x * 2, 2**31 - 1)


OPS: tuple[type[Op], ...] = (FixedPointSoftmax,)
