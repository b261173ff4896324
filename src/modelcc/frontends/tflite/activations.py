"""Activations: separate operators, and fused into others."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite import sixteen_bits
from modelcc.frontends.tflite.call import Handlers, SingleResult, TfliteCall
from modelcc.frontends.tflite.lookup import Function, from_table, looked_up
from modelcc.frontends.tflite.requantization import (
    FLOAT_BOUNDS,
    centred,
    multiplier_and_shift,
    quantized_bounds,
    rescaled,
    saturated,
)
from modelcc.ir import special
from modelcc.ir.op import Op
from modelcc.ir.types import I16, Array
from modelcc.ops import activation as ac
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip, Relu
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import GreaterOrEqual
from modelcc.ops.gemmlowp import quotient
from modelcc.ops.quant import limits


def clipping(name: str) -> SingleResult:
    """RELU and variants; quantized numbers are requantized as well."""

    def handler(call: TfliteCall) -> str:
        if not call.is_quantized:
            return applied(name, call.value(0)).name
        x, y = call.single(0), call.result()
        real = float(np.float32(x.scale) / np.float32(y.scale))
        moved = rescaled(centred(call.value(0), x.zero), real)
        bounds = quantized_bounds(name, y, call.result_dtype)
        return saturated(moved, y.zero, bounds, call.result_dtype).name

    return handler


def function(op: Op, of_reals: Function) -> SingleResult:
    """An op on floats, a lookup table on quantized numbers."""

    def handler(call: TfliteCall) -> str:
        if call.is_quantized:
            return looked_up(call, of_reals)
        return of(op, call.value(0)).name

    return handler


def gelu(call: TfliteCall) -> str:
    """GELU, optionally by its tanh approximation."""
    op = ac.Gelu("tanh" if call.flag("approximate") else "none")
    return function(op, op.evaluate)(call)


def hard_swish(call: TfliteCall) -> str:
    """HARD_SWISH; for 8-bit types a table of TFLite's 16-bit computation."""
    if not call.is_quantized:
        return of(ac.HardSwish(), call.value(0)).name
    return from_table(call, _hard_swish_table(call))


def _hard_swish_table(call: TfliteCall) -> Array:
    """``x * (x / 3 + 1) / 2`` in fixed point, both factors saturated."""
    x, y, dtype = call.single(0), call.result(), call.dtype()
    fine = np.float32(1 / 128) * np.float32(x.scale)
    scaled, exponent = _of_16_bits(float(fine / np.float32(y.scale)))
    relu, relu_exponent = _of_16_bits(float(fine / (np.float32(3) / np.float32(32768))))
    if exponent > 0:
        unsupported("a HARD_SWISH whose result has too small a scale")
    low, high = limits(dtype)
    values = (np.arange(int(low), int(high) + 1) - x.zero) << 7
    factor = values
    if relu_exponent > 0:
        factor = _saturated(factor << (relu_exponent - 1))
    factor = _high_product(factor, relu)
    if relu_exponent > 0:
        factor = _saturated(factor << 1)
    elif relu_exponent < 0:
        factor = quotient(factor, -relu_exponent)
    factor = (factor + (1 << 15)) >> 1
    product = factor * _high_product(values, scaled)
    whole = np.sign(product) * (np.abs(product) >> 15)
    return np.clip(quotient(whole, -exponent) + y.zero, low, high)


def _of_16_bits(real: float) -> tuple[int, int]:
    """A 15-bit multiplier, and its exponent."""
    multiplier, exponent = multiplier_and_shift(real)
    return 0x7FFF if multiplier >= 0x7FFF0000 else (multiplier + (1 << 15)) >> 16, exponent


def _saturated(x: Array) -> Array:
    return np.clip(x, -32768, 32767)


def _high_product(a: Array, b: int) -> Array:
    """``a b / 2^15``, rounded."""
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.sign(nudged) * (np.abs(nudged) >> 15)


def leaky_relu(call: TfliteCall) -> str:
    """LEAKY_RELU."""
    alpha = call.number("alpha")
    if not call.is_quantized:
        return of(ac.LeakyRelu(alpha), call.value(0)).name
    x, y = call.single(0), call.result()
    wide = centred(call.value(0), x.zero)
    scale, own = np.float32(x.scale), np.float32(y.scale)
    below = float(scale * np.float32(alpha) / own)
    lesser = rescaled(wide, abs(below))
    return _either(call, wide, rescaled(wide, float(scale / own)), -lesser if below < 0 else lesser)


def prelu(call: TfliteCall) -> str:
    """PRELU."""
    if not call.is_quantized:
        return of(ac.PRelu(), call.value(0), call.value(1)).name
    x, slope, y = call.single(0), call.single(1), call.result()
    wide = centred(call.value(0), x.zero)
    scale, own = np.float32(x.scale), np.float32(y.scale)
    product = wide * centred(call.value(1), slope.zero)
    lesser = rescaled(product, float(scale * np.float32(slope.scale) / own))
    return _either(call, wide, rescaled(wide, float(scale / own)), lesser)


def _either(call: TfliteCall, x: Value, greater: Value, lesser: Value) -> str:
    """``greater`` where ``x`` is at least 0, else ``lesser``, saturated to the result's type."""
    chosen = of(ew.Where(), of(GreaterOrEqual(), x, x.lift(0)), greater, lesser)
    low, high = (int(limit) for limit in limits(call.result_dtype))
    return saturated(chosen, call.result().zero, (low, high), call.result_dtype).name


def of_16_bits(own: SingleResult, op: Op, of_reals: Function) -> SingleResult:
    """A function with its ``own`` kernels for 16-bit numbers."""
    plain = function(op, of_reals)

    def handler(call: TfliteCall) -> str:
        return (own if call.is_quantized and call.dtype() == I16 else plain)(call)

    return handler


def activated(call: TfliteCall, x: Value) -> Value:
    """``x`` after the operator's fused activation."""
    return applied(call.word("fused_activation_function", "NONE"), x)


def applied(name: str, x: Value) -> Value:
    """An activation by its name in the schema."""
    match name:
        case "NONE":
            return x
        case "RELU":
            return of(Relu(), x)
        case "TANH":
            return of(ew.Tanh(), x)
        case _ if name in FLOAT_BOUNDS:
            return of(Clip(*FLOAT_BOUNDS[name]), x)
        case _:
            unsupported(f"the fused activation {name}")


ACTIVATIONS: Handlers = {
    "RELU": clipping("RELU"),
    "RELU6": clipping("RELU6"),
    "RELU_N1_TO_1": clipping("RELU_N1_TO_1"),
    "RELU_0_TO_1": clipping("RELU_0_TO_1"),
    "LEAKY_RELU": leaky_relu,
    "PRELU": prelu,
    "HARD_SWISH": hard_swish,
    "LOGISTIC": of_16_bits(sixteen_bits.logistic, ew.Sigmoid(), special.sigmoid),
    "TANH": of_16_bits(sixteen_bits.tangent, ew.Tanh(), np.tanh),
    "ELU": function(ac.Elu(), lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x)),
    "GELU": gelu,
}
