"""Structure of ONNX graphs: unique names, defined operands, a topological order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from modelcc.ir.errors import ModelError


def label(node: NodeProto, position: int) -> str:
    """The user's name of a node, or its operator and position if it has none."""
    return node.name or f"{node.op_type}#{position}"


def labelled(nodes: Sequence[NodeProto]) -> list[tuple[str, NodeProto]]:
    """Nodes with their labels."""
    return [(label(n, i), n) for i, n in enumerate(nodes)]


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Graph attributes of ``node``."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def reads(node: NodeProto) -> list[str]:
    """Names a node reads, including those captured by its sub-graphs."""
    names = [n for n in node.input if n]
    if node.op_type == "Gradient":  # differentiates a value named by an attribute
        names += [a.s.decode("utf-8", "replace") for a in node.attribute if a.name == "y"]
    for graph in subgraphs(node):
        names.extend(_captured(graph))
    return list(dict.fromkeys(names))


def _captured(graph: GraphProto) -> list[str]:
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    names = [n for node in graph.node for n in reads(node)] + [o.name for o in graph.output]
    return [n for n in names if n not in own]


def check_unique(names: Sequence[str], what: str, where: str) -> None:
    """:class:`ModelError` if a name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(
                f"{what} {name!r} is defined twice", (where,), "every value needs its own name"
            )
        seen.add(name)


def ordered(
    nodes: Sequence[NodeProto], available: Collection[str], where: str
) -> list[tuple[str, NodeProto]]:
    """Labelled nodes in a topological order, the given one if it is one.

    ``available`` are the names defined outside.  :class:`ModelError` for a name that is defined
    twice or nowhere, or a cycle.
    """
    known = set(available)
    producers: dict[str, str] = {}
    for name, node in labelled(nodes):
        for output in filter(None, node.output):
            if output in producers or output in known:
                raise ModelError(
                    f"value {output!r} is defined twice", (name,), "every value needs its own name"
                )
            producers[output] = name
    result: list[tuple[str, NodeProto]] = []
    pending = labelled(nodes)
    while pending:
        waiting: list[tuple[str, NodeProto]] = []
        for name, node in pending:
            if all(n in known for n in reads(node)):
                result.append((name, node))
                known.update(filter(None, node.output))
            else:
                waiting.append((name, node))
        if len(waiting) == len(pending):
            raise _stuck(waiting, known, producers, where)
        pending = waiting
    return result


def _stuck(
    waiting: list[tuple[str, NodeProto]], known: set[str], producers: dict[str, str], where: str
) -> ModelError:
    for name, node in waiting:
        for missing in reads(node):
            if missing not in known and missing not in producers:
                return ModelError(
                    f"it reads {missing!r}, which nothing in {where} defines",
                    (name,),
                    "the model is incomplete; export it again",
                )
    cycle = _find_cycle(waiting, producers, known)
    return ModelError(
        f"nodes form a cycle: {' -> '.join(cycle)}", (where,), "an ONNX graph has no cycles"
    )


def _find_cycle(
    waiting: list[tuple[str, NodeProto]], producers: dict[str, str], known: set[str]
) -> list[str]:
    nodes = dict(waiting)
    path = [waiting[0][0]]
    while True:
        before = next(n for n in reads(nodes[path[-1]]) if n not in known)
        path.append(producers[before])
        if path[-1] in path[:-1]:
            return path[path.index(path[-1]) :][::-1]


DEEPEST_CALL = 100
"""Maximum call depth of functions, as in onnxruntime."""

MOST_NODES = 1 << 20
"""Maximum nodes of a function after inlining: a chain that calls twice each doubles them."""


def check_functions(functions: Sequence[FunctionProto], where: str) -> None:
    """:class:`ModelError` if a model-local function calls itself, directly or through others, or
    calls more than can be imported."""
    known = {(f.domain, f.name): f for f in functions}
    check_unique([f"{f.domain}.{f.name}:{f.overload}" for f in functions], "function", where)
    done: dict[tuple[str, str], _Size] = {}
    for key in known:
        _visit(key, known, (), done)


@dataclass(frozen=True)
class _Size:
    """Size of an inlined function: nodes, and call depth."""

    nodes: int
    depth: int


def _visit(
    key: tuple[str, str],
    known: dict[tuple[str, str], FunctionProto],
    path: tuple[tuple[str, str], ...],
    done: dict[tuple[str, str], _Size],
) -> _Size:
    if key in path:
        names = " -> ".join(f"{d}.{n}" for d, n in (*path[path.index(key) :], key))
        raise ModelError(f"functions call each other in a circle: {names}", (names.split(" ")[0],))
    if key in done:
        return done[key]
    nodes, depth, place = 0, 0, (".".join(key),)
    for node in called(known[key].node):
        name = (node.domain, node.op_type)
        is_call = name in known and len(path) < DEEPEST_CALL
        inner = _visit(name, known, (*path, key), done) if is_call else _Size(1, 0)
        nodes, depth = nodes + inner.nodes, max(depth, inner.depth + (name in known))
        if nodes > MOST_NODES:
            raise ModelError(f"with what it calls it has more than {MOST_NODES:,} nodes", place)
    if len(path) + depth >= DEEPEST_CALL:
        message = f"more than {DEEPEST_CALL} functions are called within each other"
        raise ModelError(message, place, "inline some of them")
    done[key] = _Size(nodes, depth)
    return done[key]


def called(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """All nodes, including those in sub-graphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from called(graph.node)
