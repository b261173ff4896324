"""Per-channel factors and addends folded into the weights before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import Array
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.elementwise import Add, Mul
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.norm import BatchNorm
from modelcc.passes.graph.products import made_by, swapped


@dataclass(frozen=True)
class FoldBatchNorm:
    """Batch norms, per-channel Mul and Add become part of the preceding linear op.

    Others become one Mul and one Add.  Factors are computed in f64 and rounded once (Jacob et al.,
    "Quantization and training of neural networks", 2018, section 3.2).

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x3x5x5xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<4x3x3x3xf32>
          %scale = "mcc.constant"() {digest = "scale"} : () -> tensor<4xf32>
          %bias = "mcc.constant"() {digest = "bias"} : () -> tensor<4xf32>
          %mean = "mcc.constant"() {digest = "mean"} : () -> tensor<4xf32>
          %var = "mcc.constant"() {digest = "var"} : () -> tensor<4xf32>
          %h = "mcc.Conv"(%x, %w)
              {strides = [1, 1], pads_before = [1, 1], pads_after = [1, 1], dilations = [1, 1]}
          %y = "mcc.BatchNorm"(%h, %scale, %bias, %mean, %var) {epsilon = 1.0e-5}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x3x5x5xf32>):
          %w = "mcc.constant"() {digest = "v"} : () -> tensor<4x3x3x3xf32>
          %b = "mcc.constant"() {digest = "b"} : () -> tensor<4xf32>
          %y = "mcc.Conv"(%x, %w, %b)
              {strides = [1, 1], pads_before = [1, 1], pads_after = [1, 1], dilations = [1, 1]}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        rules = (fold_norm, fold_factor, factor_before_addend, fold_addend, norm_to_affine)
        return rewrite(graph, rules, self.limit)


def fold_norm(node: Node, at: Rewriter) -> Replacement:
    """Batch norm of a linear op with constant weights."""
    affine = _affine_of(node, at)
    return _scaled(at, node.inputs[0], *affine) if affine is not None else None


def norm_to_affine(node: Node, at: Rewriter) -> Replacement:
    """Batch norm of any other value, as one Mul and one Add."""
    affine = _affine_of(node, at)
    if affine is None:
        return None
    kind = at.type_of(node.inputs[0])
    shape = (-1, *(1,) * (kind.rank - 2))
    factor, shift = (at.constant(v.reshape(shape).astype(kind.dtype.numpy)) for v in affine)
    return at.emit(Add(), at.emit(Mul(), node.inputs[0], factor), shift)


def _affine_of(node: Node, at: Rewriter) -> tuple[Array, Array] | None:
    """Factor and addend per channel, in f64, of a batch norm with constant statistics."""
    if not isinstance(node.op, BatchNorm):
        return None
    parameters = [at.constant_value(n) for n in node.inputs[1:]]
    scale, bias, mean, var = (None if v is None else v.astype(np.float64) for v in parameters)
    if scale is None or bias is None or mean is None or var is None:
        return None
    factor = scale / np.sqrt(var + node.op.epsilon)
    return factor, bias - mean * factor


def fold_factor(node: Node, at: Rewriter) -> Replacement:
    """A constant factor per output channel of a linear op of floats: integers might overflow."""
    if not isinstance(node.op, Mul) or not at.type_of(node.outputs[0]).dtype.is_float:
        return None
    for name, constant in swapped(node):
        factor = _per_channel(at, node, name, constant)
        scaled = _scaled(at, name, factor, np.zeros_like(factor)) if factor is not None else None
        if scaled is not None:
            return scaled
    return None


def factor_before_addend(node: Node, at: Rewriter) -> Replacement:
    """``(linear + b) * c`` as ``linear * c + b * c``, so that weights can take the factor."""
    if not isinstance(node.op, Mul) or not at.type_of(node.outputs[0]).dtype.is_float:
        return None
    for name, constant in swapped(node):
        total, c = made_by(at, name, Add), at.constant_value(constant)
        if total is None or c is None or at.uses(name) > 1:
            continue
        for linear, addend in swapped(total):
            b, weights = at.constant_value(addend), made_by(at, linear, *_LINEAR)
            if b is None or weights is None or at.uses(linear) > 1:
                continue
            foldable = at.constant_value(weights.inputs[1]) is not None
            same_shape = at.type_of(linear) == at.type_of(node.outputs[0])
            if foldable and same_shape and _per_channel(at, total, linear, constant) is not None:
                scaled = at.emit(Mul(), linear, constant)
                return at.emit(Add(), scaled, at.constant(np.asarray(b * c)))
    return None


