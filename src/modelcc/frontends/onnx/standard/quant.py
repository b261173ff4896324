"""Handlers of quantised operators."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, simple, table
from modelcc.frontends.onnx.standard.nn import weight_kernel
from modelcc.frontends.onnx.standard.quant_parameters import of_slices, of_tensor
from modelcc.frontends.onnx.standard.window import geometry
from modelcc.ir.types import F32, U8
from modelcc.ops import quant, quant_matmul
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.elementwise import Cast, Round
from modelcc.ops.matmul import MatMul


def quantize(call: Call) -> str:
    """The result's dtype is that of the zero point, or attribute ``output_dtype``."""
    call = _along_axis(_in_floats(_checked(call)))
    to = call.dtype(2) if call.has(2) else call.attrs.dtype("output_dtype", U8)
    if not call.attrs.flag("saturate", True):
        unsupported("quantisation to 8-bit floats without saturation (saturate=0)")
    op = quant.QuantizeLinear(to, _axis(call), call.attrs.integer("block_size", 0))
    return call.emit(op, *call.inputs)


def _in_floats(call: Call) -> Call:
    """With an integer operand and scale converted to floats."""
    x, scale = (
        name if call.dtype(i).is_float else call.emit(Cast(F32), name)
        for i, name in enumerate(call.inputs[:2])
    )
    return call.with_inputs((x, scale, *call.inputs[2:]))


def dequantize(call: Call) -> str:
    call = _along_axis(_checked(call))
    op = quant.DequantizeLinear(_axis(call), call.attrs.integer("block_size", 0))
    result = call.emit(op, *call.inputs)
    to = call.attrs.dtype("output_dtype", call.dtype(1))
    return result if to == call.dtype(1) else call.emit(Cast(to), result)


def _checked(call: Call) -> Call:
    if call.attrs.integer("precision", 0):
        unsupported("attribute precision")
    return call


def _along_axis(call: Call) -> Call:
    """With a scale and a zero point per slice, where they are vectors."""
    if call.attrs.integer("block_size", 0):
        return call
    rank, axis = call.rank(), call.attrs.integer("axis", 1)
    if not -rank <= axis < rank:
        return of_tensor(call, 1, 2)
    return of_slices(call, [call.shape()[axis]], 1, 2)


def _axis(call: Call) -> int:
    """The axis of vector parameters; scalars have none."""
    if call.rank(1) <= 1 and call.type(1).elements == 1:
        return 0
    return call.axis(1)


def matmul_integer(call: Call) -> str:
    """Vectors of zero points are per row of a, or per column of b."""
    by_rows = call.has(2) and call.rank(2) == 1
    call = of_slices(call, call.shape()[-2:-1] if by_rows else call.shape(), 2)
    call = of_slices(call, call.shape(1), 3)
    return call.emit(quant_matmul.MatMulInteger(), *call.inputs)


def conv_integer(call: Call) -> str:
    call = of_slices(of_tensor(call, 2), call.shape(1)[:1], 3)
    window = geometry(call, weight_kernel(call, 1))
    op = quant_matmul.ConvInteger(*window.steps, call.attrs.integer("group", 1))
    return call.emit(op, *call.inputs)


def qlinear_conv(call: Call) -> str:
    call = of_slices(of_tensor(call, 1, 2, 6, 7), call.shape(3)[:1], 4, 5)
    window = geometry(call, weight_kernel(call, 3))
    op = quant_matmul.QLinearConv(*window.steps, call.attrs.integer("group", 1))
    return call.emit(op, *call.inputs)


def quantised_matmul(call: Call) -> str:
    """In integers; 8-bit floats by their values."""
    floats = call.dtype(0).is_float or call.dtype(3).is_float
    if not floats and not _plain_parameters(call):
        return _by_dequantised(call)
    if not floats:
        call = of_slices(call, call.shape(3), 4, 5)
        return call.emit(quant_matmul.QLinearMatMul(), *call.inputs)
    a, b = (call.emit(quant.DequantizeLinear(0), *call.inputs[i : i + 3]) for i in (0, 3))
    scale, zero = call.inputs[6:]
    op = quant.QuantizeLinear(call.dtype(7), 0)
    return call.emit(op, call.emit(MatMul(), a, b), scale, zero)


def _plain_parameters(call: Call) -> bool:
    """Whether a's and y's parameters are scalars, and b's at most one per column."""
    single = all(call.type(i).elements == 1 and call.rank(i) <= 1 for i in (1, 2, 6, 7))
    return single and all(call.rank(i) <= 1 for i in (4, 5))


def _by_dequantised(call: Call) -> str:
    """With parameters per row of a, or of tensors that broadcast: in floats."""

    def parameter(i: int, rows: bool) -> Value:
        name = call.input(i)
        if rows and call.rank(i) == 1 and call.type(i).elements != 1:
            name = call.emit(Reshape((*call.shape(i), 1)), name)
        return of(Cast(F32), Value(call, name))

    a, b = (
        (of(Cast(F32), call.value(i)) - parameter(i + 2, rows)) * parameter(i + 1, rows)
        for i, rows in ((0, True), (3, False))
    )
    scaled = of(Round(), of(MatMul(), a, b) / parameter(6, True)) + parameter(7, True)
    info = np.iinfo(call.dtype(7).numpy)
    return of(Cast(call.dtype(7)), of(Clip(float(info.min), float(info.max)), scaled)).name


QUANT = table(
    QuantizeLinear=quantize,
    DequantizeLinear=dequantize,
    DynamicQuantizeLinear=simple(quant.DynamicQuantizeLinear),
    MatMulInteger=matmul_integer,
    ConvInteger=conv_integer,
    QLinearMatMul=quantised_matmul,
    QLinearConv=qlinear_conv,
)
