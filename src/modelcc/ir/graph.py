"""Graph level: the dataflow DAG of ops on immutable, named tensors.

A value is a name; its type is in :attr:`Graph.types`.  Nodes are in topological order and every
name is assigned once (an input, a constant, or one node's result).  Names of graph inputs and
outputs are the user's and survive every pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from modelcc.ir.constant import Constant
from modelcc.ir.dimensions import bind_type
from modelcc.ir.index import DIM, Bounds, Index, Range, Sym, substitute, symbols
from modelcc.ir.op import Op
from modelcc.ir.structure import Interface
from modelcc.ir.types import TensorType


@dataclass(frozen=True)
class Node:
    """One application of an op.  ``""`` stands for an absent optional operand.

    ``source`` names the user's nodes it comes from (ONNX node names, torch code lines).
    """

    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A model or sub-graph.  ``dims`` bounds its named dimensions.

    ``interface`` gives the caller's view where that differs from inputs and outputs, and
    ``initial`` the states before the first call, unless they are zeros.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    dims: Bounds = field(default_factory=dict[str, Range])
    interface: Interface | None = None
    initial: Mapping[str, Constant] = field(default_factory=dict[str, Constant])

    def producers(self) -> dict[str, Node]:
        """Value name → the node that computes it."""
        return {name: node for node in self.nodes for name in node.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """Value name → nodes reading it, in order; unused values are absent."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    readers.setdefault(name, []).append(node)
        return readers

    def input_types(self, node: Node) -> tuple[TensorType | None, ...]:
        """Operand types of ``node``, None where an optional operand is absent."""
        return tuple(self.types[n] if n else None for n in node.inputs)

    def values(self) -> Iterator[str]:
        """Every value name, in definition order."""
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def with_nodes(self, nodes: tuple[Node, ...]) -> Graph:
        return replace(self, nodes=nodes)

    def substitute(self, values: Mapping[str, Index]) -> Graph:
        """The graph with named dimensions substituted, by numbers or by others."""
        if self.symbols.isdisjoint(values):
            return self
        nodes = tuple(replace(node, op=node.op.substitute(values)) for node in self.nodes)
        types = {name: bind_type(type, values) for name, type in self.types.items()}
        return replace(self, nodes=nodes, types=types, dims=_bound_dims(self.dims, values))

    @cached_property
    def binds(self) -> tuple[str, ...]:
        """Named dimensions that its nodes bind, those in sub-graphs left out."""
        return tuple(name for node in self.nodes for name in node.op.binds)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Named dimensions that types and attributes mention, or nodes bind."""
        shapes = (type.shape for type in self.types.values())
        found = frozenset(name for shape in shapes for e in shape for name in symbols(e))
        return found.union(self.binds, *(node.op.symbols() for node in self.nodes))

    def __hash__(self) -> int:
        return hash((self.name, self.inputs, self.outputs, self.nodes))


def _bound_dims(dims: Bounds, values: Mapping[str, Index]) -> dict[str, Range]:
    result: dict[str, Range] = {}
    for name, known in dims.items():
        new = values.get(name, Sym(name))
        ends = (None if e is None else substitute(e, values) for e in (known.lo, known.hi))
        for fresh in symbols(new):
            result[fresh] = Range(*ends) if isinstance(new, Sym) else dims.get(fresh, DIM)
    return result
