"""Handlers of onnxruntime's own quantised operators (com.microsoft), in QDQ form.

They become operators between DequantizeLinear and QuantizeLinear, as exporters of the standard
operators write them; passes on the graph make integer kernels of both.  The operators are
described in onnxruntime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from modelcc.frontends.onnx.call import Call, Handler, Handlers
from modelcc.frontends.onnx.contrib import value
from modelcc.frontends.onnx.contrib_attention import attention
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.nn import average_pool
from modelcc.frontends.onnx.quant import dequantize, qlinear_conv, quantize
from modelcc.frontends.onnx.recurrent import lstm
from modelcc.frontends.onnx.shape import reshaped
from modelcc.ir.op import Op
from modelcc.ir.types import F32, I32, U8
from modelcc.ops import activation as act
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Softmax
from modelcc.ops.matmul import Gemm
from modelcc.ops.quant import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.shape import Concat, Transpose


def real(call: Call, i: int, axis: int = 0) -> str:
    """Operands ``i`` to ``i + 2``, a tensor with its scale and zero point, dequantised."""
    operands = [n for n in call.inputs[i : i + 3] if n]
    return call.emit(DequantizeLinear(axis), *operands)


def requantised(call: Call, result: str, i: int) -> str:
    """``result`` quantised by operands ``i`` and ``i + 1``, a scale and a zero point."""
    scale, zero = (*call.inputs[i : i + 2], "")[:2]
    if not zero:
        return call.emit(QuantizeLinear(U8, 0), result, scale)
    return call.emit(QuantizeLinear(call.type_of(zero).dtype, 0), result, scale, zero)


def binary(op: Op) -> Handler:
    """``op`` of two quantised operands."""

    def handler(call: Call) -> str:
        return requantised(call, call.emit(op, real(call, 0), real(call, 3)), 6)

    return handler


def unary(function: Callable[[Call, str], str]) -> Handler:
    """``function`` of a quantised operand."""

    def handler(call: Call) -> str:
        return requantised(call, function(call, real(call, 0)), 3)

    return handler


def leaky_relu(call: Call, x: str) -> str:
    return call.emit(act.LeakyRelu(call.attrs.number("alpha", 0.01)), x)


def sigmoid(call: Call, x: str) -> str:
    return call.emit(ew.Sigmoid(), x)


def softmax(call: Call, x: str) -> str:
    if call.attrs.integer("opset", 13) < 13 and call.axis(-1) != call.rank() - 1:
        unsupported("softmax over several axes (its attribute opset below 13)")
    return call.emit(Softmax(call.axis(-1)), x)


def averages(call: Call, x: str) -> str:
    """Average pooling; channels may be last."""
    rank, last = call.rank(), call.attrs.flag("channels_last")
    if last:
        x = call.emit(Transpose((0, rank - 1, *range(1, rank - 1))), x)
    result = average_pool(call.with_inputs((x,)))
    return call.emit(Transpose((0, *range(2, rank), 1)), result) if last else result


def averages_of_all(call: Call, x: str) -> str:
    """Averages over all positions; channels may be last."""
    first = 1 if call.attrs.flag("channels_last") else 2
    return call.emit(ReduceMean(tuple(range(first, call.rank() - 2 + first)), True), x)


def concat(call: Call) -> str:
    """Scale and zero point of the result come first, then triples."""
    parts = [real(call, i) for i in range(2, len(call.inputs), 3)]
    rank = call.type_of(parts[0]).rank
    joined = call.emit(Concat(call.axis(rank=rank)), *parts)
    return requantised(call, joined, 0)


def conv(call: Call) -> str:
    if call.attrs.flag("channels_last"):
        unsupported("channels last (channels_last=1)")
    return qlinear_conv(call)


def gemm(call: Call) -> str:
    """The result is quantised if there is a scale for it; the bias is in units of the sums'."""
    attrs = call.attrs
    transposed = attrs.flag("transB")
    a, b = real(call, 0), real(call, 3, 0 if transposed else 1)
    alpha = attrs.number("alpha", 1.0)
    operands = [a, b]
    if call.has(6):
        unit = call.emit(ew.Mul(), call.input(1), call.input(4))
        unit = unit if alpha == 1.0 else (Value(call, unit) * alpha).name
        operands.append(call.emit(DequantizeLinear(0), call.input(6), unit))
    op = Gemm(alpha, 1.0, attrs.flag("transA"), transposed)
    result = call.emit(op, *operands)
    return requantised(call, result, 7) if call.has(7) else result


