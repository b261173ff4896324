"""Handlers of onnxruntime's own quantised operators (com.microsoft), in QDQ form.

They become operators between DequantizeLinear and QuantizeLinear, as exporters of the standard
operators write them; passes on the graph turn both into integer kernels.  The operators are
documented in onnxruntime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.parts import joined
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.attention import attention
from modelcc.frontends.onnx.contrib.fused import plus, with_channels_last
from modelcc.frontends.onnx.contrib.operands import Made, operators, positional
from modelcc.frontends.onnx.standard.nn import average_of_whole_windows
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

    These are scalars, or one per slice of ``axis`` if given.
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


Operator = tuple[str, Callable[..., Made]]


def binary(op: Op) -> Operator:
    """``op`` of two quantised operands."""

    def handler(call: Call, *_: Value | None) -> str:
        return requantised(call, call.emit(op, real(call, 0), real(call, 3)), 6)

    return "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?", handler


def unary(names: str, function: Callable[[Call, str], str]) -> Operator:
    """``function`` of a quantised operand, ``names`` being those of it and of its parameters."""

    def handler(call: Call, *_: Value | None) -> str:
        return requantised(call, function(call, real(call, 0)), 3)

    return names, handler


def leaky_relu(call: Call, x: str) -> str:
    return call.emit(act.LeakyRelu(call.attrs.number("alpha", 0.01)), x)


def softmax(call: Call, x: str) -> str:
    if call.attrs.integer("opset", 13) < 13 and call.axis(-1) != call.rank() - 1:
        unsupported("softmax over several axes (its attribute opset below 13)")
    return call.emit(Softmax(call.axis(-1)), x)


def averages(call: Call, x: str) -> str:
    """Average pooling; channels may be last.

    Unlike the standard's, onnxruntime's divides by the full window size if padding is included.
    """
    if not call.attrs.flag("channels_last"):
        return average_of_whole_windows(call.with_inputs((x,)))
    return with_channels_last(call.with_inputs((x,)), average_of_whole_windows)


def averages_of_all(call: Call, x: str) -> str:
    """Averages over all positions; channels may be last."""
    first = 1 if call.attrs.flag("channels_last") else 2
    return call.emit(ReduceMean(tuple(range(first, call.rank() - 2 + first)), True), x)


def concat(call: Call, *operands: Value | None) -> str:
    """Scale and zero point of the result come first, then triples."""
    parts = [real(call, i) for i in range(2, len(operands), 3)]
    rank = call.type_of(parts[0]).rank
    return requantised(call, joined(call, call.axis(rank=rank), parts), 0)


def where(call: Call, condition: Value, *_: Value) -> str:
    """Elements of one of two quantised operands."""
    chosen = call.emit(ew.Where(), condition.name, real(call, 1), real(call, 4))
    return requantised(call, chosen, 7)


def mean(call: Call, x: str) -> str:
    """Means over axes, all of them if none are given."""
    rank = call.rank()
    given = call.attrs.integers("axes", tuple(range(rank)))
    axes = tuple(sorted(call.normal(axis, rank) for axis in given))
    return call.emit(ReduceMean(axes, call.attrs.flag("keepdims", True)), x)


def conv(call: Call) -> str:
    """Channels may be last, but not in the weights."""
    if not call.attrs.flag("channels_last"):
        return qlinear_conv(call)
    return with_channels_last(call, qlinear_conv)


def gemm(call: Call, *_: Value | None) -> str:
    """The result is quantised if a scale is given for it; the bias is in the units of the
    accumulator."""
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


def dynamic_matmul(
    call: Call, a: Value, b: Value, scale: Value, _: Value | None, bias: Value | None
) -> Value:
    """f32 by quantised matrix: the f32 operand is quantised dynamically."""
    x, a_scale, a_zero = call.add(DynamicQuantizeLinear(), a.name)
    call = of_slices(call, b.type.shape, 3)
    return plus(_scaled_product(call, x, a_scale, a_zero, scale, call.input(3)), bias)


def matmul_to_float(
    call: Call, a: Value, b: Value, a_scale: Value, b_scale: Value, _: Value | None,
    __: Value | None, bias: Value | None,
) -> Value:  # fmt: skip
    call = of_slices(of_tensor(call, 2, 4), b.type.shape, 5)
    scale, zero = call.input(2), call.input(4)
    return plus(_scaled_product(call, a.name, scale, zero, b_scale, call.input(5)), bias)


def _scaled_product(
    call: Call, a: str, a_scale: str, a_zero: str, b_scale: Value, b_zero: str
) -> Value:
    """``a @ operand 1`` as f32."""
    zeros = (a_zero, b_zero)
    given = 2 if b_zero else 1 if a_zero else 0
    sums = call.emit(MatMulInteger(), a, call.input(1), *zeros[:given])
    return of(ew.Cast(F32), Value(call, sums)) * (Value(call, a_scale) * b_scale)


def quantised_attention(
    call: Call, x: Value, weights: Value, bias: Value, _: Value, __: Value, mask: Value | None,
    ___: Value | None, ____: Value | None, past: Value | None,
) -> list[Value]:  # fmt: skip
    """Attention with a quantised input and quantised weights of the projection."""
    call = of_slices(of_tensor(call, 3, 6), weights.type.shape, 4, 7)
    left, right = (
        of(DequantizeLinear(axis), y, *(p for p in map(call.given, places) if p is not None))
        for axis, y, places in ((0, x, (3, 6)), (1, weights, (4, 7)))
    )
    call = call.with_inputs((left.name, right.name))
    return attention(call, left, right, bias, mask, past, None)


def dynamic_lstm(call: Call, *_: Value | None) -> tuple[str, ...]:
    """An LSTM with 8-bit weights [directions, inputs, 4 * hidden], in integer arithmetic.

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
    """Operand ``i`` of one direction, with its scale and zero point from operand ``parameters``
    on."""
    scale = direction(call.value(parameters), which)
    has_zero = call.has(parameters + 1)
    if call.known(i) is not None and (not has_zero or call.known(parameters + 1) is not None):
        values = call.array(i, "weights")[which]
        zeros = call.array(parameters + 1, "zero points")[which] if has_zero else 0
        return _constant_bytes(call, values, np.asarray(zeros, np.int32), scale)
    zero = direction(call.value(parameters + 1), which) if has_zero else None
    return Quantised(direction(call.value(i), which), scale, zero)


