"""Graph passes applied to the bodies of branches and loops, by one mechanism for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.graph import Graph, Node
from modelcc.ops.control import Control
from modelcc.passes.pass_base import Pass


@dataclass(frozen=True)
class InBodies:
    """Runs ``step`` on the bodies in a graph, inner ones first, and then on the graph itself."""

    step: Pass[Graph]

    def __call__(self, graph: Graph) -> Graph:
        return _everywhere(self.step, graph)


@dataclass(frozen=True)
class CountedInBodies:
    """As :class:`InBodies`, for a pass that can stop after ``limit`` rewrites (of each graph)."""

    step: Pass[Graph]
    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        limited = replace(self.step, limit=self.limit)  # type: ignore[type-var]
        return _everywhere(self.step if self.limit is None else limited, graph)


def in_bodies(step: Pass[Graph]) -> InBodies | CountedInBodies:
    """``step`` for a graph and the bodies in it."""
    counts = "limit" in step.__dataclass_fields__
    return CountedInBodies(step) if counts else InBodies(step)


def _everywhere(step: Pass[Graph], graph: Graph) -> Graph:
    nodes = tuple(_node(step, node) for node in graph.nodes)
    changed = any(new is not old for new, old in zip(nodes, graph.nodes, strict=True))
    return step(graph.with_nodes(nodes) if changed else graph)


def _node(step: Pass[Graph], node: Node) -> Node:
    if not isinstance(node.op, Control):
        return node
    bodies = {name: _everywhere(step, body) for name, body in node.op.graphs().items()}
    same = all(bodies[name] is body for name, body in node.op.graphs().items())
    return node if same else replace(node, op=replace(node.op, **bodies))  # type: ignore[type-var]
