"""Handlers of onnxruntime's own operators (com.microsoft): activations, products, convolutions.

The operators are described in onnxruntime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, Handler, Results, simple, table
from modelcc.frontends.onnx.standard.nn import convolution, gemm, max_pool
from modelcc.frontends.onnx.standard.padding import pad
from modelcc.frontends.onnx.standard.sampling import grid_sample
from modelcc.frontends.onnx.standard.shape import range_, trilu
from modelcc.ir.index import floordiv, product
from modelcc.ir.op import Op
from modelcc.ir.types import U2, U4, U8, Array, DType
from modelcc.ops import activation as act
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Softmax
from modelcc.ops.gather import Gather, GatherND
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant import DequantizeLinear
from modelcc.ops.reduce import ReduceSumSquare
from modelcc.ops.shape import Concat, Reshape, Transpose
from modelcc.ops.views import part, permuted


def fused_matmul(call: Call) -> str:
    """``alpha * a' @ b'``, where ' are transpositions of matrices or of batches."""
    attrs = call.attrs
    a = _arranged(call, 0, attrs.flag("transA"), attrs.flag("transBatchA"))
    b = _arranged(call, 1, attrs.flag("transB"), attrs.flag("transBatchB"))
    result = of(MatMul(), a, b)
    alpha = attrs.number("alpha", 1.0)
    return (result if alpha == 1.0 else result * alpha).name


def _arranged(call: Call, i: int, matrix: bool, batch: bool) -> Value:
    """Operand ``i`` with its last axes swapped, or its first axis moved before the last one."""
    rank = call.rank(i)
    axes = list(range(rank))
    if batch and rank > 2:  # [m, batch…, k] becomes [batch…, m, k]
        axes = [*axes[1:-1], 0, axes[-1]]
    if matrix and rank > 1:
        axes[-2:] = axes[-1], axes[-2]
    return call.value(i) if axes == sorted(axes) else of(Transpose(tuple(axes)), call.value(i))


def biased_gelu(approximate: str) -> Handler:
    """Gelu of the sum of the operands."""

    def handler(call: Call) -> str:
        x = call.value(0) + call.value(1) if call.has(1) else call.value(0)
        return of(act.Gelu("tanh" if approximate == "tanh" else "none"), x).name

    return handler


def bias_split_gelu(call: Call) -> str:
    """The first half of ``x + bias`` times the gelu of the second."""
    x = call.value(0) + call.value(1)
    half = floordiv(call.shape()[-1], 2)
    first, second = part(x, -1, 0, half), part(x, -1, half, half)
    return (first * of(act.Gelu(), second)).name


def activated(call: Call, result: str, alpha: float, beta: float) -> str:
    """``result`` after the activation that attribute ``activation`` names, with its parameters."""
    match call.attrs.text("activation", ""):
        case "":
            return result
        case "LeakyRelu":
            op: Op = act.LeakyRelu(alpha)
        case "Clip":
            op = act.Clip(alpha, beta)
        case "HardSigmoid":
            op = act.HardSigmoid(alpha, beta)
        case name:
            op = _PLAIN.get(name) or unsupported(f"activation {name!r}")
    return call.emit(op, result)


_PLAIN: Mapping[str, Op] = MappingProxyType(
    {"Relu": act.Relu(), "Tanh": ew.Tanh(), "Sigmoid": ew.Sigmoid(), "HardSwish": act.HardSwish()}
)


def with_numbers(call: Call, result: str) -> str:
    """``result`` activated, with parameters that are attributes of their own."""
    alpha, beta = (call.attrs.number(f"activation_{name}", 0.0) for name in ("alpha", "beta"))
    return activated(call, result, alpha, beta)


def fused_conv(call: Call) -> str:
    """A convolution, plus operand 3 if there is one, then an activation."""
    result = convolution(call.with_inputs(call.inputs[:3]))
    if call.has(3):
        result = call.emit(ew.Add(), result, call.input(3))
    return activated(call, result, *(*call.attrs.numbers("activation_params", ()), 0.0, 0.0)[:2])


def fused_gemm(call: Call) -> str:
    return with_numbers(call, gemm(call))


