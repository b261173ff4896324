"""Gelu from its formulas (Hendrycks & Gimpel, "Gaussian error linear units", 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi, sqrt
from typing import Literal

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.activation import Gelu
from modelcc.ops.elementwise import Add, Div, Erf, Mul, Tanh
from modelcc.passes.graph.products import (
    close,
    made_by,
    plus_scalar,
    product,
    scalings,
    swapped,
    tolerance_of,
)

CUBIC = 0.044715

Approximate = Literal["none", "tanh"]


@dataclass(frozen=True)
class RecogniseGelu:
    """``x/2 * (1 + erf(x/√2))`` and ``x/2 * (1 + tanh(√(2/π) * (x + 0.044715 x³)))`` are Gelu.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %root = "mcc.constant"() {value = dense<1.4142135> : tensor<f32>}
          %one = "mcc.constant"() {value = dense<1.0> : tensor<f32>}
          %half = "mcc.constant"() {value = dense<0.5> : tensor<f32>}
          %u = "mcc.Div"(%x, %root)
          %e = "mcc.Erf"(%u)
          %s = "mcc.Add"(%one, %e)
          %p = "mcc.Mul"(%x, %s)
          %y = "mcc.Mul"(%p, %half)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %y = "mcc.Gelu"(%x) {approximate = "none"}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (gelu,), self.limit)


def gelu(node: Node, at: Rewriter) -> Replacement:
    """A product of x, a half and one plus an error function or tanh."""
    if not isinstance(node.op, Mul | Div):
        return None
    result = node.outputs[0]
    for factor in product(at, result).powers:
        shifted = plus_scalar(at, factor)
        if shifted is None or not close(shifted[1], 1.0):
            continue
        for x, approximate in _arguments(at, shifted[0]):
            whole = product(at, result, frozenset((x, factor)))
            if whole.is_like(0.5, {x: 1, factor: 1}) and at.type_of(x) == at.type_of(result):
                return at.emit(Gelu(approximate), x)
    return None


def _arguments(at: Rewriter, name: str) -> Iterator[tuple[str, Approximate]]:
    """Every x such that ``name`` is the error function or the tanh of a gelu of x."""
    node = made_by(at, name, Erf, Tanh)
    if node is None:
        return
    if isinstance(node.op, Erf):
        for scale, x in scalings(at, node.inputs[0]):
            if close(scale, sqrt(0.5), tolerance_of(at, x)):
                yield x, "none"
        return
    for x in _cubic_arguments(at, node.inputs[0]):
        yield x, "tanh"


def _cubic_arguments(at: Rewriter, name: str) -> Iterator[str]:
    """Every x with ``name == √(2/π) * (x + CUBIC * x³)``, x multiplied in or out."""
    for scale, total in scalings(at, name):
        node = made_by(at, total, Add)
        if node is None or not close(scale, sqrt(2 / pi), tolerance_of(at, name)):
            continue
        for x, cube in swapped(node):
            if product(at, cube, frozenset((x,))).is_like(CUBIC, {x: 3}):
                yield x
    for factor in product(at, name).powers:
        shifted = plus_scalar(at, factor)
        if shifted is None or not close(shifted[1], 1.0):
            continue
        for x in product(at, name, frozenset((factor,))).powers:
            square = product(at, shifted[0], frozenset((x,)))
            whole = product(at, name, frozenset((factor, x)))
            if square.is_like(CUBIC, {x: 2}) and whole.is_like(sqrt(2 / pi), {x: 1, factor: 1}):
                yield x