def _constant_bytes(call: Call, values: Array, zero: Array, scale: Value) -> Quantised:
    """Weights as i8, with their column sums."""
    shift = 128 if values.dtype == np.uint8 else 0
    steps = values.astype(np.int32) - shift
    zero = zero - shift
    sums = np.asarray((steps - zero).sum(0, dtype=np.int32))
    kept, columns = (call.literal(a) for a in (steps.astype(np.int8), sums))
    given = call.literal(zero.astype(np.int32)) if zero.any() else None
    return Quantised(kept, scale, given, columns)


_UNARY = "X X_scale X_zero_point? Y_scale Y_zero_point?"

CONTRIB_QUANT = operators(
    QuantizeLinear=("x y_scale y_zero_point?", positional(quantize)),
    DequantizeLinear=("x x_scale x_zero_point?", positional(dequantize)),
    QLinearAdd=binary(ew.Add()),
    QLinearMul=binary(ew.Mul()),
    QLinearSigmoid=unary(_UNARY, lambda call, x: call.emit(ew.Sigmoid(), x)),
    QLinearLeakyRelu=unary(_UNARY, leaky_relu),
    QLinearSoftmax=unary("X X_scale x_zero_point? y_scale y_zero_point", softmax),
    QLinearAveragePool=unary(_UNARY, averages),
    QLinearGlobalAveragePool=unary("X x_scale x_zero_point y_scale y_zero_point", averages_of_all),
    QLinearConcat=("Y_scale Y_zero_point inputs*", concat),
    QLinearWhere=(
        "condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point",
        where,
    ),
    QLinearReduceMean=unary(
        "data data_scale data_zero_point? reduced_scale reduced_zero_point?", mean
    ),
    QLinearConv=(
        "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?",
        positional(conv),
    ),
    QGemm=("A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point?", gemm),
    DynamicQuantizeMatMul=("A B[k,n] b_scale b_zero_point? bias?", dynamic_matmul),
    MatMulIntegerToFloat=(
        "A B[k,n] a_scale b_scale a_zero_point? b_zero_point? bias?",
        matmul_to_float,
    ),
    QAttention=(
        "input[b,s,w] weight[w,qkv] bias[qkv] input_scale weight_scale mask_index:int? "
        "input_zero_point? weight_zero_point? past[2,b,h,p,d]?",
        quantised_attention,
    ),
    DynamicQuantizeLSTM=(
        "X[t,b,i] W[d,i,g] R[d,h,g] B[d,bias]? sequence_lens[b]:int? initial_h[d,b,h]? "
        "initial_c[d,b,h]? P[d,p]? W_scale W_zero_point R_scale R_zero_point",
        dynamic_lstm,
    ),
)