def with_channels_last(call: Call, handler: Callable[[Call], Results], operands: int = 1) -> str:
    """``handler``, which has channels behind the batch, of ``operands`` that have them last."""
    rank = call.rank()
    inward, outward = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    moved = [call.emit(Transpose(inward), call.input(i)) for i in range(operands)]
    result = handler(call.with_inputs((*moved, *call.inputs[operands:])))
    return call.emit(Transpose(outward), result if isinstance(result, str) else result[0])


def nhwc_max_pool(call: Call) -> str:
    return with_channels_last(call, standard(max_pool, 12))


def bias_softmax(call: Call) -> str:
    """Softmax over all axes from ``axis`` on, as one, of the sum with a bias.

    The bias is broadcast along axes in front of ``axis``: the inner or the outer ones of them.
    """
    axis, x, bias = call.axis(1), call.value(0), call.value(1)
    extents, own = x.type.shape, bias.type.shape
    outer, inner = product(extents[:axis]), extents[axis:]
    if not call.attrs.flag("is_inner_broadcast", True) and len(own) == len(extents):
        # Its rows are read in order, again and again.
        rows = product(own[:axis])
        groups = of(Reshape((floordiv(outer, rows), rows, *inner)), x)
        x = of(Reshape(extents), groups + of(Reshape((rows, *inner)), bias))
    else:
        x = x + bias
    flat = of(Reshape((outer, product(inner))), x)
    return of(Reshape(extents), of(Softmax(1), flat)).name


def bias_add(call: Call) -> str:
    return (call.value(0) + call.value(1) + call.value(2)).name


def gemm_fast_gelu(call: Call) -> str:
    total = of(MatMul(), call.value(0), call.value(1))
    return of(act.Gelu("tanh"), total + call.value(2) if call.has(2) else total).name


def activated_matmul(call: Call) -> str:
    return with_numbers(call, fused_matmul(call))


def complex_mul(conjugate: bool) -> Handler:
    """Products of complex numbers, whose parts are the last axis; of conjugates of the second."""

    def handler(call: Call) -> str:
        (a, b), (c, d) = ([part(call.value(i), -1, n, 1) for n in (0, 1)] for i in (0, 1))
        d = -1.0 * d if conjugate else d
        return of(Concat(a.type.rank - 1), a * c - b * d, a * d + b * c).name

    return handler


def nhwc_conv(call: Call) -> str:
    """A convolution whose weights are [O, …, I]."""
    return with_channels_last(call, convolution, 2)


def matmul_bits(call: Call) -> str:
    return bits_product(call, call.attrs.integer("N"))