def dynamic_matmul(call: Call) -> str:
    """f32 by quantised matrix: the f32 operand is quantised on the fly."""
    x, scale, zero = call.add(DynamicQuantizeLinear(), call.input(0))
    return _scaled_product(call, x, scale, zero, (2, 3, 4))


def matmul_to_float(call: Call) -> str:
    zero = call.input(4) if call.has(4) else ""
    return _scaled_product(call, call.input(0), call.input(2), zero, (3, 5, 6))


def _scaled_product(
    call: Call, a: str, a_scale: str, a_zero: str, places: tuple[int, int, int]
) -> str:
    """``a @ operand 1`` as f32; ``places`` are those of b's scale, its zero point and the bias."""
    b_scale, b_zero, bias = places
    zeros = [a_zero, call.input(b_zero) if call.has(b_zero) else ""]
    while zeros and not zeros[-1]:
        zeros.pop()
    sums = call.emit(MatMulInteger(), a, call.input(1), *zeros)
    factor = Value(call, a_scale) * value(call, b_scale)
    result = of(ew.Cast(F32), Value(call, sums)) * factor
    return (result + value(call, bias) if call.has(bias) else result).name


def quantised_attention(call: Call) -> tuple[str, ...]:
    """Attention with a quantised input and quantised weights of the projection."""
    x, weights, bias, x_scale, w_scale, mask, x_zero, w_zero, past = (*call.inputs, *[""] * 9)[:9]
    left = call.emit(DequantizeLinear(0), *(n for n in (x, x_scale, x_zero) if n))
    right = call.emit(DequantizeLinear(1), *(n for n in (weights, w_scale, w_zero) if n))
    return attention(call.with_inputs((left, right, bias, mask, past)))


def dynamic_lstm(call: Call) -> tuple[str, ...]:
    """An LSTM whose weights are quantised: [directions, inputs, 4 * hidden], per direction.

    States stay f32, where onnxruntime quantises them again in each step.
    """
    operands = list((*call.inputs, *[""] * 12)[:12])
    for place, parameters in ((1, 8), (2, 10)):
        scale, zero = operands[parameters : parameters + 2]
        weights = _per_direction(call, operands[place], scale, zero)
        operands[place] = call.emit(Transpose((0, 2, 1)), weights)
    kept = operands[:8]
    while kept and not kept[-1]:
        kept.pop()
    return lstm(call.with_inputs(tuple(kept)))


def _per_direction(call: Call, weights: str, scale: str, zero: str) -> str:
    """Dequantised weights whose parameters are [directions] or [directions, 4 * hidden]."""
    rank = call.type_of(scale).rank
    wide = call.emit(ew.Cast(I32), weights)
    difference = Value(call, wide)
    if zero:
        difference = difference - _spread(call, call.emit(ew.Cast(I32), zero), rank)
    return (of(ew.Cast(F32), difference) * _spread(call, scale, rank)).name


def _spread(call: Call, parameter: str, rank: int) -> Value:
    shape = call.type_of(parameter).shape
    extents = (shape[0], 1, shape[1]) if rank == 2 else (*shape, 1, 1)
    return Value(call, reshaped(call, parameter, extents))


CONTRIB_QUANT: Handlers = MappingProxyType(
    {
        "QuantizeLinear": quantize,
        "DequantizeLinear": dequantize,
        "QLinearAdd": binary(ew.Add()),
        "QLinearMul": binary(ew.Mul()),
        "QLinearSigmoid": unary(sigmoid),
        "QLinearLeakyRelu": unary(leaky_relu),
        "QLinearSoftmax": unary(softmax),
        "QLinearAveragePool": unary(averages),
        "QLinearGlobalAveragePool": unary(averages_of_all),
        "QLinearConcat": concat,
        "QLinearConv": conv,
        "QGemm": gemm,
        "DynamicQuantizeMatMul": dynamic_matmul,
        "MatMulIntegerToFloat": matmul_to_float,
        "QAttention": quantised_attention,
        "DynamicQuantizeLSTM": dynamic_lstm,
    }
)
