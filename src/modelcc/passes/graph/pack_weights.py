"""Products by low-bit constants that read them packed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import BF16, F16, F32, I2, I4, I8, U2, U4, U8, Array, dtype_of
from modelcc.ops.matmul import MatMul
from modelcc.ops.packed_matmul import WORD_BITS, PackedMatMul, packed_words
from modelcc.ops.quant import DequantizeLinear
from modelcc.ops.shape import Transpose
from modelcc.passes.graph.products import made_by

FEW_BITS = (I2, I4, I8, U2, U4, U8)
FLOATS = (F32, F16, BF16)


@dataclass(frozen=True)
class PackWeights:
    """MatMul by a constant that is quantised in blocks along the reduction.

    Blocks must be complete, and a multiple of a word.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x8xf32>):
          %w = "mcc.constant"() {value = dense<[[1, 2, 3, 4, 5, 6, 7, 8]]> : tensor<1x8xui4>}
          %s = "mcc.constant"() {value = dense<[[0.5]]> : tensor<1x1xf32>}
          %z = "mcc.constant"() {value = dense<[[8]]> : tensor<1x1xui4>}
          %d = "mcc.DequantizeLinear"(%w, %s, %z) {axis = 1, block = 8}
          %t = "mcc.Transpose"(%d) {perm = [1, 0]}
          %y = "mcc.MatMul"(%x, %t)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x8xf32>):
          %p = "mcc.constant"() {value = dense<[[[2271560481]]]> : tensor<1x1x1xui32>}
          %s = "mcc.constant"() {value = dense<[[0.5]]> : tensor<1x1xf32>}
          %z = "mcc.constant"() {value = dense<8> : tensor<ui8>}
          %y = "mcc.PackedMatMul"(%x, %p, %s, %z) {bits = 4}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (packed_product,), self.limit)


@dataclass(frozen=True)
class Blocks:
    """A constant ``(fields - zero) * scale``: fields ``[K, N]``, the others ``[blocks, N]``."""

    fields: Array
    scale: Array
    zero: Array
    bits: int
    block: int

    def turned(self) -> Blocks:
        """The transpose, including its parts."""
        return Blocks(self.fields.T, self.scale.T, self.zero.T, self.bits, self.block)


def packed_product(node: Node, at: Rewriter) -> Replacement:
    """The product of a node, if its second operand is such a constant."""
    if not isinstance(node.op, MatMul) or at.type_of(node.inputs[0]).dtype not in FLOATS:
        return None
    weights = _weights(at, node.inputs[1])
    if weights is None:
        return None
    rows, block = len(weights.fields), weights.block
    if rows % block or block % (WORD_BITS // weights.bits):
        return None
    words = packed_words(weights.fields, weights.bits, block)
    zero = weights.zero.astype(np.uint8)
    zero = zero[0, 0] if (zero == zero[0, 0]).all() else zero
    parts = (words, weights.scale.astype(np.float32), np.asarray(zero))
    operands = (at.constant(np.ascontiguousarray(part).reshape(part.shape)) for part in parts)
    return at.emit(PackedMatMul(weights.bits), node.inputs[0], *operands)


def _weights(at: Rewriter, name: str) -> Blocks | None:
    """The constant ``[K, N]`` from which ``name`` is dequantised, in blocks along K."""
    moved = made_by(at, name, Transpose)
    if moved is None:
        return _blocks(at, name, 0)
    if not isinstance(moved.op, Transpose) or moved.op.perm != (1, 0):
        return None
    blocks = _blocks(at, moved.inputs[0], 1)
    return None if blocks is None else blocks.turned()


def _blocks(at: Rewriter, name: str, axis: int) -> Blocks | None:
    node = made_by(at, name, DequantizeLinear)
    if node is None or not isinstance(node.op, DequantizeLinear):
        return None
    type_ = at.type_of(name)
    if not node.op.block or node.op.axis != axis or type_.rank != 2:
        return None
    data, scale = (at.constant_value(n) for n in node.inputs[:2])
    if data is None or scale is None or scale.ndim != 2 or dtype_of(data) not in FEW_BITS:
        return None
    dtype = dtype_of(data)
    zero = np.zeros(scale.shape, np.int32)
    if len(node.inputs) > 2 and node.inputs[2]:
        given = at.constant_value(node.inputs[2])
        if given is None or given.shape != scale.shape:
            return None
        zero = given.astype(np.int32)
    above = 1 << (dtype.bits - 1) if dtype.kind == "int" else 0
    fields = data.astype(np.int32) + above
    return Blocks(fields, scale, zero + above, dtype.bits, node.op.block)
