"""Scales of 8-bit floats moved out of products, for machines that multiply these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.op import Op
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import F32
from modelcc.ops.arithmetic import Add, Cast, Mul
from modelcc.ops.broadcast import Reshape
from modelcc.ops.conv import Conv
from modelcc.ops.matmul import Einsum, Gemm, MatMul
from modelcc.ops.quant import DequantizeLinear
from modelcc.ops.shape import Transpose
from modelcc.passes.graph.products import made_by

BILINEAR: tuple[type[Op], ...] = (MatMul, Einsum, Conv, Gemm)
"""Bilinear ops in their first two operands, if they have no others."""


@dataclass(frozen=True)
class ScaledProducts:
    """A product of dequantised 8-bit floats, each with one scale, is scaled after its sum.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf8E4M3FN>, %w: tensor<3x3xf8E4M3FN>, %s: tensor<f32>):
          %a = "mcc.DequantizeLinear"(%x, %s) {axis = 1, block = 0}
          %b = "mcc.DequantizeLinear"(%w, %s) {axis = 1, block = 0}
          %y = "mcc.MatMul"(%a, %b)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf8E4M3FN>, %w: tensor<3x3xf8E4M3FN>, %s: tensor<f32>):
          %a = "mcc.Cast"(%x) {to = f32}
          %b = "mcc.Cast"(%w) {to = f32}
          %p = "mcc.MatMul"(%a, %b)
          %u = "mcc.Mul"(%s, %s)
          %y = "mcc.Mul"(%p, %u)
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (_scaled_product,), self.limit)


def _scaled_product(node: Node, at: Rewriter) -> Replacement:
    """A product of 8-bit floats, each with one scale, and the addend of a Gemm."""
    inputs = tuple(filter(None, node.inputs))
    addend = inputs[2:] if isinstance(node.op, Gemm) and node.op.beta == 1.0 else ()
    if not isinstance(node.op, BILINEAR) or len(inputs) - len(addend) != 2:
        return None
    left, right = _scaled(inputs[0], at), _scaled(inputs[1], at)
    if left is None or right is None:
        return None
    values = (at.emit(Cast(F32), value) for value in (left[0], right[0]))
    product = at.emit(node.op, *values)
    product = at.emit(Mul(), product, at.emit(Mul(), left[1], right[1]))
    return at.emit(Add(), product, *addend) if addend else product


def _scaled(name: str, at: Rewriter) -> tuple[str, str] | None:
    """The 8-bit floats from which ``name`` is dequantised, and their scale as a scalar."""
    moved = made_by(at, name, Transpose)
    if moved is not None:
        inner = _scaled(moved.inputs[0], at)
        return None if inner is None else (at.emit(moved.op, inner[0]), inner[1])
    node = made_by(at, name, DequantizeLinear)
    if node is None or at.type_of(name).dtype != F32:
        return None
    value, scale, *zero = node.inputs
    dtype, scales = at.type_of(value).dtype, at.type_of(scale)
    if not (dtype.is_float and dtype.bits == 8) or scales.shape not in ((), (1,)):
        return None
    if zero and zero[0]:
        known = at.constant_value(zero[0])
        if known is None or known.astype(np.float32).any():
            return None
    return value, at.emit(Reshape(()), scale) if scales.shape else scale
