"""Rematerialisation: values of the forward pass that the backward pass recomputes to save memory.

Griewank & Walther, "Evaluating Derivatives" (2008), chapter 12; Chen et al., "Training deep nets
with sublinear memory cost" (2016).  Values are chosen greedily, by bytes freed per repeated
operation.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from types import MappingProxyType

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index, evaluate
from modelcc.ir.naming import Names
from modelcc.ir.types import TensorType
from modelcc.ops.attention import Attention
from modelcc.ops.control import Control, Loop
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.differentiation import After
from modelcc.ops.matmul import Einsum, Gemm, MatMul

UNKNOWN = 32
"""Assumed value of named dimensions."""


@dataclass(frozen=True)
class Lifetimes:
    """Definitions and uses of a graph's values, by positions of nodes.

    ``kept`` are inputs and constants, which are always live.
    """

    graph: Graph

    @cached_property
    def made(self) -> Mapping[str, int]:
        """Position of the node that defines a value."""
        return {name: i for i, node in enumerate(self.graph.nodes) for name in node.outputs}

    @cached_property
    def read(self) -> Mapping[str, Sequence[int]]:
        """Positions of the nodes that read a value, in order."""
        found: dict[str, list[int]] = {}
        for i, node in enumerate(self.graph.nodes):
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(i)
        return found

    @cached_property
    def kept(self) -> frozenset[str]:
        """Values that are always live."""
        return frozenset((*self.graph.inputs, *self.graph.constants, ""))

    def size(self, name: str) -> int:
        """Bytes of a value."""
        return size_of(self.graph.types[name])

    @cached_property
    def boundary(self) -> int:
        """The position after which most bytes are live: where the forward pass ends."""
        change = [0] * (len(self.graph.nodes) + 1)
        for name, start in self.made.items():
            end = max(self.read.get(name, (start,)))
            change[start] += self.size(name)
            change[end] -= self.size(name)
        live, most, place = 0, -1, 0
        for i, step in enumerate(change):
            live += step
            if live > most:
                most, place = live, i
        return place

    @cached_property
    def candidates(self) -> list[str]:
        """Values defined before the boundary and read after it."""
        return [name for name in self.made if name not in self.graph.outputs and self.is_late(name)]

    def is_late(self, name: str) -> bool:
        """Whether a value is live at the boundary, and read after it."""
        if name in self.kept or self.made[name] > self.boundary:
            return False
        return max(self.read.get(name, (0,))) > self.boundary


def size_of(type: TensorType) -> int:
    """Bytes of a tensor; named dimensions are assumed to be :data:`UNKNOWN`."""
    return prod(map(_extent, type.shape)) * type.dtype.bytes


def _extent(extent: Index) -> int:
    if isinstance(extent, int):
        return extent
    return max(1, evaluate(extent, dict.fromkeys(extent.symbols, UNKNOWN)))


def work(graph: Graph, node: Node) -> float:
    """Operations of a node: multiply-adds count twice, others by elements read and written."""
    shapes = [tuple(map(_extent, graph.types[n].shape)) for n in node.inputs if n]
    results = sum(prod(map(_extent, graph.types[n].shape)) for n in node.outputs)
    match node.op:
        case MatMul() | Gemm():
            turned = isinstance(node.op, Gemm) and node.op.trans_a
            return 2.0 * results * shapes[0][-2 if turned else -1]
        case Conv():
            return 2.0 * results * prod(shapes[1][1:])
        case ConvTranspose():
            return 2.0 * prod(shapes[0]) * prod(shapes[1][1:])
        case Attention():
            return 4.0 * prod(shapes[0]) * shapes[1][-2]
        case Einsum():
            return 2.0 * prod(map(prod, shapes)) ** (2 / 3)
        case Loop(body=body, trips=trips):
            return (_extent(trips) if trips is not None else UNKNOWN) * _inside(body)
        case Control():
            return sum(map(_inside, node.op.graphs().values()))
        case _:
            return float(results + sum(map(prod, shapes)))


def _inside(body: Graph) -> float:
    return sum(work(body, node) for node in body.nodes)


@dataclass(frozen=True)
class Recomputation:
    """A value to recompute: the node that defines it, the bytes that this frees, and the
    operations."""

    name: str
    type: TensorType
    node: Node
    bytes: int
    work: float


def ranked(graph: Graph) -> list[Recomputation]:
    """All values that can be recomputed, the most bytes per operation first.

    The work of one includes that of its operands, if those ranked before it are not kept, either.
    """
    lives = Lifetimes(graph)
    chosen: set[str] = set()
    order: list[Recomputation] = []
    queue = [_entry(lives, name, chosen) for name in lives.candidates]
    heapq.heapify(queue)
    while queue:
        name = heapq.heappop(queue)[2]
        entry = _entry(lives, name, chosen)  # operands may have been chosen since
        if queue and entry > queue[0]:
            heapq.heappush(queue, entry)
            continue
        if entry[0] == inf:
            break
        chosen.add(name)
        node = graph.nodes[lives.made[name]]
        order.append(Recomputation(name, graph.types[name], node, lives.size(name), entry[3]))
    return order


def _entry(lives: Lifetimes, name: str, chosen: Collection[str]) -> tuple[float, int, str, float]:
    """Sort key of candidates: operations per byte, then position."""
    nodes = cone(lives, (name,), {*chosen, name})
    total = inf if nodes is None else sum(work(lives.graph, lives.graph.nodes[i]) for i in nodes)
    return total / max(1, lives.size(name)), lives.made[name], name, total


def cone(lives: Lifetimes, names: Sequence[str], chosen: Collection[str]) -> list[int] | None:
    """Positions of the nodes that compute ``names`` from kept values; None if one of them is random
    or reads a size."""
    found: set[int] = set()
    stack = list(names)
    while stack:
        position = lives.made[stack.pop()]
        if position in found:
            continue
        node = lives.graph.nodes[position]
        if not node.op.pure or node.op.binds or node.op.required:
            return None
        found.add(position)
        stack += [n for n in node.inputs if n not in lives.kept and not _is_there(lives, n, chosen)]
    return sorted(found)


def _is_there(lives: Lifetimes, name: str, chosen: Collection[str]) -> bool:
    return name not in chosen and lives.is_late(name)


def recomputed(graph: Graph, names: Collection[str]) -> Graph:
    """``graph`` where readers after the boundary get ``names`` recomputed, just before them.

    Recomputed nodes depend on a value of the backward pass (:class:`After`), so that they are not
    merged with the original ones.
    """
    return _Rewritten(graph, frozenset(names)).result() if names else graph


class _Rewritten:
    """A graph under construction; ``late`` are the names of values after the boundary."""

    def __init__(self, graph: Graph, chosen: frozenset[str]) -> None:
        self.lives, self.graph, self.chosen = Lifetimes(graph), graph, chosen
        self.names = Names(graph.types)
        self.types = dict(graph.types)
        self.nodes: list[Node] = []
        self.late: dict[str, str] = {}
        self.held: dict[str, str] = {}
        self.token = ""

    def result(self) -> Graph:
        """The complete graph."""
        for position, node in enumerate(self.graph.nodes):
            if position > self.lives.boundary:
                self._make(node)
                inputs = tuple(self.late.get(n, n) for n in node.inputs)
                node = node if inputs == node.inputs else replace(node, inputs=inputs)
                self.token = node.outputs[0]
            self.nodes.append(node)
        types = MappingProxyType(self.types)
        return replace(self.graph, nodes=tuple(self.nodes), types=types)

    def _make(self, node: Node) -> None:
        """Recomputes operands of ``node`` that were not kept."""
        wanted = [n for n in node.inputs if n in self.chosen and n not in self.late]
        own = [n for n in node.inputs if self.lives.made.get(n, -1) > self.lives.boundary]
        self.token = own[0] if own else self.token
        if not wanted or not self.token:
            return
        for position in cone(self.lives, wanted, self.chosen) or ():
            source = self.graph.nodes[position]
            if all(n in self.late for n in source.outputs):
                continue
            inputs = tuple(map(self._before, source.inputs))
            fresh = tuple(map(self._fresh, source.outputs))
            self.nodes.append(replace(source, inputs=inputs, outputs=fresh))
            self.late |= dict(zip(source.outputs, fresh, strict=True))

    def _before(self, name: str) -> str:
        """An operand of a recomputed node."""
        if name in self.late or name in self.graph.constants or not name:
            return self.late.get(name, name)
        if name not in self.held:
            self.held[name] = self._fresh(name)
            self.nodes.append(Node(After(), (name, self.token), (self.held[name],)))
        return self.held[name]

    def _fresh(self, name: str) -> str:
        fresh = self.names.fresh(f"{name}_again")
        self.types[fresh] = self.graph.types[name].with_layout(None)
        return fresh
