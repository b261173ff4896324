"""Normalisations: L2, local response, softmax and log-softmax."""

from __future__ import annotations

import math

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.requantization import multiplier_and_shift
from modelcc.frontends.tflite.sixteen_bits import softmax as softmax_of_16_bits
from modelcc.ir.types import F32, I8, I16, I32, U8, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import of
from modelcc.ops.attention import LogSoftmax, Softmax
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.fixed_point_softmax import STEPS, FixedPointSoftmax
from modelcc.ops.gemmlowp import exponential, high_product
from modelcc.ops.padding import Pad
from modelcc.ops.views import part

_INTEGER_BITS = 5
"""Integer bits of the fixed-point operands of exponentials."""


def l2_normalization(call: TfliteCall) -> str:
    """L2_NORMALIZATION along the last axis."""
    call.require_float()
    x = call.value(0)
    squares = of(ReduceSum((call.rank() - 1,), True), x * x)
    size = of(ew.Max(), of(ew.Sqrt(), squares), squares.lift(1e-6))
    return (x / size).name


def log_softmax(call: TfliteCall) -> str:
    """LOG_SOFTMAX along the last axis."""
    call.require_float()
    return call.emit(LogSoftmax(call.rank() - 1), call.input(0))


def local_response_normalization(call: TfliteCall) -> str:
    """LOCAL_RESPONSE_NORMALIZATION over ``radius`` channels before each, itself and ``radius - 1``
    after, as in TFLite's kernel."""
    call.require_float()
    x, radius, last = call.value(0), call.integer("radius"), call.rank() - 1
    if radius < 1:
        call.fail(f"it has the radius {radius}")
    channels = number_of(call.shape()[last], "number of channels")
    radius = min(radius, channels)
    before, after = ((0,) * last + (pad,) for pad in (radius, radius - 1))
    squares = of(Pad(before, after), x * x)
    near = [part(squares, last, start, channels) for start in range(2 * radius)]
    total = sum(near[1:], near[0]) * call.number("alpha") + call.number("bias")
    return (x * of(ew.Pow(), total, total.lift(-call.number("beta")))).name


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
    """Exponentials of 0, -1, … times ``step`` with 31 fraction bits, 0 where TFLite ignores
    them."""
    real = min(step * 2 ** (31 - _INTEGER_BITS), 2.0**31 - 1)
    multiplier, shift = multiplier_and_shift(real)
    most = math.floor((2**_INTEGER_BITS - 1) * 2 ** (31 - _INTEGER_BITS) / 2**shift)
    steps = -np.arange(STEPS, dtype=np.int64)
    inside = -steps <= most
    scaled = high_product(np.where(inside, steps, 0) << shift, multiplier)
    return np.where(inside, exponential(scaled), 0)


NORMALIZATION: Handlers = {
    "L2_NORMALIZATION": l2_normalization,
    "SOFTMAX": softmax,
    "LOG_SOFTMAX": log_softmax,
    "LOCAL_RESPONSE_NORMALIZATION": local_response_normalization,
}
