"""Builds modified copies of graphs."""

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
    """A copy of a graph under construction, whose values keep their names."""

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.names = Names(graph.types)
        self.nodes: list[Node] = []

    def emit(self, op: Op, *inputs: str, source: tuple[str, ...] = (), name: str = "") -> str:
        """Appends a node with one result; returns its name."""
        (made,) = infer_types(op, [self.types[n] if n else None for n in inputs], *source)
        result = name or self.names.fresh(f"{inputs[0]}_{type(op).__name__.lower()}")
        self.types[result] = made
        self.nodes.append(Node(op, inputs, (result,), source))
        return result

    def append(self, node: Node) -> None:
        """Appends a node whose results have names and types already, here or in the graph."""
        self.nodes.append(node)

    def value(self, type: TensorType, name: str) -> str:
        """A fresh name for a future value, derived from ``name``."""
        fresh = self.names.fresh(name)
        self.types[fresh] = type
        return fresh

    def constant(self, data: Array, name: str) -> str:
        """A constant with a fresh name, derived from ``name``."""
        found = Constant(data)
        fresh = self.value(found.type, name)
        self.constants[fresh] = found
        return fresh

    def graph(self) -> Graph:
        """The new graph, without unused constants and types."""
        whole = replace(self.source, types=self.types, constants=self.constants)
        return with_nodes(whole, tuple(self.nodes))
