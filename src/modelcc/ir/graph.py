"""Graph level: the dataflow DAG of ops on immutable, named tensors.

A value is a name; its type is in :attr:`Graph.types`.  Nodes are in topological order and every
name is assigned once (an input, a constant, or one node's result).  Names of graph inputs and
outputs are the user's and survive every pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.index import DIM, Bounds, Index, Range, Sym, substitute, symbols
from modelcc.ir.mapped import CHUNK, copy_bytes, release_pages
from modelcc.ir.op import Op
from modelcc.ir.structure import Interface
from modelcc.ir.types import Array, TensorType, dtype_of

Sample: TypeAlias = tuple[str, tuple[int, ...], bytes]
"""Element type, shape and some of the elements of a constant."""

SAMPLES = 16


class Constant:
    """Handle to constant data (in memory or memory-mapped), compared by content digest."""

    def __init__(self, data: Array) -> None:
        self._data = data

    def __repr__(self) -> str:
        return f"Constant({self.type})"

    @property
    def data(self) -> Array:
        """The elements."""
        return self._data

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._data.nbytes

    def part(self, axis: int, start: int, stop: int) -> Array:
        """The elements at ``start`` to ``stop`` along ``axis``, or to its end if that is less."""
        return self.data[(*(slice(None),) * axis, slice(start, stop))]

    def write(self, target: NDArray[np.uint8]) -> None:
        """Copy the elements' bytes, in row-major order, to ``target``."""
        copy_bytes(target, self._data)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of dtype, shape and bytes (of the elements' text for strings)."""
        data = self.data
        h = hashlib.sha256(f"{dtype_of(data)}{data.shape}".encode())
        if data.dtype == object:
            h.update(repr(data.tolist()).encode())
        else:
            h.update(np.ascontiguousarray(data).view(np.uint8).data)
            if data.nbytes >= CHUNK:
                release_pages(data)
        return h.hexdigest()

    @cached_property
    def sample(self) -> Sample:
        """What is compared first: if it differs, so does the digest."""
        data = self.data
        step = max(1, data.size // SAMPLES)
        some = data.flat[::step] if data.size else data
        content = repr(some.tolist()).encode() if data.dtype == object else some.tobytes()
        if data.nbytes >= CHUNK:
            release_pages(data)  # systems read much around what is asked for
        return str(dtype_of(data)), data.shape, content

    @property
    def type(self) -> TensorType:
        return TensorType(tuple(self._data.shape), dtype_of(self._data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and (
            other.data is self.data or other.digest == self.digest
        )

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True)
class Node:
    """One application of an op.  ``""`` stands for an absent optional operand.

    ``source`` names the user's nodes it stems from (ONNX node names, torch code lines).
    """

    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A model or sub-graph.  ``dims`` bounds its named dimensions.

    ``interface`` tells what the caller sees, where that is not inputs and outputs as they are.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    dims: Bounds = field(default_factory=dict[str, Range])
    interface: Interface | None = None

    def producers(self) -> dict[str, Node]:
        """Value name → the node that makes it."""
        return {name: node for node in self.nodes for name in node.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """Value name → nodes reading it, in order; a value nobody reads is absent."""
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
        """The graph with named dimensions replaced, by numbers or by others."""
        if self.symbols.isdisjoint(values):
            return self
        nodes = tuple(replace(node, op=node.op.substitute(values)) for node in self.nodes)
        types = {name: _bound(type, values) for name, type in self.types.items()}
        return replace(self, nodes=nodes, types=types, dims=_bound_dims(self.dims, values))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Named dimensions that types and attributes mention."""
        found = {n for type in self.types.values() for e in type.shape for n in symbols(e)}
        return frozenset(found.union(*(node.op.symbols() for node in self.nodes)))

    def __hash__(self) -> int:
        return hash((self.name, self.inputs, self.outputs, self.nodes))


def _bound(type: TensorType, values: Mapping[str, Index]) -> TensorType:
    return replace(type, shape=tuple(substitute(e, values) for e in type.shape))


def _bound_dims(dims: Bounds, values: Mapping[str, Index]) -> dict[str, Range]:
    result: dict[str, Range] = {}
    for name, known in dims.items():
        new = values.get(name, Sym(name))
        ends = (None if e is None else substitute(e, values) for e in (known.lo, known.hi))
        for fresh in symbols(new):
            result[fresh] = Range(*ends) if isinstance(new, Sym) else dims.get(fresh, DIM)
    return result
