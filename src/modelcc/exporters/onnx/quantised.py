"""Quantised numbers and products of them."""

from __future__ import annotations

import numpy as np

from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.types import element_type
from modelcc.exporters.onnx.writing import OnnxWriting, Settings
from modelcc.ir.index import product
from modelcc.ir.types import F32, I32, U8, U32, TensorType
from modelcc.ops.packed_matmul import WORD_BITS, PackedMatMul
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear


def quantised(at: OnnxWriting, op: QuantizeLinear) -> OnnxValue:
    kind = None if at.has(2) else element_type(op.to)
    settings: Settings = {"axis": op.axis, "block_size": op.block, "output_dtype": kind}
    return at.node("QuantizeLinear", *at.inputs, dtype=op.to, **settings)


def dequantised(at: OnnxWriting, op: DequantizeLinear) -> OnnxValue:
    dtype = at.input(1).dtype
    settings: Settings = {"axis": op.axis, "block_size": op.block}
    return at.node("DequantizeLinear", *at.inputs, dtype=dtype, **settings)


def integer_product(at: OnnxWriting, op: object) -> OnnxValue:
    """In 32-bit integers if runtimes do not support the zero point."""
    zeros = [at.given[n] if at.has(n) else None for n in (2, 3)]
    if all(zero is None or zero.elements == 1 for zero in zeros):
        single = [at.reshape(at.input(n), ()) if at.has(n) else None for n in (2, 3)]
        return at.node("MatMulInteger", at.input(0), at.input(1), *single, dtype=I32)
    return at.node("MatMul", *(_centred(at, n, zero) for n, zero in enumerate(zeros)))


def _centred(at: OnnxWriting, number: int, zero: TensorType | None) -> OnnxValue:
    """An operand minus its zero points: one per row of the first, or per column of the second."""
    x = at.cast(at.input(number), I32)
    if zero is None:
        return x
    points = at.cast(at.input(2 + number), I32)
    if zero.rank == 1 and number == 0:
        points = at.node("Unsqueeze", points, at.build.ints(-1))
    return at.node("Sub", x, points)


def quantised_product(at: OnnxWriting, op: object) -> OnnxValue:
    return at.node("QLinearMatMul", *at.inputs, dtype=at.results[0].dtype)


def packed_product(at: OnnxWriting, op: PackedMatMul) -> OnnxValue:
    """Weights unpacked from words, for which ONNX has no type."""
    x, words, scale, zero = (at.input(n) for n in range(4))
    blocks, count, columns = at.type(1).shape
    fields = WORD_BITS // op.bits
    shifts = np.arange(0, WORD_BITS, op.bits, dtype=np.uint32).reshape(1, 1, fields, 1)
    spread = at.node("Unsqueeze", words, at.build.ints(2))
    shifted = at.node("BitShift", spread, at.constant(shifts, U32), direction="RIGHT")
    mask = at.build.number((1 << op.bits) - 1, U32)
    values = at.cast(at.node("BitwiseAnd", shifted, mask), F32)
    values = at.reshape(values, (blocks, count * fields, columns))
    if at.type(3).rank:
        zero = at.node("Unsqueeze", zero, at.build.ints(1))
    assert zero.dtype == U8
    centred = at.node("Sub", values, at.cast(zero, F32))
    weights = at.node("Mul", centred, at.node("Unsqueeze", scale, at.build.ints(1)))
    whole = at.reshape(weights, (product((blocks, count)) * fields, columns))
    wide = at.cast(at.cast(whole, x.dtype), F32)
    return at.cast(at.node("MatMul", at.cast(x, F32), wide), x.dtype)
