"""Checks that a graph is well formed: names, order, types, constants, named dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import fields, is_dataclass

from modelcc.ir.builder import infer_types
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_states import verify_graph_states
from modelcc.ir.index import Expr, symbols
from modelcc.ir.op import is_items


def verify_graph(
    graph: Graph, outer: frozenset[str] = frozenset(), before: Graph | None = None
) -> None:
    """Raise :class:`ModelError` naming the first node or value that breaks a rule of graphs.

    ``outer`` are symbols that an enclosing graph bounds (sub-graphs of control flow).  ``before``
    is a graph that is known to be well formed: local rules are not checked again for nodes that it
    has as well, with values of the same types.
    """
    known = outer | graph.dims.keys()
    settled = _settled(graph, before)
    defined = _verify_roots(graph)
    later = {name for node in graph.nodes for name in node.outputs}
    for node in graph.nodes:
        _verify_operands(graph, node, defined, later)
        _verify_results(graph, node, defined)
        if id(node) in settled:
            continue
        _verify_types(graph, node)
        for name in node.outputs:
            _verify_symbols(f"type of value {name!r}", graph.types[name].shape, known, node)
        _verify_attributes(node, known)
    for name in graph.outputs:
        if name not in defined:
            raise ModelError(f"graph output {name!r} is not computed by any node", (graph.name,))
    spare = sorted(graph.types.keys() - defined)
    if spare:
        raise ModelError(f"there is a type for {spare[0]!r}, which is no value", (graph.name,))
    verify_graph_states(graph)


def _settled(graph: Graph, before: Graph | None) -> frozenset[int]:
    """Nodes of ``graph``, by identity, that are the same in ``before``."""
    if before is None or before.dims != graph.dims:
        return frozenset()
    old, new = before.types, graph.types
    changed = {name for name, type in new.items() if old.get(name) != type}
    nodes = {id(node) for node in before.nodes}
    return frozenset(
        id(node)
        for node in graph.nodes
        if id(node) in nodes
        and changed.isdisjoint(node.inputs)
        and changed.isdisjoint(node.outputs)
    )


def node_place(node: Node) -> tuple[str, ...]:
    """Location of ``node`` for messages: the user's names, else its first result."""
    return node.source or tuple(f"{node.op.mnemonic()} {n!r}" for n in node.outputs[:1])


def _verify_roots(graph: Graph) -> set[str]:
    defined: set[str] = set()
    for name in (*graph.inputs, *graph.constants):
        _define(graph, name, defined, (graph.name,))
    for name in graph.inputs:
        shape = graph.types[name].shape
        _verify_symbols(f"type of input {name!r}", shape, graph.dims.keys(), None)
    for name, constant in graph.constants.items():
        if not constant.type == graph.types[name].with_layout(None):
            raise ModelError(
                f"constant {name!r} holds {constant.type} but its type is {graph.types[name]}",
                (graph.name,),
            )
    return defined


def _define(graph: Graph, name: str, defined: set[str], place: tuple[str, ...]) -> None:
    if not name:
        raise ModelError("a value has an empty name", place)
    if name in defined:
        raise ModelError(f"value {name!r} is defined twice", place)
    if name not in graph.types:
        raise ModelError(f"value {name!r} has no type", place)
    defined.add(name)


def _verify_operands(graph: Graph, node: Node, defined: set[str], later: set[str]) -> None:
    for name in node.inputs:
        if not name or name in defined:
            continue
        if name in later:
            raise ModelError(
                f"{node.op.mnemonic()} reads {name!r} before it is computed",
                node_place(node),
                "nodes must be in topological order, without cycles",
            )
        message = f"{node.op.mnemonic()} reads {name!r}, which is no value of {graph.name!r}"
        raise ModelError(message, node_place(node))


def _verify_results(graph: Graph, node: Node, defined: set[str]) -> None:
    for name in node.outputs:
        _define(graph, name, defined, node_place(node))


def _verify_types(graph: Graph, node: Node) -> None:
    place = node_place(node)
    operands = [t and t.with_layout(None) for t in graph.input_types(node)]
    inferred = infer_types(node.op, operands, *place)
    if len(inferred) != len(node.outputs):
        message = f"{node.op.mnemonic()} has {len(inferred)} results, not {len(node.outputs)}"
        raise ModelError(message, place)
    for name, type in zip(node.outputs, inferred, strict=True):
        if graph.types[name].with_layout(None) != type.with_layout(None):
            raise ModelError(
                f"value {name!r} is {type} by the rule of {node.op.mnemonic()}, "
                f"but its type says {graph.types[name]}",
                place,
            )


def _verify_attributes(node: Node, known: Set[str]) -> None:
    if not is_dataclass(node.op):
        raise ModelError(f"{node.op.mnemonic()} is not a dataclass", node_place(node))
    for field in fields(node.op):
        value = getattr(node.op, field.name)
        _verify_symbols(f"attribute {field.name!r}", _indices(value), known, node)
        if isinstance(value, Graph):
            verify_graph(value, frozenset(known))


def _indices(value: object) -> Iterable[Expr]:
    if isinstance(value, Expr):
        yield value
    elif is_items(value):
        for item in value:
            yield from _indices(item)


def _verify_symbols(what: str, dims: Iterable[object], known: Set[str], node: Node | None) -> None:
    for dim in dims:
        if isinstance(dim, Expr) and not symbols(dim) <= known:
            unknown = min(symbols(dim) - known)
            raise ModelError(
                f"{what} uses the named dimension {unknown!r}, which has no bounds",
                node_place(node) if node else (),
                f"add {unknown!r} to the graph's dims, e.g. with a range from 1 upwards",
            )
