"""Sums of convolutions of one tensor merged into a single convolution.

Networks are often trained with several parallel linear branches, which a sum of their weights
replaces (Ding et al., "RepVGG: making VGG-style ConvNets great again", 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import Array
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Add, Mul, Sub
from modelcc.passes.graph.fold_batch_norm import fold_addend, fold_factor
from modelcc.passes.graph.products import swapped


@dataclass(frozen=True)
class MergeBranches:
    """The wider convolution absorbs the narrower one, a factor per channel, or the tensor itself.

    Weights are added in f64 and rounded once.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x4x5x5xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<4x4x3x3xf32>
          %v = "mcc.constant"() {digest = "v"} : () -> tensor<4x4x1x1xf32>
          %h = "mcc.Conv"(%x, %w)
              {strides = [1, 1], pads_before = [1, 1], pads_after = [1, 1], dilations = [1, 1]}
          %g = "mcc.Conv"(%x, %v)
              {strides = [1, 1], pads_before = [0, 0], pads_after = [0, 0], dilations = [1, 1]}
          %s = "mcc.Add"(%h, %g)
          %y = "mcc.Add"(%s, %x)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x4x5x5xf32>):
          %w = "mcc.constant"() {digest = "u"} : () -> tensor<4x4x3x3xf32>
          %y = "mcc.Conv"(%x, %w)
              {strides = [1, 1], pads_before = [1, 1], pads_after = [1, 1], dilations = [1, 1]}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (merge_sum, fold_factor, fold_addend), self.limit)


def merge_sum(node: Node, at: Rewriter) -> Replacement:
    """The sum or difference of two branches, the wider one a convolution."""
    if not isinstance(node.op, Add | Sub):
        return None
    sign = -1.0 if isinstance(node.op, Sub) else 1.0
    first, second = node.inputs
    for wide, narrow, signs in ((first, second, (1.0, sign)), (second, first, (sign, 1.0))):
        conv = _convolution(at, wide)
        if conv is None or at.type_of(wide) != at.type_of(narrow):
            continue
        other = _convolution(at, narrow) or _diagonal(at, narrow, conv)
        inner = None if other is None else _embedded(other, conv)
        if other is not None and inner is not None:
            weights = signs[0] * conv.weights + signs[1] * inner
            return _emitted(at, conv, weights, signs[0] * conv.bias + signs[1] * other.bias)
    return None


@dataclass(frozen=True)
class _Branch:
    """A convolution of ``x`` with its weights and biases in f64."""

    x: str
    op: Conv
    weights: Array
    bias: Array
    dtype: np.dtype[np.generic]

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.weights.shape[2:]


def _convolution(at: Rewriter, name: str) -> _Branch | None:
    """The convolution by constants that computes ``name``, if that has no other reader."""
    node = at.producer(name)
    if node is None or not isinstance(node.op, Conv) or at.uses(name) > 1:
        return None
    x, weight, *rest = node.inputs
    weights = at.constant_value(weight)
    if weights is None or weights.dtype.kind != "f":
        return None
    bias = at.constant_value(rest[0]) if rest and rest[0] else np.zeros(len(weights))
    if bias is None:
        return None
    wide = weights.astype(np.float64)
    return _Branch(x, node.op, wide, bias.astype(np.float64), weights.dtype)


def _diagonal(at: Rewriter, name: str, like: _Branch) -> _Branch | None:
    """``factor * x + shift`` per channel as a convolution like ``like``, centred in its window."""
    outputs, inputs, *kernel = like.weights.shape
    affine = _affine(at, name, like.x, outputs)
    still = all(s == 1 for s in like.op.strides) and at.type_of(name) == at.type_of(like.x)
    if affine is None or not still:
        return None
    factor, shift = affine
    channels = np.tile(np.eye(inputs), (outputs // inputs, 1)) * factor[:, None]
    weights = channels.reshape(outputs, inputs, *(1 for _ in kernel))
    none = tuple(0 for _ in kernel)
    op = replace(like.op, pads_before=none, pads_after=none)
    return _Branch(like.x, op, weights, shift, like.dtype)


def _affine(at: Rewriter, name: str, x: str, channels: int) -> tuple[Array, Array] | None:
    """Factor and addend per channel that compute ``name`` from ``x``."""
    if name == x:
        return np.ones(channels), np.zeros(channels)
    node = at.producer(name)
    if node is None or not isinstance(node.op, Add | Mul) or at.uses(name) > 1:
        return None
    for value, constant in swapped(node):
        number = _per_channel(at, constant, at.type_of(name).rank, channels)
        affine = None if number is None else _affine(at, value, x, channels)
        if affine is None or number is None:
            continue
        factor, shift = affine
        if isinstance(node.op, Mul):
            return factor * number, shift * number
        return factor, shift + number
    return None


def _per_channel(at: Rewriter, constant: str, rank: int, channels: int) -> Array | None:
    data = at.constant_value(constant)
    if data is None or data.ndim > rank:
        return None
    shape = (1,) * (rank - data.ndim) + data.shape
    if any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(data.reshape(-1).astype(np.float64), (channels,))


def _embedded(narrow: _Branch, wide: _Branch) -> Array | None:
    """The weights of ``narrow``, zero-padded to the kernel size of ``wide``."""
    a, b = narrow.op, wide.op
    if narrow.x != wide.x or (a.strides, a.groups) != (b.strides, b.groups):
        return None
    result = np.zeros_like(wide.weights)
    place: list[slice] = [slice(None), slice(None)]
    for dim, (own, whole) in enumerate(zip(narrow.kernel, wide.kernel, strict=True)):
        distance = b.pads_before[dim] - a.pads_before[dim]
        step = b.dilations[dim]
        same_steps = own == 1 or a.dilations[dim] == step
        if not isinstance(distance, int) or distance % step or not same_steps:
            return None
        first = distance // step
        if first < 0 or first + own > whole:
            return None
        place.append(slice(first, first + own))
    result[tuple(place)] = narrow.weights
    return result


def _emitted(at: Rewriter, conv: _Branch, weights: Array, bias: Array) -> str:
    inputs = [conv.x, at.constant(weights.astype(conv.dtype))]
    inputs += [at.constant(bias.astype(conv.dtype))] if bias.any() else []
    return at.emit(conv.op, *inputs)
