"""Pending nodes in topological order, and as a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.op import Op
from modelcc.ops.arithmetic import Identity
from modelcc.tensor.lazy import (
    Alias,
    Kind,
    Lazy,
    Placeholder,
    Projection,
    TracingError,
    callers_line,
)


def pending(wanted: Iterable[Kind]) -> list[Kind]:
    """``wanted`` and their operands, transitively, operands first, down to computed ones."""
    return operands_first(wanted, lambda node: node.held is None)


def operands_first(wanted: Iterable[Kind], goes_on: Callable[[Kind], bool]) -> list[Kind]:
    """``wanted`` and their operands, transitively, down to nodes where ``goes_on`` is false."""
    order: list[Kind] = []
    done: set[int] = set()
    stack = list(wanted)[::-1]
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        depth = len(stack)
        if goes_on(node):
            stack.extend(x for x in node.operands if x is not None and id(x) not in done)
        if len(stack) == depth:
            stack.pop()
            done.add(id(node))
            order.append(node)
    return order


def emitted(
    order: Sequence[Lazy], inputs: Sequence[Lazy], build: GraphBuilder, names: Sequence[str]
) -> dict[int, str]:
    """The nodes of ``order`` appended to ``build``; names of values by identity.

    ``inputs`` are inputs, called ``names``; other nodes with arrays are constants.
    """
    found: dict[int, str] = {}
    for node, name in zip(inputs, names, strict=True):
        bounds = dict(node.op.bounds) if isinstance(node.op, Placeholder) else {}
        found[id(node)] = build.input(name, node.type, bounds)
    return continued(order, found, build)


def continued(order: Sequence[Lazy], found: dict[int, str], build: GraphBuilder) -> dict[int, str]:
    """As :func:`emitted`, where the values ``found`` exist already."""
    several: dict[int, tuple[str, ...]] = {}
    for node in order:
        if id(node) not in found:
            found[id(node)] = _emitted(node, build, found, several)
    return found


def _emitted(
    node: Lazy, build: GraphBuilder, found: dict[int, str], several: dict[int, tuple[str, ...]]
) -> str:
    if node.held is not None:
        return build.constant(node.held, node.type.dtype)
    if isinstance(node.op, Projection):
        return several[id(node.operands[0])][node.op.number]
    if isinstance(node.op, Alias):
        return found[id(node.operands[0])]
    if isinstance(node.op, Placeholder):
        raise foreign(node.op.name)
    assert isinstance(node.op, Op)
    operands = [found[id(x)] if x is not None else "" for x in node.operands]
    results = build.add(node.op, *operands, source=node.source)
    several[id(node)] = results
    return results[0]


def foreign(name: str) -> TracingError:
    """The error of a value of ``name``, an input of another traced function."""
    return TracingError(
        f"a value that depends on {name!r} is used outside of the function that it was traced in",
        callers_line(),
        "return it from there, and do not keep it in a variable or an attribute",
    )


def graph_of(
    name: str,
    inputs: Sequence[Lazy],
    input_names: Sequence[str],
    outputs: Sequence[Lazy],
    output_names: Sequence[str],
) -> Graph:
    """The graph that computes ``outputs`` from ``inputs``, with these names.

    Other values that have arrays are its constants.
    """
    build = GraphBuilder(name)
    order = pending(outputs)
    found = emitted(order, inputs, build, input_names)
    results = [
        build.emit(Identity(), found[id(node)], name=wanted)
        for node, wanted in zip(outputs, output_names, strict=True)
    ]
    return build.build(results)
