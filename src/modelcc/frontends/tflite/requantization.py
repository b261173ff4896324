"""Requantization of accumulators to the scale of a result, as in TFLite.

Reals become a 31-bit multiplier and a shift (Jacob et al., 2018, section 2.2); the 64-bit sums of
16-bit activations are multiplied by a 15-bit one.
"""

from __future__ import annotations

import math

import numpy as np

from modelcc.frontends.tflite.call import TfliteCall
from modelcc.frontends.tflite.module import TfliteQuantization
from modelcc.ir.types import F64, I32, I64, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.fixed_point import FixedPointMultiply
from modelcc.ops.logic import BitShift
from modelcc.ops.quant import limits

FLOAT_BOUNDS = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
"""Bounds of fused activations that clamp."""


def multiplier_and_shift(real: float) -> tuple[int, int]:
    """``real`` as ``multiplier * 2^(shift - 31)``, with a 31-bit multiplier; tiny ones are 0."""
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, shift = multiplier // 2, shift + 1
    return (multiplier, shift) if shift >= -31 else (0, 0)


def rescaled(x: Value, reals: Array | float) -> Value:
    """i32 ``x`` times ``reals``, which broadcast to it, rounded twice as in gemmlowp."""
    return rescaled_by(x, *_parts(reals))


def rescaled_by(x: Value, multipliers: Array, shifts: Array) -> Value:
    """i32 ``x`` times ``multipliers * 2^(shifts - 31)``."""
    left = np.maximum(shifts, 0)
    if left.any():
        x = x * _constant(x, np.left_shift(1, left), I32)
    right = np.maximum(-shifts, 0)
    op = FixedPointMultiply()
    return of(op, x, _constant(x, multipliers, I32), _constant(x, right, I32))


def rescaled_wide(x: Value, reals: Array | float) -> Value:
    """i64 ``x`` times ``reals``, rounded once, by 15-bit multipliers; in i32."""
    multipliers, shifts = _parts(reals)
    reduced = np.where(multipliers < 0x7FFF0000, (multipliers + (1 << 15)) >> 16, 0x7FFF)
    places = 15 - shifts
    product = x * _constant(x, reduced, I64) + _constant(x, np.left_shift(1, places - 1), I64)
    return of(ew.Cast(I32), of(BitShift(left=False), product, _constant(x, places, I64)))


def rescaled_once(x: Value, real: float, low: int, high: int) -> Value:
    """i32 ``x`` times ``real``, rounded half away from zero.

    In integers if a multiplier gives the same as the product of doubles within ``low`` to ``high``,
    and is out of range where that is; else in doubles.
    """
    found = exact_multiplier(real, low, high)
    if found is not None:
        multiplier, shift = (_constant(x, np.asarray(part), I32) for part in found)
        return of(FixedPointMultiply(once=True), x, multiplier, shift)
    return rescaled_in_doubles(x, real)


def rescaled_in_doubles(x: Value, reals: Array | float) -> Value:
    """Integers ``x`` times ``reals``, rounded half away from zero; in i32."""
    wide = of(ew.Cast(F64), x) * _constant(x, np.asarray(reals), F64)
    return of(ew.Cast(I32), half_away(of(Clip(-(2.0**31), 2.0**31 - 1), wide)))


def half_away(x: Value) -> Value:
    """Floats rounded to the nearest integer, halves away from zero."""
    size = of(ew.Floor(), of(ew.Abs(), x) + 0.5)
    return of(ew.Sign(), x) * size


def exact_multiplier(real: float, low: int, high: int) -> tuple[int, int] | None:
    """``m, s`` with ``floor(x m / 2^(31 + s) + 1/2)`` as ``x * real`` in doubles rounded, halves
    away from zero, for every x of 32 bits with a result from ``low`` to ``high``.

    None if there are none.  The result reaches k where ``x m >= (k - 1/2) 2^(31 + s)``, so each
    step gives bounds of m.
    """
    _, shift = multiplier_and_shift(real)
    if not 0 <= -shift <= 31 or not real > 0:
        return None
    least, most = 0, 2**31 - 1
    for k in range(low, high + 2):
        x = _first(real, k)
        if not -(2**31) < x < 2**31:
            continue
        half = (2 * k - 1) << (30 - shift)
        low_m, high_m = _bounds(x, half)
        least, most = max(least, low_m), min(most, high_m)
    if least > most:
        return None
    ideal = multiplier_and_shift(real)[0]
    return min(max(ideal, least), most), -shift


