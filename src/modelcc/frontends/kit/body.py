"""A sub-graph under conversion into its own graph: the body of a branch or a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from modelcc.frontends.kit.emit import Emitter
from modelcc.ir.graph import Graph
from modelcc.ir.types import TensorType


@dataclass(frozen=True)
class Body:
    """``captured``: values of the enclosing graph that it reads, and the inputs that stand for
    them.

    ``outer`` emits the enclosing graph, ``emitter`` the body.
    """

    outer: Emitter
    emitter: Emitter
    outputs: tuple[str, ...] = ()
    captured: dict[str, str] = field(default_factory=dict[str, str])

    def capture(self, value: str) -> str:
        """The value in the body for one of the enclosing graph; known contents stay known."""
        group = self.outer.find_group(value)
        if group is not None:
            return self.emitter.group(group.of([self.capture(part) for part in group.parts]))
        contents, type = self.outer.contents(value), self.outer.type_of(value)
        if contents is not None:
            return self.emitter.note(contents, type.dtype)
        if value not in self.captured:
            name = f"captured{len(self.captured)}"
            self.captured[value] = self.emitter.builder.input(name, type)
        return self.captured[value]

    def input(self, name: str, type: TensorType) -> str:
        """An input that is not captured from the enclosing graph: a state."""
        return self.emitter.builder.input(name, type)

    def types(self) -> list[TensorType]:
        """Types of the outputs."""
        return [self.emitter.type_of(name) for name in self.outputs]

    def graph(self, outputs: Sequence[str], captured: Sequence[str] | None = None) -> Graph:
        """The body with these outputs; ``captured`` are values of the enclosing graph, in order."""
        names = [self.captured[v] for v in (self.captured if captured is None else captured)]
        graph = self.emitter.builder.build([self.emitter.stored(name) for name in outputs])
        states = [name for name in graph.inputs if name not in self.captured.values()]
        return replace(graph, inputs=(*states, *names))


BodyInputs = Callable[[Body], Sequence[str]]
"""Values of the body's emitter for the inputs of a sub-graph, in order."""
