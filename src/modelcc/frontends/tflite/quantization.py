"""QUANTIZE, DEQUANTIZE and other changes of quantization."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.tflite.call import QUANTIZED, Handlers, TfliteCall
from modelcc.frontends.tflite.requantization import centred, half_away, rescaled, saturated
from modelcc.ir.types import BF16, F16, F32, I32, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import of
from modelcc.ops.quant import DequantizeLinear, limits


def quantize(call: TfliteCall) -> str:
    """QUANTIZE of floats, or requantization."""
    y, dtype = call.results[0].quantization, call.result_dtype
    if y is None:
        call.fail(f"result {call.results[0].name!r} has no quantization parameters")
    if call.dtype() in (*QUANTIZED, I32):
        x, own = call.single(0), call.result()
        real = float(x.scale) / float(own.scale)
        moved = rescaled(centred(call.value(0), x.zero), real)
        return saturated(moved, own.zero, _bounds(dtype), dtype).name
    if not y.per_tensor:
        unsupported("floats become numbers with a scale for each channel")
    call.require_float()
    steps = half_away(call.value(0) / float(np.float32(y.scale)))
    low, high = _bounds(dtype)
    return of(ew.Cast(dtype), of(Clip(float(low), float(high)), steps + float(y.zero))).name


def _bounds(dtype: DType) -> tuple[int, int]:
    low, high = limits(dtype)
    return int(low), int(high)


def dequantize(call: TfliteCall) -> str:
    """DEQUANTIZE of numbers, or of f16, whose constants become f32 at import."""
    if call.dtype() in (F16, BF16):
        known = call.known(0)
        if known is not None and not is_symbolic(known):
            return call.constant(np.asarray(known).astype(np.float32), F32)
        return call.emit(ew.Cast(F32), call.input(0))
    x = call.quantization(0)
    scales: Array = x.scales[0] if x.per_tensor else x.scales
    zeros: Array = np.asarray(x.zeros[0] if x.per_tensor else x.zeros)
    operands = [call.input(0), call.constant(np.asarray(scales), F32)]
    if zeros.any():
        operands.append(call.constant(zeros, call.dtype()))
    return call.emit(DequantizeLinear(0 if x.per_tensor else x.axis), *operands)


def unchanged(call: TfliteCall) -> str:
    """DENSIFY: sparse constants are densified when read."""
    return call.input(0)


def fake_quant(call: TfliteCall) -> str:
    """FAKE_QUANT: floats rounded to values that a quantized type represents."""
    bits, narrow = call.integer("num_bits", 8), call.flag("narrow_range")
    low, high = (np.float32(call.number(end)) for end in ("min", "max"))
    least, most = int(narrow), 2**bits - 1
    scale = np.float32((high - low) / np.float32(most - least))
    if not scale > 0:
        call.fail(f"it rounds numbers from {low} to {high}")
    start = float(least) - float(low / scale)
    zero = min(max(int(np.floor(start + 0.5)), least), most)
    nudged = [float(np.float32(end - zero) * scale) for end in (least, most)]
    inside = of(Clip(*nudged), call.value(0)) + -nudged[0]
    steps = of(ew.Floor(), inside * float(np.float32(1) / scale) + 0.5)
    return (steps * float(scale) + nudged[0]).name


QUANTIZATION: Handlers = {
    "QUANTIZE": quantize,
    "DEQUANTIZE": dequantize,
    "DENSIFY": unchanged,
    "FAKE_QUANT": fake_quant,
}
