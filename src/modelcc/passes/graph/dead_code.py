"""Removal of what no output needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from modelcc.ir.graph import Graph, Node


@dataclass(frozen=True)
class DeadCode:
    """Nodes and constants that no graph output depends on go; graph inputs stay.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %c = "mcc.constant"() {digest = "c"} : () -> tensor<3xf32>
          %a = "mcc.Add"(%x, %c)
          %b = "mcc.Exp"(%a)
          %y = "mcc.Tanh"(%x)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %y = "mcc.Tanh"(%x)
          "mcc.return"(%y)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        needed = set(graph.outputs)
        nodes: list[Node] = []
        for node in reversed(graph.nodes):
            if not needed.isdisjoint(node.outputs):
                nodes.append(node)
                needed.update(n for n in node.inputs if n)
        return with_nodes(graph, tuple(reversed(nodes)))


def with_nodes(graph: Graph, nodes: tuple[Node, ...]) -> Graph:
    """``graph`` with these nodes only, and only the constants and types that they need."""
    read = {n for node in nodes for n in node.inputs} | set(graph.outputs)
    constants = {n: c for n, c in graph.constants.items() if n in read}
    kept = (*graph.inputs, *constants, *(n for node in nodes for n in node.outputs))
    return replace(
        graph,
        nodes=nodes,
        types=MappingProxyType({n: graph.types[n] for n in kept}),
        constants=MappingProxyType(constants),
    )
