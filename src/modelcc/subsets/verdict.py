"""Supported operators of a model, and their share of its multiplications."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from modelcc.frontends.tflite.module import TfliteModel
from modelcc.subsets.limits import kernel
from modelcc.subsets.subset import Subset
from modelcc.subsets.view import OperatorView, shape_of, view_of


@dataclass(frozen=True)
class NodeVerdict:
    """An operator by number and first result: supported if there are no objections.

    ``reasons`` are the violated constraints, ``changes`` changes of the model that would help, and
    ``rewrite`` the exact rewrite after which it is supported.  ``behind``: the only objection is
    that it comes after an unsupported one.
    """

    subgraph: int
    index: int
    operator: str
    result: str
    macs: int
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    rewrite: str = ""
    behind: bool = False

    @property
    def taken(self) -> bool:
        """Whether it runs there."""
        return not self.reasons


@dataclass(frozen=True)
class SubsetReport:
    """The verdicts on a model's operators, in execution order."""

    model: str
    subset: Subset
    nodes: tuple[NodeVerdict, ...]

    @property
    def taken(self) -> int:
        """The number of supported operators."""
        return sum(node.taken for node in self.nodes)

    @property
    def macs(self) -> tuple[int, int]:
        """Multiplications of the supported operators, and of all."""
        return sum(n.macs for n in self.nodes if n.taken), sum(n.macs for n in self.nodes)

    @property
    def partitions(self) -> int:
        """The number of maximal runs of supported operators."""
        found = groupby(self.nodes, lambda node: (node.subgraph, node.taken))
        return sum(taken for (_, taken), _ in found)


def check_model(model: TfliteModel, subset: Subset) -> SubsetReport:
    """The verdicts of ``subset`` on ``model``."""
    nodes: list[NodeVerdict] = []
    for number, subgraph in enumerate(model.subgraphs):
        views = (view_of(op, subgraph) for op in subgraph.operators)
        found = [_node(view, number, subset) for view in views]
        nodes += _first_partition(found) if subset.one_partition else found
    return SubsetReport(model.name, subset, tuple(nodes))


def objections(view: OperatorView, subset: Subset) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Violated constraints of an operator, and changes that would help."""
    limits = subset.operators.get(view.name)
    if limits is None:
        instead = subset.absent.get(view.name, "")
        reason = f"{subset.name} has no {view.name}"
        return (reason,), ((instead,) if instead else ())
    found = [(words, limit.change) for limit in limits if (words := limit.broken(view))]
    reasons = tuple(dict.fromkeys(words for words, _ in found))
    return reasons, tuple(dict.fromkeys(change for _, change in found if change))


def _node(view: OperatorView, subgraph: int, subset: Subset) -> NodeVerdict:
    reasons, changes = objections(view, subset)
    operator = view.operator
    result = view.outputs[0].name if view.outputs else ""
    macs = multiplications(view)
    return NodeVerdict(subgraph, operator.index, view.name, result, macs, reasons, changes)


def _first_partition(nodes: Iterable[NodeVerdict]) -> list[NodeVerdict]:
    """Nothing after the first unsupported operator is supported; operators that quantize the
    model's floats are before the partition."""
    found: list[NodeVerdict] = []
    stop, begun = "", False
    for node in nodes:
        if stop and node.taken:
            found.append(replace(node, reasons=(f"it comes after {stop}",), behind=True))
            continue
        begun = begun or node.operator != "QUANTIZE"
        if not node.taken and not stop and begun:
            stop = f"{node.index} {node.operator} {node.result!r}, and there is one partition"
        found.append(node)
    return found


def multiplications(view: OperatorView) -> int:
    """Multiply-accumulates of convolutions and matrix products; 0 for others."""
    result = math.prod(abs(size) for size in shape_of(view.outputs[0])) if view.outputs else 0
    match view.name:
        case "CONV_2D":
            return result * math.prod(shape_of(view.input(1))[1:])
        case "DEPTHWISE_CONV_2D":
            return result * math.prod(kernel(view))
        case "FULLY_CONNECTED" | "BATCH_MATMUL":
            return result * math.prod(shape_of(view.input(0))[-1:])
        case "TRANSPOSE_CONV":
            own = math.prod(abs(size) for size in shape_of(view.data))
            return own * math.prod(kernel(view)) * math.prod(shape_of(view.outputs[0])[-1:])
        case _:
            return 0
