"""Handlers of onnxruntime's own operators (com.microsoft): activations, products, convolutions.

The operators are documented in onnxruntime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, Handler, Results, simple
from modelcc.frontends.onnx.contrib.operands import operators, positional
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


def fused_matmul(call: Call, a: Value, b: Value) -> Value:
    """``alpha * a' @ b'``, where ' are transpositions of matrices or of batches."""
    attrs = call.attrs
    a = _arranged(a, attrs.flag("transA"), attrs.flag("transBatchA"))
    b = _arranged(b, attrs.flag("transB"), attrs.flag("transBatchB"))
    result = of(MatMul(), a, b)
    alpha = attrs.number("alpha", 1.0)
    return result if alpha == 1.0 else result * alpha


def _arranged(x: Value, matrix: bool, batch: bool) -> Value:
    """``x`` with its last axes swapped, or its first axis moved before the last one."""
    rank = x.type.rank
    axes = list(range(rank))
    if batch and rank > 2:  # [m, batch…, k] becomes [batch…, m, k]
        axes = [*axes[1:-1], 0, axes[-1]]
    if matrix and rank > 1:
        axes[-2:] = axes[-1], axes[-2]
    return x if axes == sorted(axes) else of(Transpose(tuple(axes)), x)


def biased_gelu(call: Call, x: Value, bias: Value | None = None) -> Value:
    return of(act.Gelu(), plus(x, bias))


def fast_gelu(call: Call, x: Value, bias: Value | None) -> Value:
    return of(act.Gelu("tanh"), plus(x, bias))


def plus(x: Value, bias: Value | None) -> Value:
    return x if bias is None else x + bias


def bias_split_gelu(call: Call, x: Value, bias: Value) -> Value:
    """The first half of ``x + bias`` times the gelu of the second half."""
    total, half = x + bias, floordiv(x.type.shape[-1], 2)
    first, second = part(total, -1, 0, half), part(total, -1, half, half)
    return first * of(act.Gelu(), second)


def activated(call: Call, result: str, alpha: float, beta: float) -> str:
    """``result`` after the activation in attribute ``activation``, with its parameters."""
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
    """``result`` after its activation, with parameters in separate attributes."""
    alpha, beta = (call.attrs.number(f"activation_{name}", 0.0) for name in ("alpha", "beta"))
    return activated(call, result, alpha, beta)


def fused_conv(
    call: Call, *operands: Value | None, convolve: Callable[[Call], str] = convolution
) -> str:
    """A convolution, plus the last operand if there is one, then an activation."""
    result, addend = convolve(call.with_inputs(call.inputs[:3])), operands[3]
    if addend is not None:
        result = call.emit(ew.Add(), result, addend.name)
    return activated(call, result, *(*call.attrs.numbers("activation_params", ()), 0.0, 0.0)[:2])


def fused_gemm(call: Call) -> str:
    return with_numbers(call, gemm(call))


def with_channels_last(call: Call, handler: Callable[[Call], Results], operands: int = 1) -> str:
    """``handler``, which expects channels first, applied to ``operands`` with channels last."""
    rank = call.rank()
    inward, outward = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    moved = [call.emit(Transpose(inward), call.input(i)) for i in range(operands)]
    result = handler(call.with_inputs((*moved, *call.inputs[operands:])))
    return call.emit(Transpose(outward), result if isinstance(result, str) else result[0])


def nhwc_max_pool(call: Call) -> str:
    return with_channels_last(call, standard(max_pool, 12))


def bias_softmax(call: Call, x: Value, bias: Value) -> Value:
    """Softmax over all axes from ``axis`` on, flattened, of the sum with a bias.

    The bias is broadcast along axes before ``axis``: the inner or the outer ones.
    """
    axis = call.axis(1)
    extents, own = x.type.shape, bias.type.shape
    outer, inner = product(extents[:axis]), extents[axis:]
    if not call.attrs.flag("is_inner_broadcast", True) and len(own) == len(extents):
        # Its rows are repeated cyclically.
        rows = product(own[:axis])
        groups = of(Reshape((floordiv(outer, rows), rows, *inner)), x)
        x = of(Reshape(extents), groups + of(Reshape((rows, *inner)), bias))
    else:
        x = x + bias
    flat = of(Reshape((outer, product(inner))), x)
    return of(Reshape(extents), of(Softmax(1), flat))


