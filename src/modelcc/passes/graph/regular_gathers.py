"""Gathers at constant, regularly spaced indices, as slices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.gather import Gather
from modelcc.ops.shape import Reshape
from modelcc.ops.slicing import Slice


@dataclass(frozen=True)
class RegularGathers:
    """Equidistant indices are a slice, all indices of an axis in order the operand itself; either
    is reshaped.

    PyTorch's exports read attention masks so, at ``batch * length + key``, as well as the first
    token.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<4x3xf32>):
          %i = "mcc.constant"() {value = dense<[[1, 3]]> : tensor<1x2xi64>}
          %y = "mcc.Gather"(%x, %i) {axis = 0}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<4x3xf32>):
          %s = "mcc.Slice"(%x) {starts = [1, 0], extents = [2, 3], steps = [2, 1]}
          %y = "mcc.Reshape"(%s) {shape = [1, 2, 3]}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (regular,), self.limit)


def regular(node: Node, at: Rewriter) -> Replacement:
    """A gather at indices with a constant difference."""
    if not isinstance(node.op, Gather):
        return None
    x, indices = node.inputs
    axis, shape = node.op.axis, at.type_of(x).shape
    data, extent = at.constant_value(indices), shape[axis]
    if data is None or not data.size or not isinstance(extent, int):
        return None
    places = data.reshape(-1).astype(np.int64)
    places = np.where(places < 0, places + extent, places)
    first, step = int(places[0]), int(places[1] - places[0]) if len(places) > 1 else 1
    inside = first >= 0 and places[-1] < extent
    if step < 1 or not inside or (np.diff(places) != step).any():
        return None
    result = at.type_of(node.outputs[0]).shape
    if len(places) < extent:
        starts = tuple(first if a == axis else 0 for a in range(len(shape)))
        extents = tuple(len(places) if a == axis else n for a, n in enumerate(shape))
        steps = tuple(step if a == axis else 1 for a in range(len(shape)))
        x = at.emit(Slice(starts, extents, steps), x)
    return at.emit(Reshape(result), x)
