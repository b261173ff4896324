"""Handlers of onnxruntime's own operators (com.microsoft): activations, products, convolutions.

The operators are described in onnxruntime's ContribOperators.md.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from modelcc.frontends.onnx.call import Call, Handler, Handlers, Results, simple
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.nn import convolution, gemm, max_pool
from modelcc.frontends.onnx.padding import pad
from modelcc.frontends.onnx.sampling import grid_sample
from modelcc.frontends.onnx.shape import range_, trilu
from modelcc.ir.index import floordiv, product
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
from modelcc.ops.slicing import Slice


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
    shape = call.shape()
    half = floordiv(shape[-1], 2)
    extents, steps = (*shape[:-1], half), (1,) * len(shape)
    zeros = (0,) * (len(shape) - 1)
    first = of(Slice((*zeros, 0), extents, steps), x)
    second = of(Slice((*zeros, half), extents, steps), x)
    return (first * of(act.Gelu(), second)).name


def quick_gelu(call: Call) -> str:
    return call.emit(act.Swish(call.attrs.number("alpha", 1.702)), call.input(0))


def activated(call: Call, result: str, prefix: str = "activation") -> str:
    """``result`` after the activation that attribute ``prefix`` names."""
    name = call.attrs.text(prefix, "")
    parameters = (*call.attrs.numbers(f"{prefix}_params", ()), 0.0, 0.0)
    if prefix == "activation_":  # FusedGemm
        parameters = tuple(call.attrs.number(f"activation_{k}", 0.0) for k in ("alpha", "beta"))
        name = call.attrs.text("activation", "")
    match name:
        case "":
            return result
        case "Relu":
            return call.emit(act.Relu(), result)
        case "Tanh":
            return call.emit(ew.Tanh(), result)
        case "Sigmoid":
            return call.emit(ew.Sigmoid(), result)
        case "LeakyRelu":
            return call.emit(act.LeakyRelu(parameters[0]), result)
        case "Clip":
            return call.emit(act.Clip(parameters[0], parameters[1]), result)
        case "HardSigmoid":
            return call.emit(act.HardSigmoid(parameters[0], parameters[1]), result)
        case "HardSwish":
            return call.emit(act.HardSwish(), result)
        case _:
            unsupported(f"activation {name!r}")


def fused_conv(call: Call) -> str:
    """A convolution, plus operand 3 if there is one, then an activation."""
    result = convolution(call.with_inputs(call.inputs[:3]))
    if call.has(3):
        result = call.emit(ew.Add(), result, call.input(3))
    return activated(call, result)


def fused_gemm(call: Call) -> str:
    return activated(call, gemm(call), "activation_")


def channels_last(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Permutations that move channels from the end behind the batch, and back."""
    return (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)


def nhwc_max_pool(call: Call) -> str:
    """The greatest elements in windows, with channels last."""
    inward, outward = channels_last(call.rank())
    moved = call.with_inputs((call.emit(Transpose(inward), call.input(0)),))
    result = standard(max_pool, 12)(moved)
    return call.emit(Transpose(outward), result if isinstance(result, str) else result[0])


def bias_softmax(call: Call) -> str:
    """Softmax over all axes from ``axis`` on, as one, of the sum with a bias.

    The bias is broadcast along axes in front of ``axis``: the inner or the outer ones of them.
    """
    axis, x, bias = call.axis(1), call.value(0), call.value(1)
    extents, own = x.type.shape, bias.type.shape
    if not call.attrs.flag("is_inner_broadcast", True) and len(own) == len(extents):
        # Its rows are read in order, again and again.
        outer = product(extents[:axis])
        rows = product(own[:axis])
        inner = tuple(extents[axis:])
        groups = (floordiv(outer, rows), rows, *inner)
        total = of(Reshape(groups), x) + of(Reshape((rows, *inner)), bias)
        x = of(Reshape(extents), total)
    else:
        x = x + bias
    flat = of(Reshape((product(extents[:axis]), product(extents[axis:]))), x)
    return of(Reshape(extents), of(Softmax(1), flat)).name


def bias_add(call: Call) -> str:
    return (call.value(0) + call.value(1) + call.value(2)).name


def gemm_fast_gelu(call: Call) -> str:
    total = of(MatMul(), call.value(0), call.value(1))
    return of(act.Gelu("tanh"), total + call.value(2) if call.has(2) else total).name


def activated_matmul(call: Call) -> str:
    return activated(call, fused_matmul(call), "activation_")


def complex_mul(conjugate: bool) -> Handler:
    """Products of complex numbers, whose parts are the last axis; of conjugates of the second."""

    def handler(call: Call) -> str:
        (a, b), (c, d) = (_parts(call.value(i)) for i in (0, 1))
        d = -1.0 * d if conjugate else d
        return of(Concat(a.type.rank - 1), a * c - b * d, a * d + b * c).name

    return handler


def _parts(x: Value) -> tuple[Value, Value]:
    *outer, _ = x.type.shape
    zeros, steps = (0,) * len(outer), (1,) * (len(outer) + 1)
    real, imaginary = (of(Slice((*zeros, i), (*outer, 1), steps), x) for i in (0, 1))
    return real, imaginary


