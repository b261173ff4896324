"""Graphs in attributes of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import GraphProto, helper

from modelcc.exporters.onnx.builder import OnnxBuilder, OnnxValue
from modelcc.exporters.onnx.types import value_info
from modelcc.ir.types import TensorType

Typed = tuple[OnnxValue, TensorType]


def subgraph(
    build: OnnxBuilder,
    name: str,
    inputs: Sequence[TensorType],
    body: Callable[[Sequence[OnnxValue]], Sequence[Typed]],
) -> GraphProto:
    """A graph with ``inputs``; ``body`` writes its nodes and returns its results."""
    given = [OnnxValue(build.fresh(f"{name}_input"), t.dtype) for t in inputs]
    with build.scope() as nodes:
        made = body(given)
        free = {name for node in nodes for name in node.output}
        found = [(_own(build, value, free), type) for value, type in made]
    taken = [value_info(v.name, t) for v, t in zip(given, inputs, strict=True)]
    return helper.make_graph(nodes, name, taken, [value_info(v.name, t) for v, t in found])


def _own(build: OnnxBuilder, value: OnnxValue, free: set[str]) -> OnnxValue:
    """``value`` as a result: defined by a node of the graph, and distinct from other results."""
    if value.name not in free:
        return build.node("Identity", value)
    free.remove(value.name)
    return value
