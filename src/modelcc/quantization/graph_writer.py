"""Copies of graphs with other nodes among theirs."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from modelcc.ir.builder import infer_types
from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.naming import Names
from modelcc.ir.op import Op
from modelcc.ir.types import Array


class GraphWriter:
    """A copy of a graph in the making, whose values keep their names."""

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.names = Names(graph.types)
        self.nodes: list[Node] = []

    def emit(self, op: Op, *inputs: str, source: tuple[str, ...] = (), name: str = "") -> str:
        """Append a node of one result; the name of that."""
        (made,) = infer_types(op, [self.types[n] if n else None for n in inputs], *source)
        result = name or self.names.fresh(f"{inputs[0]}_{type(op).__name__.lower()}")
        self.types[result] = made
        self.nodes.append(Node(op, inputs, (result,), source))
        return result

    def append(self, node: Node) -> None:
        """A node whose results have their names and types already, or those of the graph."""
        self.nodes.append(node)

    def constant(self, data: Array, name: str) -> str:
        """A constant called after ``name``."""
        found = Constant(data)
        fresh = self.names.fresh(name)
        self.types[fresh], self.constants[fresh] = found.type, found
        return fresh

    def graph(self) -> Graph:
        """What has been written, without constants that nothing reads."""
        read = {name for node in self.nodes for name in node.inputs}.union(self.source.outputs)
        constants = {name: c for name, c in self.constants.items() if name in read}
        made = (name for node in self.nodes for name in node.outputs)
        kept = (*self.source.inputs, *constants, *made)
        return replace(
            self.source,
            nodes=tuple(self.nodes),
            types=MappingProxyType({name: self.types[name] for name in kept}),
            constants=MappingProxyType(constants),
        )