def _first(real: float, k: int) -> int:
    """The least x whose product with ``real`` in doubles is rounded to ``k`` or more."""
    x = math.ceil((k - 0.5) / real)
    while _rounded(x * real) >= k:
        x -= 1
    while _rounded(x * real) < k:
        x += 1
    return x


def _rounded(value: float) -> int:
    return math.floor(value + 0.5) if value >= 0 else -math.floor(0.5 - value)


def _bounds(x: int, half: int) -> tuple[int, int]:
    """Bounds of m with ``x m >= half`` and ``(x - 1) m <= half - 1``, for an odd multiple."""
    low, high = 0, 2**31 - 1
    if x > 0:
        low = -(-half // x)
    elif x < 0:
        high = half // x
    elif half > 0:
        low = high + 1
    if x > 1:
        high = min(high, (half - 1) // (x - 1))
    elif x < 1:
        low = max(low, -((half - 1) // (1 - x)))
    elif half < 1:
        low = high + 1
    return low, high


def quantized_bounds(activation: str, own: TfliteQuantization, dtype: DType) -> tuple[int, int]:
    """The minimum and maximum of a quantized result with a fused activation."""
    low, high = (int(limit) for limit in limits(dtype))
    least, most = FLOAT_BOUNDS.get(activation, (None, None))
    if least is not None:
        low = max(low, _place(least, own))
    if most is not None:
        high = min(high, _place(most, own))
    return low, high


def _place(real: float, own: TfliteQuantization) -> int:
    """The quantized number of ``real``."""
    steps = np.float32(real) / np.float32(own.scale)
    return own.zero + _rounded(float(steps))


def saturated(x: Value, zero: int, bounds: tuple[int, int], dtype: DType) -> Value:
    """``x + zero`` clamped to ``bounds``, as ``dtype``."""
    moved = x + zero if zero else x
    return of(ew.Cast(dtype), of(Clip(*map(float, bounds)), moved))


def requantized(call: TfliteCall, sums: Value, reals: Array | float) -> Value:
    """i32 or i64 ``sums`` times ``reals`` as quantized results, after the fused activation."""
    own, dtype = call.result(), call.result_dtype
    bounds = quantized_bounds(call.word("fused_activation_function", "NONE"), own, dtype)
    scaled = rescaled_wide(sums, reals) if sums.type.dtype == I64 else rescaled(sums, reals)
    return saturated(scaled, own.zero, bounds, dtype)


def centred(x: Value, zero: int) -> Value:
    """Quantized numbers minus their zero point, in i32."""
    wide = of(ew.Cast(I32), x)
    return wide + -zero if zero else wide


def rounded_quotient(x: Value, counts: Array | int) -> Value:
    """i32 ``x`` divided by positive ``counts``, rounded half away from zero."""
    half = _constant(x, np.asarray(counts) // 2, I32)
    positive = of(ew.Greater(), x, x.lift(0))
    return (x + of(ew.Where(), positive, half, -half)) / _constant(x, np.asarray(counts), I32)


def divided_by_power(x: Value, places: int) -> Value:
    """i32 ``x`` divided by ``2^places``, rounded half away from zero."""
    down, half = BitShift(left=False), (1 << places) >> 1
    less = of(down, x, x.lift(31)) if half else x.lift(0)
    return of(down, x + less + half, x.lift(places))


def _parts(reals: Array | float) -> tuple[Array, Array]:
    given = np.asarray(reals, np.float64)
    pairs = [multiplier_and_shift(real) for real in given.reshape(-1).tolist()]
    multipliers, shifts = (np.array(part, np.int64).reshape(given.shape)
                           for part in zip(*pairs, strict=True))  # fmt: skip
    if (shifts > 30).any():
        raise ValueError(f"the scale of its result is {given.max()} times too small")
    return multipliers, shifts


def _constant(like: Value, numbers: Array, dtype: DType) -> Value:
    return Value(like.build, like.build.constant(np.asarray(numbers), dtype))
