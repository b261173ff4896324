"""RMSNorm from its formula."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.elementwise import Mul
from modelcc.ops.norm import RMSNorm
from modelcc.passes.graph.products import swapped
from modelcc.passes.graph.trailing_norms import fits_trailing, normalised_by_root, squeezed


@dataclass(frozen=True)
class RecogniseRmsNorm:
    """``x / sqrt(mean(x²) + ε) * w`` is RMSNorm (Zhang & Sennrich, 2019).

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3x8xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<8xf32>
          %two = "mcc.constant"() {value = dense<2.0> : tensor<f32>}
          %eps = "mcc.constant"() {value = dense<1.0e-6> : tensor<f32>}
          %q = "mcc.Pow"(%x, %two)
          %m = "mcc.ReduceMean"(%q) {axes = [2], keepdims = true}
          %v = "mcc.Add"(%m, %eps)
          %s = "mcc.Sqrt"(%v)
          %r = "mcc.Reciprocal"(%s)
          %n = "mcc.Mul"(%x, %r)
          %y = "mcc.Mul"(%w, %n)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3x8xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<8xf32>
          %y = "mcc.RMSNorm"(%x, %w) {axis = 2, epsilon = 1.0e-6}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (rms_norm, scaled_rms_norm), self.limit)


def rms_norm(node: Node, at: Rewriter) -> Replacement:
    """``x`` over the root of its mean square, not yet scaled."""
    norm = normalised_by_root(node, at)
    return None if norm is None else at.emit(RMSNorm(norm[0], norm[1]), norm[2])


def scaled_rms_norm(node: Node, at: Rewriter) -> Replacement:
    """A constant factor becomes the scale of a norm that has none."""
    if not isinstance(node.op, Mul):
        return None
    for name, scale in swapped(node):
        match at.producer(name):
            case Node(RMSNorm(axis) as op, (x,)) if at.uses(name) == 1:
                if fits_trailing(at, scale, name, axis):
                    return at.emit(op, x, squeezed(at, scale, at.type_of(name).rank - axis))
            case _:
                pass
    return None
