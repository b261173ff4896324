"""Decomposes ops that have no tensor-level semantics into ops that have."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.passes.tensor.from_graph import has_code


@dataclass(frozen=True)
class Decompose:
    """Every op with a ``decompose`` facet but no code of its own; others are kept.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<5x2x3xf32>, %w: tensor<1x2x3xf32>, %r: tensor<1x2x2xf32>):
          %y, %last = "mcc.RNN"(%x, %w, %r)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<5x2x3xf32>, %w: tensor<1x2x3xf32>, %r: tensor<1x2x2xf32>):
          %w2 = "mcc.Reshape"(%w) {shape = [2, 3]}
          %r2 = "mcc.Reshape"(%r) {shape = [2, 2]}
          %rt = "mcc.Transpose"(%r2) {perm = [1, 0]}
          %wt = "mcc.Transpose"(%w2) {perm = [1, 0]}
          %xs = "mcc.MatMul"(%x, %wt)
          %zero = "mcc.Full"() {shape = [2, 2], value = 0.0, dtype = f32}
          %last, %ys = "mcc.Loop"(%zero, %xs, %rt) ({
            "mcc.graph"() ({
            ^bb0(%state0: tensor<2x2xf32>, %gx: tensor<5x2x2xf32>, %r: tensor<2x2xf32>):
              %at = "mcc.At"(%gx) {axis = 0, position = #mcc.index<"rnn.step">}
              %matmul = "mcc.MatMul"(%state0, %r)
              %add = "mcc.Add"(%at, %matmul)
              %tanh = "mcc.Tanh"(%add)
              "mcc.return"(%tanh, %tanh)
            }) {name = "iteration", dims = {rnn.step = [0, unit]}}
          }) {body = #mcc.region<0>, counter = "rnn.step", trips = 5, states = 1, axes = [0],
              backwards = [false]}
          %y = "mcc.Reshape"(%ys) {shape = [5, 1, 2, 2]}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (written_out,), self.limit)


def written_out(node: Node, at: Rewriter) -> Replacement:
    """The decomposition of an op that cannot be lowered otherwise."""
    if has_code(node.op) or not node.op.has("decompose"):
        return None
    return node.op.decompose(at, *node.inputs)
