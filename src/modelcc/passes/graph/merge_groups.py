"""Narrow groups of convolutions merged until they fill vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import Array
from modelcc.ops.conv import Conv
from modelcc.ops.quant_matmul import ConvInteger


@dataclass(frozen=True)
class MergeGroups:
    """Groups whose channels do not fill blocks of ``block`` are merged, with zeros between them.

    A vector of outputs then belongs to one group, so that an input can be broadcast to all of it.
    This multiplies the work by the number of merged groups, ``most`` at most.  Depthwise
    convolutions, whose inputs are vectors themselves, are not changed.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x32x5x5xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<32x8x1x1xf32>
          %y = "mcc.Conv"(%x, %w)
              {strides = [1, 1], pads_before = [0, 0], pads_after = [0, 0], dilations = [1, 1],
               groups = 4}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x32x5x5xf32>):
          %w = "mcc.constant"() {digest = "v"} : () -> tensor<32x16x1x1xf32>
          %y = "mcc.Conv"(%x, %w)
              {strides = [1, 1], pads_before = [0, 0], pads_after = [0, 0], dilations = [1, 1],
               groups = 2}
          "mcc.return"(%y)
        })
    """

    block: int
    most: int = 16
    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (self._merge,), self.limit)

    def _merge(self, node: Node, at: Rewriter) -> Replacement:
        if not isinstance(node.op, Conv | ConvInteger) or node.op.groups == 1:
            return None
        if isinstance(node.op, ConvInteger) and any(node.inputs[3:]):
            return None  # padding between groups is not the zero point
        weights = at.constant_value(node.inputs[1])
        if weights is None:
            return None
        count = self._merged(node.op.groups, weights.shape[0], weights.shape[1])
        if count == 1:
            return None
        op = replace(node.op, groups=node.op.groups // count)
        merged = at.constant(block_diagonal(weights, node.op.groups, count))
        return at.emit(op, node.inputs[0], merged, *node.inputs[2:])

    def _merged(self, groups: int, outputs: int, inputs: int) -> int:
        """Number of groups to merge; 1 if they are wide enough, or cannot be made so."""
        each = outputs // groups
        if inputs == each == 1 or outputs < self.block // 2:
            return 1
        counts = [n for n in range(1, min(groups, self.most) + 1) if groups % n == 0]
        whole = [n for n in counts if n * each % self.block == 0]
        dense = [n for n in counts if n == groups]
        return next(iter((*whole, *dense)), 1)


def block_diagonal(weights: Array, groups: int, count: int) -> Array:
    """Weights ``[O, I, *K]`` of ``groups`` groups, for groups of ``count`` old ones each."""
    outputs, inputs, *kernel = weights.shape
    split = weights.reshape(groups // count, count, outputs // groups, inputs, *kernel)
    result = np.zeros(
        (groups // count, count, outputs // groups, count, inputs, *kernel), weights.dtype
    )
    for n in range(count):
        result[:, n, :, n] = split[:, n]
    return result.reshape(outputs, count * inputs, *kernel)