def fold_addend(node: Node, at: Rewriter) -> Replacement:
    """A constant addend per output channel of a convolution becomes (part of) its bias."""
    if not isinstance(node.op, Add):
        return None
    for name, constant in swapped(node):
        linear = at.producer(name)
        if linear is None or not isinstance(linear.op, Conv | ConvTranspose | Gemm):
            continue
        shift = _per_channel(at, node, name, constant)
        shifted = _scaled(at, name, np.ones_like(shift), shift) if shift is not None else None
        if shifted is not None:
            return shifted
    return None


def _per_channel(at: Rewriter, node: Node, name: str, constant: str) -> Array | None:
    """The constant as one f64 number per channel of ``name``, if it has that form."""
    data, kind, linear = at.constant_value(constant), at.type_of(name), at.producer(name)
    if data is None or linear is None or not isinstance(linear.op, _LINEAR):
        return None
    if kind != at.type_of(node.outputs[0]):
        return None
    axis = kind.rank - 1 if isinstance(linear.op, MatMul | Gemm) else 1
    extent = kind.shape[axis] if axis < kind.rank else 0
    shape = (1,) * (kind.rank - data.ndim) + data.shape
    if not isinstance(extent, int) or any(d != 1 for a, d in enumerate(shape) if a != axis):
        return None
    return np.broadcast_to(data.reshape(-1).astype(np.float64), (extent,))


def _scaled(at: Rewriter, name: str, factor: Array, shift: Array) -> str | None:
    """The linear op that computes ``name * factor + shift`` per channel; None if impossible."""
    node = at.producer(name)
    if node is None or at.uses(name) > 1 or not isinstance(node.op, _LINEAR):
        return None
    x, weight, *rest = node.inputs
    weights = at.constant_value(weight)
    bias = at.constant_value(rest[0]) if rest and rest[0] else None
    if weights is None or (rest and rest[0] and bias is None):
        return None
    if isinstance(node.op, MatMul) and (shift.any() or weights.ndim < 2):
        return None
    if isinstance(node.op, Gemm) and bias is not None and not _is_row(bias, factor.size):
        return None
    dtype = weights.dtype
    scaled = at.constant(_scaled_weights(node.op, weights, factor).astype(dtype))
    if bias is None and not shift.any():
        return at.emit(node.op, x, scaled)
    beta = node.op.beta if isinstance(node.op, Gemm) else 1.0
    old = 0.0 if bias is None else bias.astype(np.float64).reshape(-1) * factor
    addend = np.broadcast_to(old + shift / beta, factor.shape)
    return at.emit(node.op, x, scaled, at.constant(addend.astype(dtype)))


_LINEAR = (Conv, ConvTranspose, Gemm, MatMul)


def _is_row(bias: Array, channels: int) -> bool:
    """Whether a Gemm's addend is a scalar, or one number per column."""
    return bias.size == 1 or (bias.size == channels and bias.shape[-1] == channels)


def _scaled_weights(op: object, weights: Array, factor: Array) -> Array:
    """Weights with the output channel axis multiplied by ``factor``, in f64."""
    wide = weights.astype(np.float64)
    match op:
        case Conv():
            return wide * factor.reshape(-1, *(1,) * (wide.ndim - 1))
        case ConvTranspose(groups=groups):
            split = wide.reshape(groups, -1, *wide.shape[1:])
            each = factor.reshape(groups, 1, -1, *(1,) * (wide.ndim - 2))
            return (split * each).reshape(wide.shape)
        case Gemm(trans_b=True):
            return wide * factor[:, None]
        case _:
            return wide * factor
