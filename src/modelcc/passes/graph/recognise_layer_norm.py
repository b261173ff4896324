"""LayerNorm from its formula."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.elementwise import Add, Mul, Sub
from modelcc.ops.norm import LayerNorm
from modelcc.ops.reduce import ReduceMean
from modelcc.passes.graph.products import made_by, swapped
from modelcc.passes.graph.trailing_norms import (
    fits_trailing,
    normalised_by_root,
    squeezed,
    trailing_axis,
)


@dataclass(frozen=True)
class RecogniseLayerNorm:
    """``(x - mean(x)) / sqrt(mean((x - mean(x))²) + ε) * w + b`` is LayerNorm (Ba et al., 2016).

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3x8xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<8xf32>
          %b = "mcc.constant"() {digest = "b"} : () -> tensor<8xf32>
          %eps = "mcc.constant"() {value = dense<1.0e-5> : tensor<1xf32>}
          %m = "mcc.ReduceMean"(%x) {axes = [2], keepdims = true}
          %d = "mcc.Sub"(%x, %m)
          %q = "mcc.Mul"(%d, %d)
          %v = "mcc.ReduceMean"(%q) {axes = [2], keepdims = true}
          %e = "mcc.Add"(%v, %eps)
          %s = "mcc.Sqrt"(%e)
          %n = "mcc.Div"(%d, %s)
          %p = "mcc.Mul"(%n, %w)
          %y = "mcc.Add"(%b, %p)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3x8xf32>):
          %w = "mcc.constant"() {digest = "w"} : () -> tensor<8xf32>
          %b = "mcc.constant"() {digest = "b"} : () -> tensor<8xf32>
          %y = "mcc.LayerNorm"(%x, %w, %b) {axis = 2, epsilon = 1.0e-5}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (layer_norm, scaled_layer_norm, shifted_layer_norm), self.limit)


def layer_norm(node: Node, at: Rewriter) -> Replacement:
    """Deviations over the root of their mean square, not yet scaled."""
    norm = normalised_by_root(node, at)
    if norm is None:
        return None
    axis, epsilon, deviation = norm
    x = _centred(at, deviation, axis)
    return None if x is None else at.emit(LayerNorm(axis, epsilon), x)


def _centred(at: Rewriter, name: str, axis: int) -> str | None:
    """x if ``name`` is x less its mean over the axes from ``axis`` on."""
    difference = made_by(at, name, Sub)
    if difference is None:
        return None
    x, centre = difference.inputs
    mean = made_by(at, centre, ReduceMean)
    is_mean = mean is not None and mean.inputs == (x,) and trailing_axis(mean, at) == axis
    return x if is_mean else None


def scaled_layer_norm(node: Node, at: Rewriter) -> Replacement:
    """A constant factor becomes the scale of a norm that has neither scale nor bias."""
    return _with_parameter(node, at, 1) if isinstance(node.op, Mul) else None


def shifted_layer_norm(node: Node, at: Rewriter) -> Replacement:
    """A constant addend becomes the bias of a norm that has none."""
    return _with_parameter(node, at, 2) if isinstance(node.op, Add) else None


def _with_parameter(node: Node, at: Rewriter, position: int) -> Replacement:
    for name, parameter in swapped(node):
        norm = made_by(at, name, LayerNorm)
        if norm is None or len(norm.inputs) > position or at.uses(name) > 1:
            continue
        op = norm.op
        if isinstance(op, LayerNorm) and fits_trailing(at, parameter, name, op.axis):
            absent = ("",) * (position - len(norm.inputs))
            rank = at.type_of(name).rank - op.axis
            return at.emit(op, *norm.inputs, *absent, squeezed(at, parameter, rank))
    return None
