"""Matrix products: rows by transposed weights [O, K], and batched products."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.activations import activated
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.convolution import effective_scales, weights
from modelcc.frontends.tflite.hybrid import product_by_bytes
from modelcc.frontends.tflite.requantization import (
    quantized_bounds,
    requantized,
    rescaled_in_doubles,
    rescaled_once,
    saturated,
)
from modelcc.ir.index import Index, floordiv, product
from modelcc.ir.types import F32, I8, I16, I32, I64, U8
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.ops.shape import Reshape, Transpose


def fully_connected(call: TfliteCall) -> str:
    """The product, in the shape that the options specify."""
    if call.rank(1) != 2:
        call.fail(f"its weights are {call.type(1)}, not a matrix")
    outputs, depth = call.shape(1)
    form = call.word("weights_format", "DEFAULT")
    if form != "DEFAULT":
        unsupported(f"weights in the format {form}")
    rows = floordiv(product(call.shape()), depth)
    shape: tuple[Index, ...] = (rows, outputs)
    if call.flag("keep_num_dims"):
        shape = (*call.shape()[:-1], outputs)
    x = call.value(0)
    if call.shape() != (rows, depth):
        x = of(Reshape((rows, depth)), x)
    y = _product(call, x)
    return y.name if y.type.shape == shape else of(Reshape(shape), y).name


def _product(call: TfliteCall, x: Value) -> Value:
    if call.dtype() == F32:
        if call.dtype(1) in (I8, U8):
            return activated(call, _hybrid(call, x))
        y = of(MatMul(), x, weights(call, 1, (1, 0)))
        return activated(call, y + call.value(2) if call.has(2) else y)
    if call.dtype() == I16:
        wide = of(ew.Cast(I64), x), of(ew.Cast(I64), weights(call, 1, (1, 0)))
        sums = of(MatMul(), *wide)
        if call.has(2):
            sums = sums + of(ew.Cast(I64), call.value(2))
        return _rounded(call, sums)
    return _bytes(call, x)


def _hybrid(call: TfliteCall, x: Value) -> Value:
    """Floats by 8-bit weights: each row is quantized dynamically for the product."""
    w = call.quantization(1)
    if w.zeros.any():
        unsupported("weights of bytes with a zero point by floats")
    asymmetric = call.flag("asymmetric_quantize_inputs")
    y = product_by_bytes(x, weights(call, 1, (1, 0)), call.literal(w.scales), asymmetric)
    return y + call.value(2) if call.has(2) else y


def _bytes(call: TfliteCall, x: Value) -> Value:
    """8-bit products; TFLite's reference kernel rounds accumulators times doubles."""
    w = call.quantization(1)
    zeros = [call.literal(np.asarray(call.single(0).zero), call.dtype())]
    if w.zeros.any():
        zeros.append(call.literal(np.asarray(w.zero), call.dtype(1)))
    sums = of(MatMulInteger(), x, weights(call, 1, (1, 0)), *zeros)
    if call.has(2):
        sums = sums + (call.value(2) if call.dtype(2) == I32 else of(ew.Cast(I32), call.value(2)))
    return _rounded(call, sums)


def _rounded(call: TfliteCall, sums: Value) -> Value:
    """Accumulators times doubles, rounded once, as quantized results."""
    y, dtype = call.result(), call.result_dtype
    bounds = quantized_bounds(call.word("fused_activation_function", "NONE"), y, dtype)
    scales = effective_scales(call, -1)
    if isinstance(scales, float) and sums.type.dtype == I32:
        low, high = (bound - y.zero for bound in bounds)
        moved = rescaled_once(sums, scales, low, high)
    else:
        moved = rescaled_in_doubles(sums, scales)
    return saturated(moved, y.zero, bounds, dtype)


def batch_matmul(call: TfliteCall) -> str:
    """The product, either factor optionally transposed; of floats, 8-bit numbers or i16."""
    factors = [_factor(call, i, flag) for i, flag in enumerate(("adj_x", "adj_y"))]
    kinds = call.dtype(), call.dtype(1)
    if all(kind.is_float for kind in kinds):
        return of(MatMul(), *factors).name
    if kinds not in ((I8, I8), (I16, I16)):
        unsupported(f"a product of {kinds[0]} by {kinds[1]}")
    if call.result_dtype == I32:
        return of(MatMulInteger(), *factors).name
    return requantized(call, _sums(call, factors), _scale(call)).name


def _factor(call: TfliteCall, i: int, flag: str) -> Value:
    rank = call.rank(i)
    if rank < 2:
        call.fail(f"operand {i} is {call.type(i)}, no matrix")
    order = (*range(rank - 2), rank - 1, rank - 2)
    return of(Transpose(order), call.value(i)) if call.flag(flag) else call.value(i)


def _sums(call: TfliteCall, factors: list[Value]) -> Value:
    """Sums of products of numbers minus their zero points, in 32 or 64 bits."""
    if call.dtype() == I16:
        return of(MatMul(), *(of(ew.Cast(I64), factor) for factor in factors))
    zeros = [call.literal(np.asarray(call.single(i).zero), I8) for i in (0, 1)]
    return of(MatMulInteger(), *factors, *zeros)


def _scale(call: TfliteCall) -> float:
    product = np.float32(call.single(0).scale) * np.float32(call.single(1).scale)
    return float(product) / float(call.result().scale)


PRODUCTS: Handlers = {"FULLY_CONNECTED": fully_connected, "BATCH_MATMUL": batch_matmul}
