"""Dead code elimination."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import symbols


@dataclass(frozen=True)
class DeadCode:
    """Removes nodes and constants that no graph output depends on; graph inputs stay.

    Shapes depend on nodes that read their sizes from memory.

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
        sizes = _symbols(graph, graph.outputs)
        nodes: list[Node] = []
        for node in reversed(graph.nodes):
            read = not needed.isdisjoint(node.outputs) or not sizes.isdisjoint(node.op.binds)
            if read or node.op.required:
                nodes.append(node)
                needed.update(n for n in node.inputs if n)
                sizes |= _symbols(graph, (*filter(None, node.inputs), *node.outputs))
                sizes |= {*node.op.symbols(), *_in_bounds(graph, node.op.binds)}
        return with_nodes(graph, tuple(reversed(nodes)))


def _symbols(graph: Graph, names: Iterable[str]) -> set[str]:
    """Symbols in the types of values, and in the bounds of these symbols."""
    mentioned = {s for name in names for extent in graph.types[name].shape for s in symbols(extent)}
    return mentioned | _in_bounds(graph, mentioned)


def _in_bounds(graph: Graph, names: Iterable[str]) -> set[str]:
    ranges = [graph.dims[name] for name in names if name in graph.dims]
    ends = [end for bounds in ranges for end in (bounds.lo, bounds.hi) if end is not None]
    return {name for end in ends for name in symbols(end)}


def with_nodes(graph: Graph, nodes: tuple[Node, ...]) -> Graph:
    """``graph`` with only these nodes, and the constants and types that they need."""
    read = {n for node in nodes for n in node.inputs} | set(graph.outputs)
    constants = {n: c for n, c in graph.constants.items() if n in read}
    kept = (*graph.inputs, *constants, *(n for node in nodes for n in node.outputs))
    return replace(
        graph,
        nodes=nodes,
        types=MappingProxyType({n: graph.types[n] for n in kept}),
        constants=MappingProxyType(constants),
    )
