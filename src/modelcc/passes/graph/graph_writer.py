"""Copies of graphs with other nodes among theirs."""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.builder import infer_types
from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.naming import Names
from modelcc.ir.op import Op
from modelcc.ir.types import Array, TensorType
from modelcc.passes.graph.dead_code import with_nodes


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

    def value(self, type: TensorType, name: str) -> str:
        """The name of a value to come, called after ``name``."""
        fresh = self.names.fresh(name)
        self.types[fresh] = type
        return fresh

    def constant(self, data: Array, name: str) -> str:
        """A constant called after ``name``."""
        found = Constant(data)
        fresh = self.value(found.type, name)
        self.constants[fresh] = found
        return fresh

    def graph(self) -> Graph:
        """What has been written, without constants and types that nothing needs."""
        whole = replace(self.source, types=self.types, constants=self.constants)
        return with_nodes(whole, tuple(self.nodes))
