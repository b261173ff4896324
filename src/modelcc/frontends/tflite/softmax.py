"""SOFTMAX and LOG_SOFTMAX along the last axis."""

from __future__ import annotations

import math

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.requantization import multiplier_and_shift
from modelcc.frontends.tflite.sixteen_bits import softmax as softmax_of_16_bits
from modelcc.ir.types import F32, I8, I16, I32, U8, Array
from modelcc.ops.attention import Softmax
from modelcc.ops.fixed_point_softmax import STEPS, FixedPointSoftmax
from modelcc.ops.gemmlowp import exponential, high_product

_INTEGER_BITS = 5
"""Bits before the point of differences whose exponentials are taken."""


def softmax(call: TfliteCall) -> str:
    """SOFTMAX of ``beta`` times its operand."""
    beta = call.number("beta", 1.0)
    if call.dtype() == F32:
        x = call.value(0)
        return call.emit(Softmax(call.rank() - 1), (x if beta == 1 else x * beta).name)
    if call.dtype() == I16:
        return softmax_of_16_bits(call, beta)
    if call.dtype() not in (I8, U8):
        unsupported(f"a softmax of {call.dtype()}")
    table = call.constant(exponentials(beta * call.single(0).scale), I32)
    return call.emit(FixedPointSoftmax(call.result_dtype), call.input(0), table)


def exponentials(step: float) -> Array:
    """Those of 0, -1, … times ``step`` with 31 fraction bits, 0 where TFLite takes no part."""
    real = min(step * 2 ** (31 - _INTEGER_BITS), 2.0**31 - 1)
    multiplier, shift = multiplier_and_shift(real)
    most = math.floor((2**_INTEGER_BITS - 1) * 2 ** (31 - _INTEGER_BITS) / 2**shift)
    steps = -np.arange(STEPS, dtype=np.int64)
    inside = -steps <= most
    scaled = high_product(np.where(inside, steps, 0) << shift, multiplier)
    return np.where(inside, exponential(scaled), 0)


SOFTMAX: Handlers = {"SOFTMAX": softmax}
