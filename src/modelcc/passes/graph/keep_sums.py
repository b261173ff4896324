"""Attention in training, which keeps the statistics from which gradients recompute its weights."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.arithmetic import Value
from modelcc.ops.attention import Attention, AttentionAdjoint
from modelcc.ops.attention_gradients import AttentionSums, gradients, row_products


@dataclass(frozen=True)
class KeepSums:
    """Attention also returns the log-sum-exp of rows, from which its gradients are computed, for
    machines that do not keep scores in memory.

    before::

        "mcc.graph"() ({
        ^bb0(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x5x4xf32>, %g: tensor<1x2x3x4xf32>):
          %y = "mcc.Attention"(%q, %k, %k) {scale = 0.5, causal = false, offset = 0}
          %dq, %dk, %dv = "mcc.AttentionAdjoint"(%g, %y, %q, %k, %k)
            {scale = 0.5, causal = false, offset = 0}
          "mcc.return"(%y, %dq)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x5x4xf32>, %g: tensor<1x2x3x4xf32>):
          %y, %unused = "mcc.AttentionSums"(%q, %k, %k) {scale = 0.5, causal = false, offset = 0}
          %again, %sums = "mcc.AttentionSums"(%q, %k, %k) {scale = 0.5, causal = false, offset = 0}
          %products = "mcc.Mul"(%g, %y)
          %deltas = "mcc.ReduceSum"(%products) {axes = [3], keepdims = false}
          %dq, %dk, %dv = "mcc.AttentionGradients"(%g, %q, %k, %k, %sums, %deltas)
            {scale = 0.5, causal = false, offset = 0}
          "mcc.return"(%y, %dq)
        })

    Equal nodes are merged then, as everywhere.
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        adjoints = [node for node in graph.nodes if isinstance(node.op, AttentionAdjoint)]
        results = {node.inputs[1] for node in adjoints}

        def with_sums(node: Node, at: Rewriter) -> Replacement:
            """Attention with gradients."""
            op = node.op
            if not isinstance(op, Attention) or results.isdisjoint(node.outputs):
                return None
            return at.add(AttentionSums(op.scale, op.causal, op.offset), *node.inputs)[0]

        return rewrite(graph, (with_sums, by_sums), self.limit) if adjoints else graph


def by_sums(node: Node, at: Rewriter) -> Replacement:
    """Gradients of attention from the log-sum-exp of its rows."""
    op = node.op
    if not isinstance(op, AttentionAdjoint):
        return None
    dy, y, *inputs = node.inputs
    _, sums = at.add(AttentionSums(op.scale, op.causal, op.offset), *inputs)
    deltas = row_products(Value(at, dy), Value(at, y))
    found = gradients(op, at, Value(at, dy), inputs, Value(at, sums), deltas)
    return tuple(name for name in found if name is not None)