def nhwc_conv(call: Call) -> str:
    """A convolution with channels last; the weights are [O, …, I]."""
    inward, outward = channels_last(call.rank())
    moved = [call.emit(Transpose(inward), call.input(i)) for i in (0, 1)]
    result = convolution(call.with_inputs((*moved, *call.inputs[2:])))
    return call.emit(Transpose(outward), result)


def matmul_bits(call: Call) -> str:
    return bits_product(call, call.attrs.integer("N"))


def bits_product(call: Call, columns: int) -> str:
    """``a @ dequantised(b)^T``: b is [N, blocks, bytes], packed, with a scale for each block."""
    attrs = call.attrs
    rows = attrs.integer("K")
    bits, block = attrs.integer("bits", 4), attrs.integer("block_size")
    dtype: DType = {2: U2, 4: U4, 8: U8}.get(bits) or unsupported(f"weights of {bits} bits")
    if call.has(4):
        unsupported("its fifth operand, the order of groups (g_idx)")
    blocks = -(-rows // block)
    packed = call.array(1, "weights").reshape(columns, blocks, -1)
    weights = unpacked(packed, dtype)[..., :block].reshape(columns, -1)[:, :rows]
    scales = call.array(2, "scales").reshape(columns, blocks)
    operands = [np.ascontiguousarray(weights).astype(dtype.numpy), scales]
    if call.has(3) and call.dtype(3) != U8:
        unsupported("zero points that are no integers")
    zeros = np.full((columns, blocks), 1 << (bits - 1), np.uint8)
    if call.has(3):
        given = call.array(3, "zero points").reshape(columns, -1)
        zeros = unpacked(given, dtype)[:, :blocks]
    operands.append(np.ascontiguousarray(zeros).astype(dtype.numpy))
    whole = call.emit(DequantizeLinear(1, block), *(call.constant(o) for o in operands))
    result = of(MatMul(), call.value(0), of(Transpose((1, 0)), Value(call, whole)))
    return (result + call.value(5)).name if call.has(5) else result.name


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
    flipped = of(Transpose((*range(rank - 2), rank - 1, rank - 2)), _turned(call, x))
    entries = [_entry(call, x, i, j) for i in (0, 1) for j in (0, 1)]
    determinant = entries[0] * entries[3] - entries[1] * entries[2]
    return (flipped * call.literal(adjugate) / determinant).name


def _turned(call: Call, x: Value) -> Value:
    """Both last axes reversed."""
    shape = call.shape()
    starts = (*(0,) * (len(shape) - 2), 1, 1)
    return of(Slice(starts, shape, (*(1,) * (len(shape) - 2), -1, -1)), x)


def _entry(call: Call, x: Value, i: int, j: int) -> Value:
    lead = call.shape()[:-2]
    return of(Slice((*(0,) * len(lead), i, j), (*lead, 1, 1), (1,) * (len(lead) + 2)), x)


def expand_dims(call: Call) -> str:
    (axis,) = call.integers(1, "axis")
    place = call.normal(axis, call.rank() + 1)
    shape = call.shape()
    return call.emit(Reshape((*shape[:place], 1, *shape[place:])), call.input(0))


def distances(call: Call) -> str:
    """Distances of all rows of the operands, or their squares."""
    (m, size), (n, _) = call.shape(), call.shape(1)
    a, b = (of(Reshape(s), call.value(i)) for i, s in enumerate(((m, 1, size), (1, n, size))))
    squares = of(ReduceSumSquare((2,), False), a - b)
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
    known: dict[int, DType] = {4: U4, 8: U8}
    dtype = known.get(bits) or unsupported(f"data of {bits} bits")
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


CONTRIB: Handlers = MappingProxyType(
    {
        "FusedMatMul": fused_matmul,
        "TransposeMatMul": fused_matmul,
        "Gelu": biased_gelu("none"),
        "BiasGelu": biased_gelu("none"),
        "FastGelu": biased_gelu("tanh"),
        "QuickGelu": quick_gelu,
        "BiasSplitGelu": bias_split_gelu,
        "FusedConv": fused_conv,
        "FusedGemm": fused_gemm,
        "NhwcConv": nhwc_conv,
        "NhwcFusedConv": nhwc_conv,
        "MatMulNBits": matmul_bits,
        "NhwcMaxPool": nhwc_max_pool,
        "BiasSoftmax": bias_softmax,
        "BiasAdd": bias_add,
        "GemmFastGelu": gemm_fast_gelu,
        "FusedMatMulActivation": activated_matmul,
        "ComplexMul": complex_mul(conjugate=False),
        "ComplexMulConj": complex_mul(conjugate=True),
        "GridSample": standard(grid_sample, 16),
        "Trilu": trilu,
        "GatherND": simple(GatherND),
        "Inverse": inverse,
        "ExpandDims": expand_dims,
        "CDist": distances,
        "Range": standard(range_, 11),
        "Pad": standard(pad, 18),
        "GatherBlockQuantized": gather_quantized,
    }
)
