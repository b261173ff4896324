"""Handlers of onnxruntime's own quantised operators (com.microsoft), in QDQ form.

They become operators between DequantizeLinear and QuantizeLinear, as exporters of the standard
operators write them; passes on the graph make integer kernels of both.  The operators are
described in onnxruntime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.parts import joined
from modelcc.frontends.onnx.call import Call, Handler, table
from modelcc.frontends.onnx.contrib.attention import attention
from modelcc.frontends.onnx.contrib.fused import with_channels_last
from modelcc.frontends.onnx.standard.nn import average_pool
from modelcc.frontends.onnx.standard.quant import dequantize, qlinear_conv, quantize
from modelcc.frontends.onnx.standard.quant_parameters import of_slices, of_tensor
from modelcc.frontends.onnx.standard.recurrent import LENGTHS, lstm_layer
from modelcc.ir.op import Op
from modelcc.ir.types import F32, I32, U8, Array
from modelcc.ops import activation as act
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Softmax
from modelcc.ops.matmul import Gemm
from modelcc.ops.quant import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.ops.recurrence import Quantised, Weights, direction
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.views import cast


def real(call: Call, i: int, axis: int | None = None) -> str:
    """Operands ``i`` to ``i + 2``, a tensor with its scale and zero point, dequantised.

    These are single numbers, or one for each slice of ``axis`` if there is one.
    """
    if axis is None:
        call = of_tensor(call, i + 1, i + 2)
    else:
        call = of_slices(call, [call.shape(i)[axis]], i + 1, i + 2)
    operands = [n for n in call.inputs[i : i + 3] if n]
    return call.emit(DequantizeLinear(axis or 0), *operands)


def requantised(call: Call, result: str, i: int) -> str:
    """``result`` quantised by operands ``i`` and ``i + 1``, a scale and a zero point."""
    call = of_tensor(call, i, i + 1)
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


def softmax(call: Call, x: str) -> str:
    if call.attrs.integer("opset", 13) < 13 and call.axis(-1) != call.rank() - 1:
        unsupported("softmax over several axes (its attribute opset below 13)")
    return call.emit(Softmax(call.axis(-1)), x)


def averages(call: Call, x: str) -> str:
    """Average pooling; channels may be last."""
    if not call.attrs.flag("channels_last"):
        return average_pool(call.with_inputs((x,)))
    return with_channels_last(call.with_inputs((x,)), average_pool)


def averages_of_all(call: Call, x: str) -> str:
    """Averages over all positions; channels may be last."""
    first = 1 if call.attrs.flag("channels_last") else 2
    return call.emit(ReduceMean(tuple(range(first, call.rank() - 2 + first)), True), x)


def concat(call: Call) -> str:
    """Scale and zero point of the result come first, then triples."""
    parts = [real(call, i) for i in range(2, len(call.inputs), 3)]
    rank = call.type_of(parts[0]).rank
    return requantised(call, joined(call, call.axis(rank=rank), parts), 0)


def where(call: Call) -> str:
    """Elements of one of two quantised operands."""
    chosen = call.emit(ew.Where(), call.input(0), real(call, 1), real(call, 4))
    return requantised(call, chosen, 7)


def mean(call: Call) -> str:
    """Means over axes, all of them if none are given."""
    rank = call.rank()
    given = call.attrs.integers("axes", tuple(range(rank)))
    axes = tuple(sorted(call.normal(axis, rank) for axis in given))
    op = ReduceMean(axes, call.attrs.flag("keepdims", True))
    return requantised(call, call.emit(op, real(call, 0)), 3)


def conv(call: Call) -> str:
    """Channels may be last, but not in the weights."""
    if not call.attrs.flag("channels_last"):
        return qlinear_conv(call)
    return with_channels_last(call, qlinear_conv)


def gemm(call: Call) -> str:
    """The result is quantised if there is a scale for it; the bias is in units of the sums'."""
    attrs = call.attrs
    transposed = attrs.flag("transB")
    call = of_tensor(call, 1)
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
    call = of_slices(call, call.shape(1), 3)
    return _scaled_product(call, x, scale, zero, (2, 3, 4))


def matmul_to_float(call: Call) -> str:
    call = of_slices(of_tensor(call, 2, 4), call.shape(1), 5)
    return _scaled_product(call, call.input(0), call.input(2), call.input(4), (3, 5, 6))


