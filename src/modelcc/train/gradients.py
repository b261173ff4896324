"""Gradients of a graph, as a graph, which the compiler handles like any other."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.types import TensorType
from modelcc.ops.arithmetic import Identity
from modelcc.ops.generate import filled
from modelcc.ops.reverse import adjoints


def value_and_gradients(graph: Graph, loss: str, wrt: Sequence[str]) -> Graph:
    """``graph`` with the gradient of ``loss`` by each of ``wrt`` as additional outputs, called
    ``<name>.grad``: 0 where the loss does not depend on it.

    ``loss`` is a scalar float, ``wrt`` are inputs, constants or intermediate values.
    :class:`ModelError` if one is no such value, or an op in between has no gradient.
    """
    build = _continued(graph)
    type = _require_value(graph, loss)
    if type.shape or not type.dtype.is_float:
        raise ModelError(f"a loss must be one float, and {loss!r} is {type}")
    for name in wrt:
        if not _require_value(graph, name).dtype.is_float:
            raise ModelError(f"{name!r} is {graph.types[name]}, which has no gradient")
    nodes = list(build.nodes())
    found = adjoints(build, nodes, {loss: filled(build, loss, 1.0)}, wrt)
    gradients = [
        build.emit(Identity(), found.get(name) or filled(build, name), name=f"{name}.grad")
        for name in wrt
    ]
    return build.build([*graph.outputs, *gradients])


def _require_value(graph: Graph, name: str) -> TensorType:
    if name not in graph.types:
        raise ModelError(f"graph {graph.name!r} has no value {name!r}")
    return graph.types[name]


def _continued(graph: Graph) -> GraphBuilder:
    """A builder whose contents so far are ``graph``, with the same names."""
    build = GraphBuilder(graph.name, graph.dims)
    for name in graph.inputs:
        build.input(name, graph.types[name])
    for name, constant in graph.constants.items():
        build.constant(constant.data, constant.type.dtype, name)
    for node in graph.nodes:
        build.add(node.op, *node.inputs, source=node.source, names=node.outputs)
    return build
