"""Reverse-mode differentiation: gradients pass from results to operands, node by node.

Griewank & Walther, "Evaluating Derivatives" (2008), chapter 3.  What is added is ordinary nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.op import Builder, Gradients, Op
from modelcc.ir.types import Array, DType, TensorType
from modelcc.ops.arithmetic import Add
from modelcc.ops.generate import filled


class GradientError(ModelError):
    """An op on the way has neither a gradient nor a decomposition, or none in its form."""


@runtime_checkable
class LocatableBuilder(Builder, Protocol):
    """A builder that can say where in the user's program its nodes come from."""

    def located(self, source: Sequence[str]) -> Builder:
        """This builder, whose nodes come from ``source``."""
        ...


def located(build: Builder, source: Sequence[str]) -> Builder:
    """``build``, whose nodes come from ``source`` if that is known and it can say so."""
    return build.located(source) if source and isinstance(build, LocatableBuilder) else build


@dataclass
class Recorder(Builder):
    """A builder that appends to ``build`` and remembers the nodes."""

    build: Builder
    nodes: list[Node] = field(default_factory=list[Node])
    source: tuple[str, ...] = ()

    def located(self, source: Sequence[str]) -> Recorder:
        """This builder, whose nodes come from ``source``."""
        return Recorder(located(self.build, source), self.nodes, tuple(source))

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        outputs = self.build.add(op, *inputs)
        self.nodes.append(Node(op, inputs, outputs, self.source))
        return outputs

    def recall(self, op: Op, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
        """Remember a node whose results are there already: nothing is added."""
        self.nodes.append(Node(op, tuple(inputs), tuple(outputs), self.source))
        return tuple(outputs)

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        return self.build.constant(value, dtype)

    def type_of(self, name: str) -> TensorType:
        return self.build.type_of(name)


def adjoints(
    build: Builder, nodes: Sequence[Node], dys: Mapping[str, str], wanted: Iterable[str]
) -> dict[str, str]:
    """Gradients by name of value: of ``wanted`` and of what lies between them and the results.

    ``dys`` are those of results of ``nodes``, which are in topological order.  A value without one
    does not move the results.  Nodes that are added come from where that one does whose gradient
    they are.  :class:`GradientError` names an op that has none to offer.
    """
    active = _active(build, nodes, wanted)
    found = {name: dy for name, dy in dys.items() if name in active}
    for node in reversed(nodes):
        if found.keys().isdisjoint(node.outputs) or active.isdisjoint(node.inputs):
            continue
        at = located(build, node.source)
        given = [found.get(o) or filled(at, o) for o in node.outputs]
        gradients = _gradients(at, node, given)
        for name, gradient in zip(node.inputs, gradients, strict=True):
            if gradient is not None and name in active:
                before = found.get(name)
                found[name] = gradient if before is None else at.emit(Add(), before, gradient)
    return found


def _active(build: Builder, nodes: Sequence[Node], wanted: Iterable[str]) -> set[str]:
    """Floats that depend on ``wanted``."""
    active = {name for name in wanted if build.type_of(name).dtype.is_float}
    for node in nodes:
        if node.op.differentiable and not active.isdisjoint(node.inputs):
            active |= {o for o in node.outputs if build.type_of(o).dtype.is_float}
    return active


def _gradients(build: Builder, node: Node, dys: Sequence[str]) -> Gradients:
    if node.op.has("grad"):
        return _located(build, node, dys)
    if not node.op.has("decompose"):
        raise GradientError(f"{node.op.mnemonic()} has no gradient", node.source)
    parts = Recorder(build)
    results = node.op.decompose(parts, *node.inputs)
    wanted = [name for name in node.inputs if name]
    given = {result: dy for result, dy in zip(results, dys, strict=True)}
    found = adjoints(build, parts.nodes, given, wanted)
    return tuple(found.get(name) for name in node.inputs)


def _located(build: Builder, node: Node, dys: Sequence[str]) -> Gradients:
    """The gradients by the op itself, which knows of no place."""
    try:
        return node.op.grad(build, dys, node.inputs, node.outputs)
    except GradientError as error:
        if error.where or not node.source:
            raise
        raise GradientError(error.message, node.source, error.hint) from error


def inlined(build: Builder, graph: Graph, inputs: Sequence[str]) -> tuple[str, ...]:
    """The results of ``graph`` on ``inputs``, as nodes of ``build``."""
    return recalled(Recorder(build), graph, inputs, {})


def recalled(
    run: Recorder, graph: Graph, inputs: Sequence[str], known: Mapping[str, str]
) -> tuple[str, ...]:
    """The results of ``graph`` on ``inputs``, as nodes of ``run``, one for each of its own.

    Nodes whose results are all ``known``, by their names in ``graph``, are not computed again.
    """
    names = dict(zip(graph.inputs, inputs, strict=True)) | {"": ""}
    for name, constant in graph.constants.items():
        names[name] = run.constant(constant.data, constant.type.dtype)
    for node in graph.nodes:
        at = run.located(node.source or run.source)
        given = [names[i] for i in node.inputs]
        if all(name in known for name in node.outputs):
            results = at.recall(node.op, given, [known[name] for name in node.outputs])
        else:
            results = at.add(node.op, *given)
        names.update(zip(node.outputs, results, strict=True))
    return tuple(names[name] for name in graph.outputs)
