"""A loop split into its states, captured values and stacked slices, for editing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.naming import Names
from modelcc.ir.types import TensorType
from modelcc.ops.arithmetic import Div, Mod
from modelcc.ops.control import Control, Loop
from modelcc.passes.graph.dead_code import DeadCode


@dataclass(frozen=True)
class LoopState:
    """``name`` in the body, with the outer ``initial`` value and the ``next`` one; the outer result
    is ``last``."""

    name: str
    initial: str
    next: str
    last: str


@dataclass(frozen=True)
class Slices:
    """``value`` of the body, stacked along ``axis`` as the outer ``stacked``."""

    value: str
    axis: int
    backwards: bool
    stacked: str


@dataclass
class LoopParts:
    """The parts of a loop; ``captured`` maps inner names to outer ones."""

    node: Node
    op: Loop
    conditional: bool
    states: list[LoopState]
    captured: dict[str, str]
    slices: list[Slices]
    nodes: tuple[Node, ...]
    constants: dict[str, Constant]
    types: dict[str, TensorType]

    @staticmethod
    def of(node: Node, op: Loop) -> LoopParts:
        """The parts of a node."""
        body, count = op.body, op.states
        states = zip(
            body.inputs[:count], node.inputs[:count], body.outputs[:count], node.outputs[:count],
            strict=True,
        )  # fmt: skip
        slices = zip(body.outputs[count:], op.axes, op.backwards, node.outputs[count:], strict=True)
        return LoopParts(
            node,
            op,
            op.conditional,
            [LoopState(*s) for s in states],
            dict(zip(body.inputs[count:], node.inputs[count:], strict=True)),
            [Slices(*s) for s in slices],
            body.nodes,
            dict(body.constants),
            dict(body.types),
        )

    def whole(self) -> Node:
        """The node with these parts."""
        inputs = (*(s.name for s in self.states), *self.captured)
        outputs = (*(s.next for s in self.states), *(s.value for s in self.slices))
        body = replace(
            self.op.body,
            inputs=inputs,
            outputs=outputs,
            nodes=self.nodes,
            constants=self.constants,
            types=self.types,
        )
        op = Loop(
            tidy(body), self.op.counter, self.op.trips, len(self.states), self.conditional,
            tuple(s.axis for s in self.slices), tuple(s.backwards for s in self.slices),
        )  # fmt: skip
        operands = (*(s.initial for s in self.states), *self.captured.values())
        results = (*(s.last for s in self.states), *(s.stacked for s in self.slices))
        return Node(op, operands, results, self.node.source)

    def sink(self, constants: Mapping[str, Constant]) -> None:
        """Moves captured constants into the body."""
        for name, outer in list(self.captured.items()):
            if outer in constants:
                self.constants[name] = constants[outer]
                del self.captured[name]

    def drop_condition(self, constants: Mapping[str, Constant]) -> None:
        """Drops a condition that is always true."""
        if not self.conditional or self.op.trips is None:
            return
        first = self.states[0]
        after = self.constants.get(first.next)
        begins = constants.get(first.initial)
        stays = first.next == first.name or (after is not None and bool(after.data))
        if stays and begins is not None and bool(begins.data):
            self.conditional = False

    def take_invariants(self) -> dict[str, str]:
        """Captures states that never change; returns the names of their outer results."""
        fixed = [s for s in self._plain_states() if s.next == s.name]
        for state in fixed:
            self.states.remove(state)
            self.captured[state.name] = state.initial
        return {state.last: state.initial for state in fixed}

    def _plain_states(self) -> list[LoopState]:
        return self.states[1:] if self.conditional else self.states

    def drop_dead(self, read: frozenset[str]) -> None:
        """Drops states and slices without outer uses, and unused captures."""
        self.slices = [s for s in self.slices if s.stacked in read]
        needed = {s.value for s in self.slices}
        kept = {s.name for s in self.states if s.last in read}
        kept |= {self.states[0].name} if self.conditional else set()
        while True:
            wanted = needed | {s.next for s in self.states if s.name in kept}
            used = self._used(wanted)
            more = {s.name for s in self.states if s.name in used} | kept
            if more == kept:
                break
            kept = more
        self.states = [s for s in self.states if s.name in kept]
        self.captured = {n: outer for n, outer in self.captured.items() if n in used}

    def _used(self, wanted: set[str]) -> set[str]:
        """Values of the body on which ``wanted`` ones depend, including themselves.

        Nodes that bind a size or have side effects stay; dead code elimination comes later.
        """
        used = set(wanted)
        for node in reversed(self.nodes):
            if not used.isdisjoint(node.outputs) or node.op.binds or node.op.required:
                used.update(node.inputs)
        return used

    def hoist(self, names: Names) -> tuple[list[Node], dict[str, TensorType]]:
        """Loop-invariant nodes, under outer names, with types."""
        outer = dict(self.captured)
        moved: list[Node] = []
        rest: list[Node] = []
        types: dict[str, TensorType] = {}
        changing = {self.op.counter, *(name for node in self.nodes for name in node.op.binds)}
        for node in self.nodes:
            if not self._is_invariant(node, outer) or changing.intersection(node.op.symbols()):
                rest.append(node)
                continue
            results = tuple(names.fresh(n) for n in node.outputs)
            operands = tuple(outer.get(n, n) for n in node.inputs)
            moved.append(Node(node.op, operands, results, node.source))
            outer |= dict(zip(node.outputs, results, strict=True))
            types |= {n: self.types[o] for n, o in zip(results, node.outputs, strict=True)}
        self.nodes = tuple(rest)
        self.captured = outer
        return moved, types

    def _is_invariant(self, node: Node, outer: Mapping[str, str]) -> bool:
        """Whether ``node`` is worth hoisting, and safe if there is no iteration."""
        operands = [n for n in node.inputs if n]
        outside = bool(operands) and all(n in outer for n in operands)
        plain = node.op.pure and not isinstance(node.op, Control)
        divides = isinstance(node.op, Div | Mod) and self.types[node.outputs[0]].dtype.is_integer
        return outside and plain and not divides


def tidy(body: Graph) -> Graph:
    """``body`` with the types and constants that it needs."""
    return DeadCode()(
        replace(
            body,
            types=MappingProxyType(dict(body.types)),
            constants=MappingProxyType(dict(body.constants)),
        )
    )