def bias_add(call: Call, x: Value, bias: Value, skip: Value) -> Value:
    return x + bias + skip


def gemm_fast_gelu(call: Call, x: Value, weights: Value, bias: Value | None) -> Value:
    return of(act.Gelu("tanh"), plus(of(MatMul(), x, weights), bias))


def activated_matmul(call: Call, a: Value, b: Value) -> str:
    return with_numbers(call, fused_matmul(call, a, b).name)


def complex_mul(call: Call, x: Value, y: Value, conjugate: bool = False) -> Value:
    """Products of complex numbers, with parts in the last axis; optionally with the second
    conjugated."""
    (a, b), (c, d) = ([part(z, -1, n, 1) for n in (0, 1)] for z in (x, y))
    d = -1.0 * d if conjugate else d
    return of(Concat(a.type.rank - 1), a * c - b * d, a * d + b * c)


def nhwc_conv(call: Call) -> str:
    """A convolution with weights [O, …, I]."""
    return with_channels_last(call, convolution, 2)


def matmul_bits(
    call: Call, a: Value, b: Value, scales: Value, zeros: Value | None, _: None, bias: Value | None
) -> Value:
    places = (1, 2, None if zeros is None else 3)
    return plus(bits_product(call, a, places, call.attrs.integer("N")), bias)


