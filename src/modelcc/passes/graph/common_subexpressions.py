"""Common subexpression elimination."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.op import Op
from modelcc.passes.graph.dead_code import with_nodes


@dataclass(frozen=True)
class CommonSubexpressions:
    """Of pure nodes with equal ops and operands only the first is kept.

    Results that are graph outputs keep a node of their own, since their names are the user's.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %a = "mcc.Exp"(%x)
          %b = "mcc.Exp"(%x)
          %y = "mcc.Add"(%a, %b)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %a = "mcc.Exp"(%x)
          %y = "mcc.Add"(%a, %a)
          "mcc.return"(%y)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        names = _equal_constants(graph)
        first: dict[tuple[Op, tuple[str, ...]], Node] = {}
        outputs = frozenset(graph.outputs)
        nodes: list[Node] = []
        for node in graph.nodes:
            inputs = tuple(names.get(n, n) for n in node.inputs)
            node = node if inputs == node.inputs else replace(node, inputs=inputs)
            earlier = first.setdefault((node.op, inputs), node) if node.op.pure else node
            if earlier is not node:
                names.update(zip(node.outputs, earlier.outputs, strict=True))
            if earlier is node or not outputs.isdisjoint(node.outputs):
                nodes.append(node)
        return with_nodes(graph, tuple(nodes))


def _equal_constants(graph: Graph) -> dict[str, str]:
    """Names of constants with the same content as an earlier one."""
    first: dict[Constant, str] = {}
    names: dict[str, str] = {}
    alike: dict[object, list[str]] = {}
    for name, constant in graph.constants.items():
        alike.setdefault(constant.sample, []).append(name)
    for group in alike.values():
        for name in group if len(group) > 1 else ():
            kept = first.setdefault(graph.constants[name], name)
            if kept != name and name not in graph.outputs:
                names[name] = kept
    return names
