"""Softmax and LogSoftmax from exponentials and sums."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ops.attention import LogSoftmax, Softmax
from modelcc.ops.elementwise import Div, Exp, Log, Mul, Sub
from modelcc.ops.reduce import ReduceLogSumExp, ReduceMax, ReduceSum
from modelcc.passes.graph.products import made_by, product


@dataclass(frozen=True)
class RecogniseSoftmax:
    """``exp(x) / sum(exp(x))`` is Softmax; its logarithm, or ``x - logsumexp(x)``, LogSoftmax.

    A maximum that is subtracted first is dropped, since Softmax subtracts it itself.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %m = "mcc.ReduceMax"(%x) {axes = [1], keepdims = true}
          %d = "mcc.Sub"(%x, %m)
          %e = "mcc.Exp"(%d)
          %s = "mcc.ReduceSum"(%e) {axes = [1], keepdims = true}
          %y = "mcc.Div"(%e, %s)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %y = "mcc.Softmax"(%x) {axis = 1}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (softmax, log_softmax, difference_of_log_sum), self.limit)


def softmax(node: Node, at: Rewriter) -> Replacement:
    """The quotient of an exponential and its sum along one axis."""
    if not isinstance(node.op, Mul | Div):
        return None
    powers = product(at, node.outputs[0]).powers
    for name in powers:
        exponential = made_by(at, name, Exp)
        total = next((n for n, p in powers.items() if n != name and p == -1), "")
        summed = made_by(at, total, ReduceSum)
        if exponential is None or summed is None or summed.inputs[0] != name:
            continue
        if product(at, node.outputs[0]).is_like(1.0, {name: 1, total: -1}):
            axis = _one_axis(summed)
            if axis is not None:
                return at.emit(Softmax(axis), _without_maximum(at, exponential.inputs[0], axis))
    return None


def _one_axis(node: Node) -> int | None:
    match node.op:
        case ReduceSum((axis,), True) | ReduceMax((axis,), True) | ReduceLogSumExp((axis,), True):
            return axis
        case _:
            return None


def _without_maximum(at: Rewriter, name: str, axis: int) -> str:
    """x if ``name`` is x less its maximum along ``axis``, else ``name``."""
    difference = made_by(at, name, Sub)
    if difference is None:
        return name
    x, highest = difference.inputs
    maximum = made_by(at, highest, ReduceMax)
    is_shift = maximum is not None and maximum.inputs == (x,) and _one_axis(maximum) == axis
    return x if is_shift and at.type_of(x) == at.type_of(name) else name


def log_softmax(node: Node, at: Rewriter) -> Replacement:
    """The logarithm of a softmax."""
    inner = made_by(at, node.inputs[0], Softmax) if isinstance(node.op, Log) else None
    match inner:
        case Node(Softmax(axis), (x,)):
            return at.emit(LogSoftmax(axis), x)
        case _:
            return None


def difference_of_log_sum(node: Node, at: Rewriter) -> Replacement:
    """``x - logsumexp(x)``."""
    if not isinstance(node.op, Sub):
        return None
    x, total = node.inputs
    inner = made_by(at, total, ReduceLogSumExp)
    axis = _one_axis(inner) if inner is not None and inner.inputs == (x,) else None
    return None if axis is None else at.emit(LogSoftmax(axis), x)