def bits_product(call: Call, a: Value, places: tuple[int, int, int | None], columns: int) -> Value:
    """``a @ dequantised(b)^T``: b is [N, blocks, bytes], packed, with a scale per block.

    ``places`` are the operand indices of b, the scales, and the zero points, if any.
    """
    b, scale, zero = places
    attrs = call.attrs
    rows = attrs.integer("K")
    bits, block = attrs.integer("bits", 4), attrs.integer("block_size")
    dtype = type_of_bits(bits)
    blocks = -(-rows // block)
    packed = call.array(b, "weights").reshape(columns, blocks, -1)
    weights = unpacked(packed, dtype)[..., :block].reshape(columns, -1)[:, :rows]
    scales = call.array(scale, "scales").reshape(columns, blocks)
    zeros = np.full((columns, blocks), 1 << (bits - 1), np.uint8)
    if zero is not None:
        if call.dtype(zero) != U8:
            unsupported("zero points that are no integers")
        given = call.array(zero, "zero points").reshape(columns, -1)
        zeros = unpacked(given, dtype)[:, :blocks]
    operands = (weights.astype(dtype.numpy), scales, zeros.astype(dtype.numpy))
    literals = (call.literal(np.ascontiguousarray(o)) for o in operands)
    whole = of(DequantizeLinear(1, block), *literals)
    return of(MatMul(), a, permuted(whole, 1, 0))


def type_of_bits(bits: int, least: DType = U2, what: str = "weights") -> DType:
    """The unsigned type of this width, at least ``least`` bits."""
    known = {t.bits: t for t in (U2, U4, U8) if t.bits >= least.bits}
    return known.get(bits) or unsupported(f"{what} of {bits} bits")


def unpacked(data: Array, dtype: DType) -> Array:
    """Elements of the last axis, the first one in the least significant bits of a byte."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    fields = (data[..., None] >> shifts) & ((1 << dtype.bits) - 1)
    return fields.reshape(*data.shape[:-1], -1)


def inverse(call: Call, x: Value) -> Value:
    """Inverses of 2 x 2 matrices by Cramer's rule."""
    if x.type.shape[-2:] != (2, 2):
        unsupported("inverses of matrices of more than 2 rows")
    rank, adjugate = x.type.rank, np.array([[1.0, -1.0], [-1.0, 1.0]], x.type.dtype.numpy)
    turned = part(part(x, -2, 1, 2, -1), -1, 1, 2, -1)
    flipped = permuted(turned, *range(rank - 2), rank - 1, rank - 2)
    a, b, c, d = (part(part(x, -2, i, 1), -1, j, 1) for i in (0, 1) for j in (0, 1))
    return flipped * call.literal(adjugate) / (a * d - b * c)


def expand_dims(call: Call, x: Value, _: Value) -> Value:
    (axis,) = call.integers(1, "axis")
    shape = x.type.shape
    place = call.normal(axis, len(shape) + 1)
    return of(Reshape((*shape[:place], 1, *shape[place:])), x)


def distances(call: Call, a: Value, b: Value) -> Value:
    """Distances between all rows of both operands, or their squares."""
    (m, size), (n, _) = a.type.shape, b.type.shape
    apart = of(Reshape((m, 1, size)), a) - of(Reshape((1, n, size)), b)
    squares = of(ReduceSumSquare((2,), False), apart)
    metric = call.option("metric", ("euclidean", "sqeuclidean"))
    return of(ew.Sqrt(), squares) if metric == "euclidean" else squares


def standard(handler: Handler, opset: int) -> Handler:
    """The standard's operator as of ``opset``."""

    def run(call: Call) -> Results:
        return handler(replace(call, opset=opset))

    return run


def gather_quantized(
    call: Call, blocks: Value, indices: Value, _: Value, zero_points: Value | None
) -> str:
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
    if zero_points is not None:
        given = call.array(3, "zero points")
        zeros = unpacked(given, dtype)[..., : scales.shape[-1]] if packed else given
    operands = [whole.astype(dtype.numpy), scales, zeros.astype(dtype.numpy)]
    rows = [call.emit(Gather(0), call.constant(np.ascontiguousarray(o)), indices.name)
            for o in operands]  # fmt: skip
    place = along - 1 + indices.type.rank
    return call.emit(DequantizeLinear(place, attrs.integer("block_size", 128)), *rows)


CONTRIB = operators(
    FusedMatMul=("A B", fused_matmul),
    TransposeMatMul=("A B", fused_matmul),
    Gelu=("X", biased_gelu),
    BiasGelu=("A B", biased_gelu),
    FastGelu=("X bias?", fast_gelu),
    QuickGelu=("X", positional(simple(act.Swish, alpha=1.702))),
    BiasSplitGelu=("X bias", bias_split_gelu),
    FusedConv=("X W B? Z?", fused_conv),
    FusedGemm=("A B C?", positional(fused_gemm)),
    NhwcConv=("X W B?", positional(nhwc_conv)),
    NhwcFusedConv=("X W B? Z?", partial(fused_conv, convolve=nhwc_conv)),
    MatMulNBits=("A B scales zero_points? g_idx! bias?", matmul_bits),
    NhwcMaxPool=("x", positional(nhwc_max_pool)),
    BiasSoftmax=("data bias", bias_softmax),
    BiasAdd=("X bias skip", bias_add),
    GemmFastGelu=("X W bias?", gemm_fast_gelu),
    FusedMatMulActivation=("A B", activated_matmul),
    ComplexMul=("A[...,2] B[...,2]", complex_mul),
    ComplexMulConj=("A[...,2] B[...,2]", partial(complex_mul, conjugate=True)),
    GridSample=("X Grid", positional(standard(grid_sample, 16))),
    Trilu=("X k?", positional(trilu)),
    GatherND=("data indices", positional(simple(GatherND))),
    Inverse=("X", inverse),
    ExpandDims=("X axis", expand_dims),
    CDist=("A[m,k] B[n,k]", distances),
    Range=("start limit delta?", positional(standard(range_, 11))),
    Pad=("data pads value?", positional(standard(pad, 18))),
    GatherBlockQuantized=("data indices scales zero_points?", gather_quantized),
)
