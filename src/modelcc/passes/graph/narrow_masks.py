"""Attention masks without the axes along which they are constant."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import Array
from modelcc.ops.arithmetic import Elementwise
from modelcc.ops.attention import Attention
from modelcc.ops.elementwise import Cast
from modelcc.ops.shape import Expand
from modelcc.passes.graph.products import CHAIN


@dataclass(frozen=True)
class NarrowMasks:
    """Ops on expanded values, or on constants without variation along an axis, are computed once.

    A padding mask, which exporters replicate for each query, is then shared by all: it is computed,
    and read, once per key.

    before::

        "mcc.graph"() ({
        ^bb0(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x4x8xf32>, %m: tensor<2x1x1x4xi1>):
          %all = "mcc.constant"() {value = dense<true> : tensor<1x1x4x1xi1>}
          %zero = "mcc.constant"() {value = dense<0.0> : tensor<f32>}
          %low = "mcc.constant"() {value = dense<-1.0e9> : tensor<f32>}
          %a = "mcc.And"(%all, %m)
          %w = "mcc.Where"(%a, %zero, %low)
          %y = "mcc.Attention"(%q, %k, %k, %w) {scale = 0.5, causal = false, offset = 0}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x4x8xf32>, %m: tensor<2x1x1x4xi1>):
          %all = "mcc.constant"() {value = dense<true> : tensor<1x1x1x1xi1>}
          %zero = "mcc.constant"() {value = dense<0.0> : tensor<f32>}
          %low = "mcc.constant"() {value = dense<-1.0e9> : tensor<f32>}
          %a = "mcc.And"(%all, %m)
          %w = "mcc.Where"(%a, %zero, %low)
          %y = "mcc.Attention"(%q, %k, %k, %w) {scale = 0.5, causal = false, offset = 0}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (narrow_mask,), self.limit)


def narrow_mask(node: Node, at: Rewriter) -> Replacement:
    """Attention whose mask can be narrower."""
    if not isinstance(node.op, Attention) or len(node.inputs) < 4:
        return None
    q, k, v, mask = node.inputs
    narrow = narrowed(at, mask, CHAIN)
    return None if narrow == mask else at.emit(node.op, q, k, v, narrow)


def narrowed(at: Rewriter, name: str, depth: int) -> str:
    """A tensor that broadcasts to ``name``; itself if none smaller is found within ``depth``."""
    data, node = at.constant_value(name), at.producer(name)
    if data is not None:
        least = _differing(data)
        return name if least.shape == data.shape else at.constant(least)
    if node is None or not depth:
        return name
    match node.op:
        case Expand() if _is_seen_to_fit(at, node):
            return narrowed(at, node.inputs[0], depth - 1)
        case Elementwise() | Cast() if len(node.outputs) == 1:
            operands = tuple(narrowed(at, n, depth - 1) if n else n for n in node.inputs)
            made = name if operands == node.inputs else at.emit(node.op, *operands)
            return name if at.type_of(made).shape == at.type_of(name).shape else made
        case _:
            return name


def _is_seen_to_fit(at: Rewriter, node: Node) -> bool:
    """Whether each extent is known to be 1 or that of the result; named ones may not match."""
    whole, own = (at.type_of(name).shape for name in (node.outputs[0], node.inputs[0]))
    ends = zip(reversed(own), reversed(whole), strict=False)
    return all(extent in (1, full) for extent, full in ends)


def _differing(data: Array) -> Array:
    """``data`` reduced to the axes along which it varies."""
    for axis, extent in enumerate(data.shape):
        first = data.take([0], axis) if extent > 1 else data
        data = first if bool((data == first).all()) else data
    return data