def _scaled_product(
    call: Call, a: str, a_scale: str, a_zero: str, places: tuple[int, int, int]
) -> str:
    """``a @ operand 1`` as f32; ``places`` are those of b's scale, its zero point and the bias."""
    b_scale, b_zero, bias = places
    zeros = (a_zero, call.input(b_zero))
    given = 2 if zeros[1] else 1 if a_zero else 0
    sums = call.emit(MatMulInteger(), a, call.input(1), *zeros[:given])
    factor = Value(call, a_scale) * call.value(b_scale)
    result = of(ew.Cast(F32), Value(call, sums)) * factor
    return (result + call.value(bias) if call.has(bias) else result).name


def quantised_attention(call: Call) -> tuple[str, ...]:
    """Attention with a quantised input and quantised weights of the projection."""
    call = of_slices(of_tensor(call, 3, 6), call.shape(1), 4, 7)
    x, weights, bias, x_scale, w_scale, mask, x_zero, w_zero, past = (*call.inputs, *[""] * 9)[:9]
    left = call.emit(DequantizeLinear(0), *(n for n in (x, x_scale, x_zero) if n))
    right = call.emit(DequantizeLinear(1), *(n for n in (weights, w_scale, w_zero) if n))
    return attention(call.with_inputs((left, right, bias, mask, past)))


def dynamic_lstm(call: Call) -> tuple[str, ...]:
    """An LSTM whose weights are bytes [directions, inputs, 4 * hidden]; it computes with integers.

    The inputs are quantised all at once, the states in each step, as onnxruntime does.
    """
    op = lstm_layer(call)
    lengths = cast(call.value(LENGTHS), I32) if call.has(LENGTHS) else None
    x, b, h, c, p = (call.given(i) for i in (0, 3, 5, 6, 7))
    assert x is not None
    sides = [
        Weights(
            _bytes(call, d, 1, 8),
            _bytes(call, d, 2, 10),
            None if b is None else direction(b, d),
            None if p is None else direction(p, d),
        )
        for d in range(op.directions)
    ]
    return op.over_directions(x, sides, lengths, (h, c))


def _bytes(call: Call, which: int, i: int, parameters: int) -> Quantised:
    """Operand ``i`` of one direction, its scale and zero point operands ``parameters`` on."""
    scale = direction(call.value(parameters), which)
    has_zero = call.has(parameters + 1)
    if call.known(i) is not None and (not has_zero or call.known(parameters + 1) is not None):
        values = call.array(i, "weights")[which]
        zeros = call.array(parameters + 1, "zero points")[which] if has_zero else 0
        return _constant_bytes(call, values, np.asarray(zeros, np.int32), scale)
    zero = direction(call.value(parameters + 1), which) if has_zero else None
    return Quantised(direction(call.value(i), which), scale, zero)


def _constant_bytes(call: Call, values: Array, zero: Array, scale: Value) -> Quantised:
    """Weights as i8, with the sums of their columns."""
    shift = 128 if values.dtype == np.uint8 else 0
    steps = values.astype(np.int32) - shift
    zero = zero - shift
    sums = np.asarray((steps - zero).sum(0, dtype=np.int32))
    kept, columns = (call.literal(a) for a in (steps.astype(np.int8), sums))
    given = call.literal(zero.astype(np.int32)) if zero.any() else None
    return Quantised(kept, scale, given, columns)


CONTRIB_QUANT = table(
    QuantizeLinear=quantize,
    DequantizeLinear=dequantize,
    QLinearAdd=binary(ew.Add()),
    QLinearMul=binary(ew.Mul()),
    QLinearSigmoid=unary(lambda call, x: call.emit(ew.Sigmoid(), x)),
    QLinearLeakyRelu=unary(leaky_relu),
    QLinearSoftmax=unary(softmax),
    QLinearAveragePool=unary(averages),
    QLinearGlobalAveragePool=unary(averages_of_all),
    QLinearConcat=concat,
    QLinearWhere=where,
    QLinearReduceMean=mean,
    QLinearConv=conv,
    QGemm=gemm,
    DynamicQuantizeMatMul=dynamic_matmul,
    MatMulIntegerToFloat=matmul_to_float,
    QAttention=quantised_attention,
    DynamicQuantizeLSTM=dynamic_lstm,
)
