"""HardSwish and HardSigmoid from their formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.activation import Clip, HardSigmoid, HardSwish
from modelcc.ops.elementwise import Div, Mul
from modelcc.passes.graph.products import close, made_by, plus_scalar, product


@dataclass(frozen=True)
class RecogniseHardSwish:
    """``x * clip(x + 3, 0, 6) / 6`` is HardSwish, without the ``x`` it is HardSigmoid.

    Howard et al., "Searching for MobileNetV3", 2019; PaddlePaddle exports Add, Clip, Mul, Div.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %three = "mcc.constant"() {value = dense<3.0> : tensor<1xf32>}
          %six = "mcc.constant"() {value = dense<6.0> : tensor<1xf32>}
          %a = "mcc.Add"(%x, %three)
          %c = "mcc.Clip"(%a) {low = 0.0, high = 6.0}
          %p = "mcc.Mul"(%x, %c)
          %y = "mcc.Div"(%p, %six)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %y = "mcc.HardSwish"(%x)
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (hard_swish, hard_sigmoid), self.limit)


def hard_swish(node: Node, at: Rewriter) -> Replacement:
    """A product of x and a ramp of x."""
    if not isinstance(node.op, Mul | Div):
        return None
    result = node.outputs[0]
    for factor in product(at, result).powers:
        for scale, x in _ramp_arguments(at, factor):
            whole = product(at, result, frozenset((x, factor)))
            if whole.is_like(scale, {x: 1, factor: 1}) and at.type_of(x) == at.type_of(result):
                return at.emit(HardSwish(), x)
    return None


def _ramp_arguments(at: Rewriter, name: str) -> Iterator[tuple[float, str]]:
    """(c, x) with ``c * name == clip(x/6 + 1/2, 0, 1)``."""
    node = at.producer(name)
    match node.op if node else None:
        case HardSigmoid(alpha, beta) if close(alpha, 1 / 6) and close(beta, 0.5):
            yield 1.0, node.inputs[0] if node else ""
        case Clip(0.0, 6.0):
            shifted = plus_scalar(at, node.inputs[0] if node else "")
            if shifted is not None and close(shifted[1], 3.0):
                yield 1 / 6, shifted[0]
        case _:
            pass


def hard_sigmoid(node: Node, at: Rewriter) -> Replacement:
    """A ramp of x that is not multiplied by x itself."""
    if not isinstance(node.op, Mul | Div):
        return None
    whole = product(at, node.outputs[0])
    for factor in whole.powers:
        clip = made_by(at, factor, Clip)
        for scale, x in _ramp_arguments(at, factor) if clip is not None else ():
            alone = at.type_of(x) == at.type_of(node.outputs[0])
            if alone and whole.is_like(scale, {factor: 1}):
                return at.emit(HardSigmoid(1 / 6, 0.5), x)
    return None
