"""Silu, Swish and Mish from their formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.activation import Mish, Silu, Softplus, Swish
from modelcc.ops.elementwise import Div, Exp, Mul, Sigmoid, Tanh
from modelcc.passes.graph.products import close, made_by, plus_scalar, product, scalings


@dataclass(frozen=True)
class RecogniseSilu:
    """``x * sigmoid(a x)`` is Silu (a = 1) or Swish; ``x * tanh(softplus(x))`` is Mish.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %s = "mcc.Sigmoid"(%x)
          %y = "mcc.Mul"(%s, %x)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %y = "mcc.Silu"(%x)
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (swish, mish), self.limit)


def swish(node: Node, at: Rewriter) -> Replacement:
    """``x * sigmoid(a x)``, or ``x / (1 + exp(-a x))``."""
    if not isinstance(node.op, Mul | Div):
        return None
    result = node.outputs[0]
    for factor, power in product(at, result).powers.items():
        for slope, x in _sigmoid_arguments(at, factor, power):
            whole = product(at, result, frozenset((x, factor)))
            if whole.is_like(1.0, {x: 1, factor: power}) and at.type_of(x) == at.type_of(result):
                return at.emit(Silu() if close(slope, 1.0) else Swish(slope), x)
    return None


def _sigmoid_arguments(at: Rewriter, name: str, power: int) -> Iterator[tuple[float, str]]:
    """Every (a, x) with ``name ** power == sigmoid(a x)``."""
    sigmoid = made_by(at, name, Sigmoid)
    if sigmoid is not None and power == 1:
        yield from scalings(at, sigmoid.inputs[0])
    shifted = plus_scalar(at, name) if power == -1 else None
    if shifted is None or not close(shifted[1], 1.0):
        return
    exponential = made_by(at, shifted[0], Exp)
    if exponential is not None:
        yield from ((-scale, x) for scale, x in scalings(at, exponential.inputs[0]))


def mish(node: Node, at: Rewriter) -> Replacement:
    """``x * tanh(softplus(x))`` (Misra, "Mish", 2019)."""
    if not isinstance(node.op, Mul):
        return None
    for name in node.inputs:
        tanh = made_by(at, name, Tanh)
        softplus = made_by(at, tanh.inputs[0], Softplus) if tanh is not None else None
        if softplus is not None and sorted(node.inputs) == sorted((name, softplus.inputs[0])):
            return at.emit(Mish(), softplus.inputs[0])
    return None
