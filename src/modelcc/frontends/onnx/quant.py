"""Handlers of quantised operators."""

from __future__ import annotations

from types import MappingProxyType

from modelcc.frontends.onnx.call import Call, Handlers, simple
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.nn import weight_kernel
from modelcc.frontends.onnx.tensors import dtype_from_onnx
from modelcc.frontends.onnx.window import geometry
from modelcc.ir.types import U8, DType
from modelcc.ops import quant, quant_matmul
from modelcc.ops.elementwise import Cast


def quantize(call: Call) -> str:
    """The result's dtype is that of the zero point, or attribute ``output_dtype``."""
    call = _checked(call)
    code = call.attrs.integer("output_dtype", 0)
    to: DType = U8
    if call.has(2):
        to = call.dtype(2)
    elif code:
        to = dtype_from_onnx(code, call.source[-1])
    if not call.attrs.flag("saturate", True):
        unsupported("quantisation to 8-bit floats without saturation (saturate=0)")
    op = quant.QuantizeLinear(to, _axis(call), call.attrs.integer("block_size", 0))
    return call.emit(op, *call.inputs)


def dequantize(call: Call) -> str:
    call = _checked(call)
    op = quant.DequantizeLinear(_axis(call), call.attrs.integer("block_size", 0))
    result = call.emit(op, *call.inputs)
    code = call.attrs.integer("output_dtype", 0)
    to = dtype_from_onnx(code, call.source[-1]) if code else call.dtype(1)
    return result if to == call.dtype(1) else call.emit(Cast(to), result)


def _checked(call: Call) -> Call:
    if call.attrs.integer("precision", 0):
        unsupported("attribute precision")
    return call


def _axis(call: Call) -> int:
    """The axis of parameters that are vectors; single numbers have none."""
    if call.rank(1) <= 1 and call.type(1).elements == 1:
        return 0
    return call.axis(1)


def conv_integer(call: Call) -> str:
    window = geometry(call, weight_kernel(call, 1))
    op = quant_matmul.ConvInteger(
        window.strides,
        window.before,
        window.after,
        window.dilations,
        call.attrs.integer("group", 1),
    )
    return call.emit(op, *call.inputs)


def qlinear_conv(call: Call) -> str:
    window = geometry(call, weight_kernel(call, 3))
    op = quant_matmul.QLinearConv(
        window.strides,
        window.before,
        window.after,
        window.dilations,
        call.attrs.integer("group", 1),
    )
    return call.emit(op, *call.inputs)


QUANT: Handlers = MappingProxyType(
    {
        "QuantizeLinear": quantize,
        "DequantizeLinear": dequantize,
        "DynamicQuantizeLinear": simple(quant.DynamicQuantizeLinear),
        "MatMulInteger": simple(quant_matmul.MatMulInteger),
        "ConvInteger": conv_integer,
        "QLinearMatMul": simple(quant_matmul.QLinearMatMul),
        "QLinearConv": qlinear_conv,
    }
)
