"""Constraints on sizes: none is negative, and data-dependent tensors can be stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from modelcc.ir.condition import Constraint
from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Bounds, Index, Range, Sym, bounds_of, symbols
from modelcc.ir.naming import Names
from modelcc.ir.types import I64, MOST_BYTES, TensorType
from modelcc.ops.control import Control, Loop
from modelcc.ops.runtime_size import ReadSize

FARTHEST = 1 << 48
"""The greatest size, step or distance; small multiples of a few of them fit into 64 bits."""


@dataclass(frozen=True)
class AssertSizes:
    """Asserts that each extent that may be negative is not, and that values with data-dependent
    extents can be stored: 2^47 bytes at most.  Numbers read as sizes are 2^48 at most, so that
    index expressions of them do not overflow 64 bits.

    Constraints precede the definition of a value, so a branch that is not taken asserts nothing.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<?xf32, ["n"]>, %y: tensor<?xf32, ["m"]>):
          %z = "mcc.Slice"(%x)
              {starts = [#mcc.index<"m">], extents = [#mcc.index<"n - m">], steps = [1]}
          "mcc.return"(%z)
        }) {name = "main", dims = {n = [0, unit], m = [0, unit]}} : () -> ()

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<?xf32, ["n"]>, %y: tensor<?xf32, ["m"]>):
          %nothing = "mcc.constant"() {digest = "nothing"} : () -> tensor<0xi64>
          %checked = "mcc.ReadSize"(%nothing)
              {names = [], constraints = [[#mcc.index<"n - m">, ">=", 0]]}
          %z = "mcc.Slice"(%x)
              {starts = [#mcc.index<"m">], extents = [#mcc.index<"n - m">], steps = [1]}
          "mcc.return"(%z)
        }) {name = "main", dims = {n = [0, unit], m = [0, unit]}} : () -> ()
    """

    def __call__(self, graph: Graph) -> Graph:
        return _asserting(graph, _Facts({}, frozenset(), frozenset()))


@dataclass(frozen=True)
class _Facts:
    """Facts about sizes at a point: bounds, data-dependent symbols, constraints that are met."""

    dims: Bounds
    dynamic: frozenset[str]
    met: frozenset[Constraint]
    proved: dict[str, bool] = field(default_factory=dict[str, bool])

    def inside(self, graph: Graph, met: frozenset[Constraint] = frozenset()) -> _Facts:
        """The facts in ``graph``, a body at this point."""
        read = {name for node in graph.nodes for name in node.op.binds}
        return _Facts({**self.dims, **graph.dims}, self.dynamic | read, self.met | met)

    def is_size(self, extent: Index) -> bool:
        """Whether ``extent`` is proved not to be negative."""
        if isinstance(extent, int):
            return True
        if extent.text not in self.proved:
            low = bounds_of(extent, self.dims).lo
            self.proved[extent.text] = low is not None and low >= 0
        return self.proved[extent.text]


def _asserting(graph: Graph, outer: _Facts) -> Graph:
    facts = outer.inside(graph)
    if all(isinstance(e, int) for t in graph.types.values() for e in t.shape):
        facts = replace(facts, dynamic=frozenset())
    met: set[Constraint] = set(facts.met)
    nodes: list[Node] = []
    names = Names(graph.types)
    nothing = ""
    types: dict[str, TensorType] = {}
    for node in graph.nodes:
        if isinstance(node.op, ReadSize):
            met.update(node.op.constraints)
        found = _new(node, graph, facts, met)
        made = _with_bodies(node, facts, frozenset(met))
        if not found:
            nodes.append(made)
            continue
        nothing = nothing or names.fresh("nothing")
        checked = names.fresh("checked")
        types[checked] = _NOTHING.type
        constraint = Node(ReadSize((), found), (nothing,), (checked,), node.source)
        nodes += [made, constraint] if node.op.binds else [constraint, made]
    if not nothing:
        return graph.with_nodes(tuple(nodes)) if nodes != list(graph.nodes) else graph
    return replace(
        graph,
        nodes=tuple(nodes),
        types=MappingProxyType({**graph.types, nothing: _NOTHING.type, **types}),
        constants=MappingProxyType({**graph.constants, nothing: _NOTHING}),
    )


_NOTHING = Constant(np.zeros(0, I64.numpy))


def _with_bodies(node: Node, facts: _Facts, met: frozenset[Constraint]) -> Node:
    if not isinstance(node.op, Control):
        return node
    inside = facts
    if isinstance(node.op, Loop):
        last = None if node.op.trips is None else node.op.trips - 1
        counted = {**facts.dims, node.op.counter: Range(0, last)}
        inside = replace(facts, dims=counted, dynamic=facts.dynamic | {node.op.counter}, proved={})
    inside = replace(inside, met=met)
    old = node.op.graphs()
    new: Mapping[str, Graph] = {name: _asserting(body, inside) for name, body in old.items()}
    if all(new[name] is body for name, body in old.items()):
        return node
    return replace(node, op=replace(node.op, **new))  # type: ignore[type-var]


def _new(node: Node, graph: Graph, facts: _Facts, met: set[Constraint]) -> tuple[Constraint, ...]:
    """Constraints of ``node`` that are not in ``met`` yet; they are added to it."""
    constraints = [d for d in dict.fromkeys(_constraints(node, graph, facts)) if d not in met]
    met.update(constraints)
    return tuple(constraints)


def _constraints(node: Node, graph: Graph, facts: _Facts) -> Iterator[Constraint]:
    for name in node.op.binds:
        bounds = facts.dims[name]
        if bounds.hi is None:
            yield Sym(name), "<=", FARTHEST
        if bounds.lo is None:
            yield Sym(name), ">=", -FARTHEST
    for name in node.outputs:
        type = graph.types[name]
        if type.is_static:
            continue
        for extent in type.shape:
            if not facts.is_size(extent):
                yield extent, ">=", 0
        if any(symbols(extent) & facts.dynamic for extent in type.shape):
            room = type.room
            high = bounds_of(room, facts.dims).hi
            if high is None or high > MOST_BYTES:
                yield room, "<=", MOST_BYTES
