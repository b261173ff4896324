"""Reverse-mode differentiation of recorded tensors."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.graph import Node
from modelcc.ops.arithmetic import Add, Identity
from modelcc.ops.reverse import adjoints
from modelcc.tensor.builder import TensorBuilder
from modelcc.tensor.graphs import operands_first
from modelcc.tensor.lazy import (
    FREE,
    RECORDED,
    Alias,
    Kind,
    Lazy,
    Literal,
    Placeholder,
    Projection,
    parts,
)

CLOSED = Alias(open=False)


def gradients(
    results: Sequence[Kind], dys: Sequence[Kind], wanted: Sequence[Kind]
) -> list[Kind | None]:
    """Gradients of ``wanted``, given those of ``results``; None where these do not depend on it.

    :class:`~modelcc.ops.reverse.GradientError` names an op on the way that has none.
    """
    build = TensorBuilder(type(results[0]))
    nodes, names = _recorded(results, build)
    total: dict[str, str] = {}
    for result, dy in zip(results, dys, strict=True):
        name, given = names[id(result)], build.name(dy)
        total[name] = given if name not in total else build.emit(Add(), total[name], given)
    asked = [names.get(id(x)) for x in wanted]
    found = adjoints(build, nodes, total, [name for name in asked if name is not None])
    return [build.tensor(found[n]) if n is not None and n in found else None for n in asked]


def _recorded(
    results: Sequence[Kind], build: TensorBuilder[Kind]
) -> tuple[list[Node], dict[int, str]]:
    """Nodes on which ``results`` depend, operands first, and names of all values by identity."""
    names: dict[int, str] = {}
    nodes: list[Node] = []
    made: dict[tuple[int, int], str] = {}
    for node in _history(results):
        if isinstance(node.op, Projection):
            names[id(node)] = made[id(node.operands[0]), node.op.number]
            continue
        if node.phase == FREE or node.op is None or isinstance(node.op, Placeholder | Literal):
            names[id(node)] = build.name(node)
            continue
        op = Identity() if isinstance(node.op, Alias) else node.op
        outputs = tuple(map(build.name, parts(node) if op is node.op else (node,)))
        made.update({(id(node), i): name for i, name in enumerate(outputs)})
        names[id(node)] = outputs[0]
        inputs = tuple("" if x is None else names[id(x)] for x in node.operands)
        nodes.append(Node(op, inputs, outputs, node.source))
    return nodes, names


def _history(results: Sequence[Kind]) -> list[Kind]:
    """``results`` and their operands, transitively, operands first, computed or not."""
    return operands_first(results, lambda node: node.phase != FREE)


def is_recorded(results: Sequence[Lazy]) -> bool:
    """Whether a gradient in progress needs the history of ``results``."""
    history = _history(results)
    return any(isinstance(n.op, Alias) and n.op.open and n.phase != FREE for n in history)


def release(results: Sequence[Lazy], own: Sequence[Lazy]) -> None:
    """Drops the history of ``results`` from the aliases ``own``, unless others need it."""
    for node in own:
        node.op = CLOSED
    if is_recorded(results):
        return
    for node in _history(results):
        if node.phase == RECORDED:
            node.phase = FREE
            if node.held is not None:
                node.op, node.operands = None, ()


def alone(node: Kind) -> Kind:
    """The value of ``node`` without its history."""
    if node.phase != RECORDED:
        return node
    if node.held is not None:
        return node.made(None, (), node.type, FREE, node.held)
    return node.made(Alias(), (node,), node.type, FREE)
