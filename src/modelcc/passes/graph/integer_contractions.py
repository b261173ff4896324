"""Contractions of dequantised operands as contractions of integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import F32, I16, I32, U8, Array
from modelcc.ops.broadcast import ReduceSum, Reshape
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Add, Cast, Mul
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.quant import Recentre
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger
from modelcc.passes.graph.quantized_values import BYTES, Quantized, along, dequantised

LARGEST_BIAS = 2.0**30
FEW = 8
"""Rows, columns or products below which a correction sum for signs does not pay."""


@dataclass(frozen=True)
class IntegerContractions:
    """Conv, MatMul and Gemm of bytes become sums of products of u8 by i8, in i32, then one factor.

    Zero points leave the product: ``sum (a - z)(b - y) = sum a*b - z * sum b - y * sum a + n*z*y``
    (Jacob et al., 2018, section 2.3), where sums of constants are constants, added to the bias.
    Integer products of the model's ``own`` are brought to that form, too.  Without instructions
    for ``bytes``, zero points are subtracted from the operands of convolutions.  With instructions
    for ``dots`` of u8 by i8, products of two run-time u8 operands are converted to these, too.
    With instructions for bytes of any ``signs``, operands keep theirs, and zero points leave all
    products.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x4xui8>):
          %s = "mcc.constant"() {value = dense<0.5> : tensor<f32>}
          %z = "mcc.constant"() {value = dense<3> : tensor<ui8>}
          %v = "mcc.constant"() {value = dense<[0.25, 0.5]> : tensor<2xf32>}
          %w = "mcc.constant"() {value = dense<[[1, 2], [3, 4], [5, 6], [7, 8]]> : tensor<4x2xi8>}
          %a = "mcc.DequantizeLinear"(%x, %s, %z) {axis = 0, block = 0}
          %b = "mcc.DequantizeLinear"(%w, %v) {axis = 1, block = 0}
          %y = "mcc.MatMul"(%a, %b)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x4xui8>):
          %w = "mcc.constant"() {value = dense<[[1, 2], [3, 4], [5, 6], [7, 8]]> : tensor<4x2xi8>}
          %c = "mcc.constant"() {value = dense<[-48, -60]> : tensor<2xi32>}
          %v = "mcc.constant"() {value = dense<[0.125, 0.25]> : tensor<2xf32>}
          %p = "mcc.MatMulInteger"(%x, %w)
          %t = "mcc.Add"(%p, %c)
          %f = "mcc.Cast"(%t) {to = f32}
          %y = "mcc.Mul"(%f, %v)
          "mcc.return"(%y)
        })
    """

    bytes: bool = True
    dots: bool = False
    signs: bool = False
    own: bool = True
    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        dots = (unsigned,) if self.dots else ()
        images, products = ((self._recentred,), (self._zero_points,)) if self.own else ((), ())
        rules = (
            self._convolution, centred, *images, self._product, self._gemm, *products, *dots
        )  # fmt: skip
        return rewrite(graph, rules, self.limit)

    def _convolution(self, node: Node, at: Rewriter) -> Replacement:
        return convolution(node, at, self.bytes, self.signs)

    def _recentred(self, node: Node, at: Rewriter) -> Replacement:
        return image_zero_point(node, at, self.bytes, self.signs)

    def _product(self, node: Node, at: Rewriter) -> Replacement:
        return product(node, at, self.signs)

    def _gemm(self, node: Node, at: Rewriter) -> Replacement:
        return gemm(node, at, self.signs)

    def _zero_points(self, node: Node, at: Rewriter) -> Replacement:
        return zero_points(node, at, self.signs)


@dataclass(frozen=True)
class ContractionFactor:
    """A factor of a contraction: bytes and their zero point, an i32 tensor or a constant."""

    name: str
    zero: Array | str

    @property
    def is_centred(self) -> bool:
        """Whether the zero point is known to be 0."""
        return not isinstance(self.zero, str) and not self.zero.any()


# --- rules


def convolution(node: Node, at: Rewriter, bytes: bool, signs: bool) -> Replacement:
    """Conv of bytes by bytes, with one scale per output channel."""
    if not isinstance(node.op, Conv):
        return None
    x, w = dequantised(at, node.inputs[0]), dequantised(at, node.inputs[1])
    if x is None or w is None or not x.per_tensor or not _is_weight(w, 0):
        return None
    unsigned = bytes or at.type_of(w.name).shape[1] == 1
    sums = _convolved(node.op, at, x, w, signs) if unsigned else None
    sums = sums or _difference_convolved(node.op, at, x, w)
    if sums is None:
        return None
    rank = at.type_of(node.outputs[0]).rank
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    return _real(at, sums, along(x.scale * w.scale, 1, rank), bias, 1)


def centred(node: Node, at: Rewriter) -> Replacement:
    """ConvInteger whose constant weights have a constant zero point."""
    if not isinstance(node.op, ConvInteger):
        return None
    x, w, x_zero, w_zero = (*node.inputs, "", "")[:4]
    if not w_zero:
        return None
    data, zero = at.constant_value(w), at.constant_value(w_zero)
    if data is None or zero is None:
        return None
    weights = at.constant(_differences(data, zero))
    return at.emit(node.op, x, weights, *([x_zero] if x_zero else []))


def image_zero_point(node: Node, at: Rewriter, bytes: bool, signs: bool) -> Replacement:
    """ConvInteger by constant weights of an image with a constant zero point."""
    if not isinstance(node.op, ConvInteger) or len(node.inputs) != 3 or not node.inputs[2]:
        return None
    x, w, x_zero = node.inputs
    zero, weights = at.constant_value(x_zero), at.type_of(w)
    unsigned = bytes or weights.shape[1] == 1
    if zero is None or at.constant_value(w) is None or weights.dtype == I16 or not unsigned:
        return None
    one, none = np.ones((), np.float32), np.zeros((), np.int32)
    image = Quantized(x, at.type_of(x).dtype, one, zero.astype(np.int32).reshape(()), 0)
    weight = Quantized(w, weights.dtype, one, none, 0)
    return _convolved(node.op.conv, at, image, weight, signs)


def product(node: Node, at: Rewriter, signs: bool) -> Replacement:
    """MatMul of bytes; the right factor may have one scale per column."""
    if not isinstance(node.op, MatMul):
        return None
    a, b = dequantised(at, node.inputs[0]), dequantised(at, node.inputs[1])
    if a is None or b is None:
        return None
    return _product(at, a, b, "", signs)


def gemm(node: Node, at: Rewriter, signs: bool) -> Replacement:
    """Gemm of bytes by a constant, alpha and beta being 1."""
    op = node.op
    if not isinstance(op, Gemm) or op.trans_a or op.alpha != 1.0 or op.beta != 1.0:
        return None
    a, b = dequantised(at, node.inputs[0]), dequantised(at, node.inputs[1])
    data = None if b is None else at.constant_value(b.name)
    if a is None or b is None or data is None:
        return None
    if op.trans_b:
        name = at.constant(np.ascontiguousarray(data.T))
        b = Quantized(name, b.dtype, b.scale, b.zero, 1 - b.axis)
    return _product(at, a, b, node.inputs[2] if len(node.inputs) > 2 else "", signs)


def zero_points(node: Node, at: Rewriter, signs: bool) -> Replacement:
    """An integer product with zero points, or of bytes of other signedness, by a constant, or of
    two run-time operands with zero points if all ``signs`` are multiplied."""
    if not isinstance(node.op, MatMulInteger):
        return None
    a, b, a_zero, b_zero = (*node.inputs, "", "")[:4]
    canonical = signs or (at.type_of(a).dtype == U8 and at.type_of(b).dtype != U8)
    if canonical and not a_zero and not b_zero:
        return None
    right = at.constant_value(b_zero) if b_zero else np.zeros((), np.int32)
    constant = at.constant_value(b)
    if right is None or right.ndim > 1 or (constant is None and not (signs and right.size == 1)):
        return None
    left: Array | str = np.zeros((), np.int32)
    if a_zero:
        number = at.constant_value(a_zero)
        if at.type_of(a_zero).elements != 1 or at.type_of(a_zero).rank > 1:
            return None
        left = at.emit(Cast(I32), a_zero) if number is None else number.astype(np.int32).reshape(())
    right = right.astype(np.int32).reshape(()) if right.size == 1 else right.astype(np.int32)
    return _sums(at, ContractionFactor(a, left), ContractionFactor(b, right), signs)


def unsigned(node: Node, at: Rewriter) -> Replacement:
    """An integer product of two run-time u8 operands, neither of them a few numbers."""
    if not isinstance(node.op, MatMulInteger) or any(node.inputs[2:]):
        return None
    a, b = (at.type_of(name) for name in node.inputs[:2])
    constant = [at.constant_value(name) is not None for name in node.inputs[:2]]
    apart = node.inputs[0] != node.inputs[1]
    few = any(isinstance(e, int) and e < FEW for t in (a, b) for e in t.shape[-2:])
    if {a.dtype, b.dtype} != {U8} or any(constant) or few or not apart:
        return None
    zero = np.zeros((), np.int32)
    return _sums(
        at, ContractionFactor(node.inputs[0], zero), ContractionFactor(node.inputs[1], zero)
    )


# --- contractions of factors


def _product(at: Rewriter, a: Quantized, b: Quantized, bias: str, signs: bool) -> str | None:
    rank = at.type_of(b.name).rank
    constant = at.constant_value(b.name) is not None
    columns = constant and b.axis == rank - 1
    bytes = a.dtype in BYTES and b.dtype in BYTES
    if not bytes or not a.per_tensor or not (b.per_tensor or columns) or rank < 2:
        return None
    if constant or signs or at.constant_value(a.name) is not None:
        left, right = ContractionFactor(a.name, a.zero), ContractionFactor(b.name, b.zero)
        sums = _sums(at, left, right, signs)
    else:
        # Layout changes of both operands subtract the zero points on the way.
        sums = at.emit(MatMulInteger(), a.name, b.name, _zero_point(at, a), _zero_point(at, b))
    return None if sums is None else _real(at, sums, a.scale * b.scale, bias, -1)


def _zero_point(at: Rewriter, value: Quantized) -> str:
    """The zero point as an operand; absent if it is 0."""
    return at.constant(value.zero.astype(value.dtype.numpy)) if value.zero.any() else ""


def _sums(
    at: Rewriter, a: ContractionFactor, b: ContractionFactor, signs: bool = False
) -> str | None:
    """``(a - a.zero) @ (b - b.zero)`` in i32; None if a required extent is unknown."""
    if at.type_of(a.name).rank < 2 or at.type_of(b.name).rank < 2:
        return None
    depth = at.type_of(b.name).shape[-2]
    a, b = _as_u8(at, a, signs), _as_i8(at, b, signs)
    if not (a.is_centred or b.is_centred or isinstance(depth, int)):
        return None
    total = at.emit(MatMulInteger(), a.name, b.name)
    if not b.is_centred:
        rows = _summed(at, a.name, at.type_of(a.name).rank - 1)
        total = at.emit(Add(), total, _times(at, rows, b.zero))
    if not a.is_centred:
        total = at.emit(Add(), total, _times(at, _columns(at, b, depth), a.zero))
    return total


def _columns(at: Rewriter, b: ContractionFactor, depth: object) -> str:
    """Sums of the columns of ``b - b.zero``."""
    data = at.constant_value(b.name)
    zero = b.zero if not isinstance(b.zero, str) else np.zeros((), np.int32)
    shift = np.asarray(zero * (depth if isinstance(depth, int) else 0), np.int32)
    if data is not None:
        sums = data.sum(axis=-2, dtype=np.int32, keepdims=data.ndim > 2)
        return at.constant(np.asarray(sums - shift, np.int32))
    sums = _summed(at, b.name, at.type_of(b.name).rank - 2)
    return at.emit(Add(), sums, at.constant(-shift)) if shift.any() else sums


def _summed(at: Rewriter, name: str, axis: int) -> str:
    return at.emit(ReduceSum((axis,), True), at.emit(Cast(I32), name))


def _times(at: Rewriter, sums: str, zero: Array | str) -> str:
    """``-zero * sums``."""
    data = at.constant_value(sums)
    if isinstance(zero, str):
        minus = at.constant(np.asarray(-data)) if data is not None else sums
        product = at.emit(Mul(), minus, zero)
        return product if data is not None else at.emit(Mul(), product, at.constant(-1, I32))
    if data is not None:
        return at.constant(np.asarray(data * -zero, np.int32))
    return at.emit(Mul(), sums, at.constant(np.asarray(-zero, np.int32)))


def _convolved(op: Conv, at: Rewriter, x: Quantized, w: Quantized, signs: bool) -> str | None:
    """The sums of a convolution of ``x - x.zero`` by ``w - w.zero``; pads are ``x.zero``."""
    image = _as_u8(at, ContractionFactor(x.name, x.zero), signs)
    given = at.constant_value(w.name)
    if given is None:
        return None
    if op.groups == 1:
        weights = _as_i8(at, ContractionFactor(w.name, w.zero))
    else:
        weights = ContractionFactor(
            at.constant(_differences(given, w.zero)), np.zeros((), np.int32)
        )
    data = at.constant_value(weights.name)
    assert data is not None
    assert not isinstance(image.zero, str) and not isinstance(weights.zero, str)
    rank, padding = data.ndim, int(image.zero)
    integer = ConvInteger(
        op.strides, op.pads_before, op.pads_after, op.dilations, op.groups, padding
    )
    total = at.emit(integer, image.name, weights.name)
    every = data[0].size
    sums = data.reshape(len(data), -1).sum(axis=1, dtype=np.int32)
    shift = (weights.zero * every - sums) * image.zero
    if not weights.is_centred:
        ones = at.constant(np.ones((1, *data.shape[1:]), np.int8))
        window = at.emit(integer, image.name, ones)
        factor = at.constant(along(-weights.zero, 1, rank).astype(np.int32))
        total = at.emit(Add(), total, at.emit(Mul(), window, factor))
    if shift.any():
        total = at.emit(Add(), total, at.constant(along(shift, 1, rank).astype(np.int32)))
    return total


def _difference_convolved(op: Conv, at: Rewriter, x: Quantized, w: Quantized) -> str | None:
    """The sums of a convolution of ``x - x.zero`` by ``w - w.zero``, these in i16."""
    if x.dtype not in BYTES:
        return None
    integer = ConvInteger(op.strides, op.pads_before, op.pads_after, op.dilations, op.groups)
    operands = [x.name, w.name, _zero_point(at, x), _zero_point(at, w)]
    data = at.constant_value(w.name)
    if data is not None:
        operands[1:] = [at.constant(_differences(data, w.zero)), operands[2]]
    while not operands[-1]:
        del operands[-1]
    return at.emit(integer, *operands)


def _differences(weights: Array, zero: Array) -> Array:
    """``weights - zero``, which may be one per output channel, in the narrowest type."""
    along_first = np.asarray(zero, np.int16).reshape(-1, *(1,) * (weights.ndim - 1))
    data = weights.astype(np.int16) - along_first
    fits = not data.size or (data.min() >= -128 and data.max() <= 127)
    return data.astype(np.int8) if fits else data


def _as_u8(at: Rewriter, factor: ContractionFactor, signs: bool = False) -> ContractionFactor:
    own = signs or at.type_of(factor.name).dtype == U8
    return factor if own else _recentred(at, factor, 128)


def _as_i8(at: Rewriter, factor: ContractionFactor, signs: bool = False) -> ContractionFactor:
    """Constants are converted, whatever ``signs`` are multiplied: most zero points are 0 then."""
    own = signs and at.constant_value(factor.name) is None
    return factor if own or at.type_of(factor.name).dtype != U8 else _recentred(at, factor, -128)


def _recentred(at: Rewriter, factor: ContractionFactor, shift: int) -> ContractionFactor:
    data = at.constant_value(factor.name)
    if data is not None:
        name = at.constant(Recentre().reference(data))
    else:
        name = at.emit(Recentre(), factor.name)
    if isinstance(factor.zero, str):
        return ContractionFactor(name, at.emit(Add(), factor.zero, at.constant(shift, I32)))
    return ContractionFactor(name, factor.zero + np.int32(shift))


# --- from sums to real numbers


def _real(at: Rewriter, sums: str, scale: Array, bias: str, axis: int) -> str:
    """``sums * scale + bias``; a bias quantised by that scale is added to the sums."""
    scale = np.asarray(scale, np.float32)
    rank = at.type_of(sums).rank
    whole = _whole_bias(at, bias, scale) if bias else None
    if whole is not None:
        total = at.emit(Add(), sums, at.constant(along(whole, axis % rank, rank)))
        return at.emit(Mul(), at.emit(Cast(F32), total), at.constant(scale))
    real = at.emit(Mul(), at.emit(Cast(F32), sums), at.constant(scale))
    if not bias:
        return real
    data = at.constant_value(bias)
    if data is not None and axis == 1:
        return at.emit(Add(), real, at.constant(along(data, axis, rank)))
    return at.emit(Add(), real, _column(at, bias, axis, rank))


def _column(at: Rewriter, bias: str, axis: int, rank: int) -> str:
    if axis < 0:
        return bias
    from_shape = at.type_of(bias).shape
    return at.emit(Reshape((*from_shape, *(1,) * (rank - axis - 1))), bias)


def _whole_bias(at: Rewriter, bias: str, scale: Array) -> Array | None:
    """A bias as integer multiples of ``scale``; None if it is not quantised by that."""
    value = dequantised(at, bias)
    data = None if value is None else at.constant_value(value.name)
    if value is None or data is None or data.ndim > 1 or value.dtype != I32 or value.zero.any():
        return None
    own = value.scale.astype(np.float64)
    if own.size not in (1, scale.size) and scale.size != 1:
        return None
    close = np.allclose(own, scale.reshape(-1 if own.ndim else scale.shape), 1e-5, 0)
    return data if close and np.abs(data.astype(np.float64)).max() < LARGEST_BIAS else None


def _is_weight(value: Quantized, axis: int) -> bool:
    """Whether these are bytes whose parameters are along ``axis``."""
    return value.dtype in BYTES and (value.per_tensor or value.axis == axis)
