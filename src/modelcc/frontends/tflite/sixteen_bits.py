"""LOGISTIC, TANH and SOFTMAX of 16-bit numbers, by the tables of TFLite's reference kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.frontends.tflite.call import TfliteCall
from modelcc.frontends.tflite.lookup import interpolated, sampled_table
from modelcc.frontends.tflite.requantization import rescaled
from modelcc.ir.types import I16, I32, I64, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.comparison import GreaterOrEqual, Min
from modelcc.ops.gather import Gather
from modelcc.ops.logic import BitShift, BitwiseAnd
from modelcc.ops.reduce import ReduceMax

_STEPS_PER_UNIT = 24
"""Table entries per unit of the logistic function, whose values have 16 fraction bits."""


def _logistic_table() -> Array:
    """256 samples, each shifted by half of the interpolation error at the midpoint of the next
    segment; the last one is the maximum number."""

    def values(steps: Array) -> Array:
        return 2**16 / (1 + np.exp(-steps / _STEPS_PER_UNIT))

    steps = np.arange(255)
    error = values(steps + 0.5) - (values(steps) + values(steps + 1)) / 2
    return np.append(np.floor(values(steps) + error / 2 + 0.5), 2**16 - 1).astype(np.int64)


_FRACTION = 12
"""Fraction bits of the table's operands, three times that of a step."""

_EXP_RANGE = 10.0
"""Softmax clamps the operands of exponentials to the negative of this."""


def logistic(call: TfliteCall) -> str:
    """``1 / (1 + exp(-x))`` with 15 fraction bits."""
    place = _TableEntry.of_operand(call, 9, 0)
    size = of(ew.Where(), place.saturated, place.size.lift(0x7FFF << 10), place.between)
    below = size.lift((1 << 25) + (1 << 9) - 1) - size
    return _narrow(_down(of(ew.Where(), place.positive, size + (1 << 9), below), 10))


def tangent(call: TfliteCall) -> str:
    """``tanh(x)`` with 15 fraction bits, from ``2 / (1 + exp(-2 x)) - 1``."""
    place = _TableEntry.of_operand(call, 8, 1)
    size = of(ew.Where(), place.saturated, place.size.lift(0xFFFF << 8), place.between)
    centre, half = 1 << 23, 1 << 7
    below = size.lift(centre + half - 1) - size
    return _narrow(_down(of(ew.Where(), place.positive, size + (half - centre), below), 8))


@dataclass(frozen=True)
class _TableEntry:
    """Position of operands in the table: an entry, and a ``rest`` of ``bits``."""

    positive: Value
    size: Value
    bits: int

    @staticmethod
    def of_operand(call: TfliteCall, bits: int, most: int) -> _TableEntry:
        """Power-of-two scales that need shifts of up to ``most`` are shifted."""
        for own in (call.single(0), call.result()):
            if own.zero:
                call.fail(f"16-bit numbers have the zero point {own.zero}, where it must be 0")
        multiplier, places = _multiplier(float(call.single(0).scale), most)
        x = of(ew.Cast(I32), call.value(0)) * multiplier
        scaled = _down(x + (1 << (places - 1)), places) if places else x
        positive = of(GreaterOrEqual(), scaled, scaled.lift(0))
        return _TableEntry(positive, of(ew.Abs(), scaled), bits)

    @property
    def saturated(self) -> Value:
        """Whether operands are beyond the table."""
        return of(GreaterOrEqual(), self.size, self.size.lift(255 << self.bits))

    @property
    def between(self) -> Value:
        """Linear interpolation between two entries, with ``bits`` more fraction bits."""
        entry = of(Min(), _down(self.size, self.bits), self.size.lift(254))
        data = Value(entry.build, entry.build.constant(_logistic_table(), I32))
        first, second = of(Gather(0), data, entry), of(Gather(0), data, entry + 1)
        rest = of(BitwiseAnd(), self.size, self.size.lift((1 << self.bits) - 1))
        return first * (1 << self.bits) + rest * (second - first)


def _multiplier(scale: float, most: int) -> tuple[int, int]:
    """Multiplier, and right shift after it."""
    fraction, exponent = np.frexp(scale)
    places = _FRACTION + int(exponent) - 1
    if fraction == 0.5 and 0 <= places <= most:
        return 3 << places, 0
    multiplier, shift = scale * (3 << _FRACTION), 0
    while multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return int(multiplier), shift


def softmax(call: TfliteCall, beta: float) -> str:
    """Softmax along the last axis with 15 fraction bits, with exponentials and a reciprocal from
    tables of 513 values."""
    axis = (call.rank() - 1,)
    x = of(ew.Cast(I32), call.value(0))
    steps = x - of(ReduceMax(axis, keepdims=True), x)
    step = float(call.single(0).scale) * beta
    scaled = rescaled(steps, step / (_EXP_RANGE / 65535))
    terms = of(ew.Cast(I32), _looked_up(scaled + 32767, _exponentials()))
    total = of(ReduceSum(axis, keepdims=True), terms)
    places = _logarithm(total)
    wide, exponent = of(ew.Cast(I64), total), of(ew.Cast(I64), places)
    shifted = of(BitShift(), wide, exponent.lift(30) - exponent) + (1 << 13)
    place = of(ew.Cast(I32), _down(shifted, 14)) - ((1 << 15) + (1 << 16))
    reciprocal = of(ew.Cast(I64), _looked_up(place, _reciprocals()))
    half = of(BitShift(), exponent.lift(1), exponent - 1)
    products = of(ew.Cast(I64), terms) * reciprocal + half
    result = of(BitShift(left=False), products, exponent)
    return of(ew.Cast(I16), of(Clip(0.0, 32767.0), result)).name


def _looked_up(place: Value, table: Array) -> Value:
    return interpolated(of(ew.Cast(I16), of(Clip(-32768.0, 32767.0), place)), table)


def _exponentials() -> Array:
    return sampled_table(_EXP_RANGE / 65535, 32767, 2 / 65535, 0, np.exp, np.float64)


def _reciprocals() -> Array:
    return sampled_table(1 / 65535, -32768, 2 / 65535, 0, lambda x: 1 / (1 + x), np.float64)


def _logarithm(x: Value) -> Value:
    """The integer part of the base-2 logarithm of positive i32, in a new last axis of 1."""
    powers = Value(x.build, x.build.constant(np.left_shift(1, np.arange(1, 31)), I32))
    held = of(ew.Cast(I32), of(GreaterOrEqual(), x, powers))
    return of(ReduceSum((x.type.rank - 1,), keepdims=True), held)


def _down(x: Value, places: int) -> Value:
    return of(BitShift(left=False), x, x.lift(places))


def _narrow(x: Value) -> str:
    return of(ew.Cast(I16), x).name