def bits_product(call: Call, columns: int) -> str:
    """``a @ dequantised(b)^T``: b is [N, blocks, bytes], packed, with a scale for each block."""
    attrs = call.attrs
    rows = attrs.integer("K")
    bits, block = attrs.integer("bits", 4), attrs.integer("block_size")
    dtype = type_of_bits(bits)
    if call.has(4):
        unsupported("its fifth operand, the order of groups (g_idx)")
    blocks = -(-rows // block)
    packed = call.array(1, "weights").reshape(columns, blocks, -1)
    weights = unpacked(packed, dtype)[..., :block].reshape(columns, -1)[:, :rows]
    scales = call.array(2, "scales").reshape(columns, blocks)
    if call.has(3) and call.dtype(3) != U8:
        unsupported("zero points that are no integers")
    zeros = np.full((columns, blocks), 1 << (bits - 1), np.uint8)
    if call.has(3):
        given = call.array(3, "zero points").reshape(columns, -1)
        zeros = unpacked(given, dtype)[:, :blocks]
    operands = (weights.astype(dtype.numpy), scales, zeros.astype(dtype.numpy))
    literals = (call.literal(np.ascontiguousarray(o)) for o in operands)
    whole = of(DequantizeLinear(1, block), *literals)
    result = of(MatMul(), call.value(0), permuted(whole, 1, 0))
    return (result + call.value(5)).name if call.has(5) else result.name


def type_of_bits(bits: int, least: DType = U2, what: str = "weights") -> DType:
    """The unsigned type of so many bits, ``least`` or more."""
    known = {t.bits: t for t in (U2, U4, U8) if t.bits >= least.bits}
    return known.get(bits) or unsupported(f"{what} of {bits} bits")


def unpacked(data: Array, dtype: DType) -> Array:
    """Elements of the last axis, the first one in the least significant bits of a byte."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    fields = (data[..., None] >> shifts) & ((1 << dtype.bits) - 1)
    return fields.reshape(*data.shape[:-1], -1)


def inverse(call: Call) -> str:
    """Inverses of matrices of 2 rows by Cramer's rule."""
    if call.shape()[-2:] != (2, 2):
        unsupported("inverses of matrices of more than 2 rows")
    x, rank = call.value(0), call.rank()
    adjugate = np.array([[1.0, -1.0], [-1.0, 1.0]], call.dtype().numpy)
    turned = part(part(x, -2, 1, 2, -1), -1, 1, 2, -1)
    flipped = permuted(turned, *range(rank - 2), rank - 1, rank - 2)
    a, b, c, d = (part(part(x, -2, i, 1), -1, j, 1) for i in (0, 1) for j in (0, 1))
    return (flipped * call.literal(adjugate) / (a * d - b * c)).name


def expand_dims(call: Call) -> str:
    (axis,) = call.integers(1, "axis")
    place = call.normal(axis, call.rank() + 1)
    shape = call.shape()
    return call.emit(Reshape((*shape[:place], 1, *shape[place:])), call.input(0))


def distances(call: Call) -> str:
    """Distances of all rows of the operands, or their squares."""
    (m, size), (n, _) = call.shape(), call.shape(1)
    apart = of(Reshape((m, 1, size)), call.value(0)) - of(Reshape((1, n, size)), call.value(1))
    squares = of(ReduceSumSquare((2,), False), apart)
    metric = call.option("metric", ("euclidean", "sqeuclidean"))
    return (of(ew.Sqrt(), squares) if metric == "euclidean" else squares).name


def standard(handler: Handler, opset: int) -> Handler:
    """What the standard's operator has been since ``opset``."""

    def run(call: Call) -> Results:
        return handler(replace(call, opset=opset))

    return run


def gather_quantized(call: Call) -> str:
    """Slices of blocked quantised data, dequantised: packed along the last axis."""
    attrs, bits = call.attrs, call.attrs.integer("bits", 4)
    dtype = type_of_bits(bits, U4, "data")
    if call.dtype() not in (U8, U4):
        unsupported(f"data of type {call.dtype()}")
    data, scales = call.array(0, "data"), call.array(2, "scales")
    packed = call.dtype() == U8 and bits < 8
    whole = unpacked(data, dtype) if packed else data
    axis, along = attrs.integer("gather_axis", 0), attrs.integer("quantize_axis", 1)
    axis, along = axis % whole.ndim, along % whole.ndim
    if axis != 0 or along == 0:
        unsupported("slices along the axis of blocks, or not along the first axis")
    zeros = np.full(scales.shape, 1 << (bits - 1), np.uint8)
    if call.has(3):
        given = call.array(3, "zero points")
        zeros = unpacked(given, dtype)[..., : scales.shape[-1]] if packed else given
    operands = [whole.astype(dtype.numpy), scales, zeros.astype(dtype.numpy)]
    rows = [call.emit(Gather(0), call.constant(np.ascontiguousarray(o)), call.input(1))
            for o in operands]  # fmt: skip
    place = along - 1 + call.rank(1)
    return call.emit(DequantizeLinear(place, attrs.integer("block_size", 128)), *rows)


CONTRIB = table(
    FusedMatMul=fused_matmul,
    TransposeMatMul=fused_matmul,
    Gelu=biased_gelu("none"),
    BiasGelu=biased_gelu("none"),
    FastGelu=biased_gelu("tanh"),
    QuickGelu=simple(act.Swish, alpha=1.702),
    BiasSplitGelu=bias_split_gelu,
    FusedConv=fused_conv,
    FusedGemm=fused_gemm,
    NhwcConv=nhwc_conv,
    NhwcFusedConv=nhwc_conv,
    MatMulNBits=matmul_bits,
    NhwcMaxPool=nhwc_max_pool,
    BiasSoftmax=bias_softmax,
    BiasAdd=bias_add,
    GemmFastGelu=gemm_fast_gelu,
    FusedMatMulActivation=activated_matmul,
    ComplexMul=complex_mul(conjugate=False),
    ComplexMulConj=complex_mul(conjugate=True),
    GridSample=standard(grid_sample, 16),
    Trilu=trilu,
    GatherND=simple(GatherND),
    Inverse=inverse,
    ExpandDims=expand_dims,
    CDist=distances,
    Range=standard(range_, 11),
    Pad=standard(pad, 18),
    GatherBlockQuantized=gather_quantized,
)
