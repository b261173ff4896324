"""Fusion of loops with the same states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Sym
from modelcc.ir.naming import Names
from modelcc.ir.op import Op
from modelcc.ops.arithmetic import Identity
from modelcc.ops.control import Loop
from modelcc.passes.graph.dead_code import with_nodes
from modelcc.passes.graph.loop_parts import LoopParts, Slices


@dataclass(frozen=True)
class JoinLoops:
    """Loops with the same initial and next states become one, with the slices of all.

    So the iterations that a gradient replays, which stack intermediate values, are those of the
    model itself.

    before::

        "mcc.graph"() ({
        ^bb0(%h: tensor<4xf32>, %x: tensor<3x4xf32>):
          %last = "mcc.Loop"(%h, %x) ({
            "mcc.graph"() ({
            ^bb0(%s: tensor<4xf32>, %v: tensor<3x4xf32>):
              %a = "mcc.At"(%v) {axis = 0, position = #mcc.index<"t">}
              %n = "mcc.Add"(%s, %a)
              "mcc.return"(%n)
            }) {name = "body", dims = {t = [0, unit]}} : () -> ()
          }) {body = #mcc.region<0>, counter = "t", trips = 3, states = 1}
          %end, %all = "mcc.Loop"(%h, %x) ({
            "mcc.graph"() ({
            ^bb0(%s: tensor<4xf32>, %v: tensor<3x4xf32>):
              %a = "mcc.At"(%v) {axis = 0, position = #mcc.index<"t">}
              %n = "mcc.Add"(%s, %a)
              %e = "mcc.Exp"(%n)
              "mcc.return"(%n, %e)
            }) {name = "body", dims = {t = [0, unit]}} : () -> ()
          }) {body = #mcc.region<0>, counter = "t", trips = 3, states = 1,
              axes = [0], backwards = [false]}
          "mcc.return"(%last, %all)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%h: tensor<4xf32>, %x: tensor<3x4xf32>):
          %last, %all = "mcc.Loop"(%h, %x) ({
            "mcc.graph"() ({
            ^bb0(%s: tensor<4xf32>, %v: tensor<3x4xf32>):
              %a = "mcc.At"(%v) {axis = 0, position = #mcc.index<"t">}
              %n = "mcc.Add"(%s, %a)
              %e = "mcc.Exp"(%n)
              "mcc.return"(%n, %e)
            }) {name = "body", dims = {t = [0, unit]}} : () -> ()
          }) {body = #mcc.region<0>, counter = "t", trips = 3, states = 1,
              axes = [0], backwards = [false]}
          "mcc.return"(%last, %all)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        if sum(isinstance(node.op, Loop) for node in graph.nodes) < 2:
            return graph
        writer = _LoopJoiner(graph)
        for node in graph.nodes:
            writer.visit(node)
        return writer.result()


class _LoopJoiner:
    """Rebuilds a graph, node by node."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes: list[Node] = []
        self._loops: dict[object, list[int]] = {}
        self._made: dict[str, int] = {}
        self._renamed: dict[str, str] = {}

    def result(self) -> Graph:
        """The graph without dead nodes."""
        return with_nodes(self._graph, tuple(self._nodes))

    def visit(self, node: Node) -> None:
        """Append ``node``, unless it is fused into an earlier one."""
        inputs = tuple(self._renamed.get(n, n) for n in node.inputs)
        node = node if inputs == node.inputs else replace(node, inputs=inputs)
        if isinstance(node.op, Loop):
            first = node.inputs[: node.op.states] or frozenset(node.inputs)
            alike = self._loops.setdefault((node.op.trips, node.op.conditional, first), [])
            if any(self._takes_in(place, node, node.op) for place in alike):
                return
            alike.append(len(self._nodes))
        self._made |= dict.fromkeys(node.outputs, len(self._nodes))
        self._nodes.append(node)

    def _takes_in(self, place: int, node: Node, op: Loop) -> bool:
        """Fuses another loop into the one at ``place``, if possible."""
        earlier = self._nodes[place]
        assert isinstance(earlier.op, Loop)
        late = any(self._made.get(n, -1) >= place for n in node.inputs)
        loop = LoopParts.of(earlier, earlier.op)
        added = None if late else _Joining(loop).take(node, op)
        if added is None:
            return False
        for old, state in zip(node.outputs, loop.states, strict=False):
            self._deliver(old, state.last)
        stacked = {(s.value, s.axis, s.backwards): s.stacked for s in loop.slices}
        for s in added:
            same = stacked.setdefault((s.value, s.axis, s.backwards), s.stacked)
            loop.slices += [s] if same == s.stacked else []
            self._deliver(s.stacked, same)
        self._nodes[place] = loop.whole()
        self._made |= dict.fromkeys(self._nodes[place].outputs, place)
        return True

    def _deliver(self, result: str, value: str) -> None:
        """Replaces ``result`` by ``value``, keeping the user's names."""
        if result != value and result in self._graph.outputs:
            self._nodes.append(Node(Identity(), (value,), (result,)))
        elif result != value:
            self._renamed[result] = value


class _Joining:
    """The values that ``loop`` computes, by op and operands, to which other loops are added."""

    def __init__(self, loop: LoopParts) -> None:
        self._loop = loop
        self._names = Names(loop.types)
        self._known: dict[tuple[Op, tuple[str, ...]], tuple[str, ...]] = {
            (node.op, node.inputs): node.outputs for node in loop.nodes if node.op.pure
        }
        self._nodes: list[Node] = []

    def take(self, node: Node, op: Loop) -> list[Slices] | None:
        """The slices of another loop, which this one then computes, if their states are equal."""
        loop = self._loop
        turned = op.body.substitute({op.counter: Sym(loop.op.counter)})
        other = LoopParts.of(node, replace(op, body=turned, counter=loop.op.counter))
        names = {b.name: a.name for a, b in zip(loop.states, other.states, strict=True)} | {"": ""}
        captured, constants = self._captured(other, names), self._constants(other, names)
        for inner in other.nodes:
            if inner.op.binds:
                return None
            self._add(inner, names)
        if any(names[b.next] != a.next for a, b in zip(loop.states, other.states, strict=True)):
            return None
        body = loop.op.body
        dims = MappingProxyType({**turned.dims, **body.dims})
        loop.op = replace(loop.op, body=replace(body, dims=dims))
        loop.nodes += tuple(self._nodes)
        loop.captured |= captured
        loop.constants |= constants
        loop.types |= {names[n]: t for n, t in other.types.items()}
        return [replace(s, value=names[s.value]) for s in other.slices]

    def _captured(self, other: LoopParts, names: dict[str, str]) -> dict[str, str]:
        """Additional captures of the loop; ``names`` get those of all captures of ``other``."""
        inner = {outside: name for name, outside in self._loop.captured.items()}
        names |= {
            name: inner.get(outside) or self._names.fresh(name)
            for name, outside in other.captured.items()
        }
        return {names[name]: outside for name, outside in other.captured.items()}

    def _constants(self, other: LoopParts, names: dict[str, str]) -> dict[str, Constant]:
        for name, constant in other.constants.items():
            alike = [n for n, c in self._loop.constants.items() if c.sample == constant.sample]
            same = [n for n in alike if self._loop.constants[n] == constant]
            names[name] = same[0] if same else self._names.fresh(name)
        return {names[name]: constant for name, constant in other.constants.items()}

    def _add(self, node: Node, names: dict[str, str]) -> None:
        inputs = tuple(names[n] for n in node.inputs)
        outputs = self._known.get((node.op, inputs)) if node.op.pure else None
        if outputs is None:
            outputs = tuple(self._names.fresh(n) for n in node.outputs)
            self._known[node.op, inputs] = outputs
            self._nodes.append(replace(node, inputs=inputs, outputs=outputs))
        names |= dict(zip(node.outputs, outputs, strict=True))
