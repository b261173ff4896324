"""Batched matrix products whose results have a batch axis last, with it moved to the front."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.matmul import Einsum
from modelcc.ops.shape import Transpose


@dataclass(frozen=True)
class BatchesFirst:
    """A matrix product whose result ends in a batch axis is computed with all batch axes in front,
    and transposed.

    Otherwise elements of one matrix would be stored with a stride of the batch, and vectors along
    the batch would gather each factor, unless the batch is the last axis of a factor, too.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<3x2x5xf32>, %y: tensor<4x2x5xf32>):
          %z = "mcc.Einsum"(%x, %y) {equation = "lhn,shn->lsh"}
          "mcc.return"(%z)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<3x2x5xf32>, %y: tensor<4x2x5xf32>):
          %p = "mcc.Einsum"(%x, %y) {equation = "lhn,shn->hls"}
          %z = "mcc.Transpose"(%p) {perm = [1, 2, 0]}
          "mcc.return"(%z)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (_batches_first,), self.limit)


def _batches_first(node: Node, at: Rewriter) -> Replacement:
    if not isinstance(node.op, Einsum) or len(node.inputs) != 2:
        return None
    (left, right), result = node.op.terms
    batch = [label for label in result if label in left and label in right]
    if not batch or result[-1] != batch[-1] or result[-1] in (left[-1], right[-1]):
        return None
    rest = [label for label in result if label not in batch]
    summed = set(left + right) - set(result)
    if not summed or not set(rest) & set(left) or not set(rest) & set(right):
        return None
    order = "".join((*batch, *rest))
    product = at.emit(Einsum(f"{left},{right}->{order}"), *node.inputs)
    return at.emit(Transpose(tuple(map(order.index, result))), product)
