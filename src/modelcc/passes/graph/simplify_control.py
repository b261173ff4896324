"""Simplification of branches and loops by facts known at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.naming import Names
from modelcc.ops.arithmetic import Identity
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.control import If, Loop
from modelcc.ops.runtime_size import bound_sizes, with_fresh_sizes
from modelcc.passes.graph.graph_writer import GraphWriter
from modelcc.passes.graph.loop_parts import LoopParts, tidy


@dataclass(frozen=True)
class SimplifyControl:
    """Branches on constants are resolved, single iterations inlined; captured constants are moved
    into bodies; states that never change, unused results and loop-invariant computations leave
    their loops.

    before::

        "mcc.graph"() ({
        ^bb0(%h: tensor<4xf32>, %w: tensor<4xf32>):
          %last = "mcc.Loop"(%h, %w) ({
            "mcc.graph"() ({
            ^bb0(%s: tensor<4xf32>, %v: tensor<4xf32>):
              %e = "mcc.Exp"(%v)
              %n = "mcc.Mul"(%s, %e)
              "mcc.return"(%n)
            }) {name = "body", dims = {t = [0, unit]}} : () -> ()
          }) {body = #mcc.region<0>, counter = "t", trips = 8, states = 1}
          "mcc.return"(%last)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%h: tensor<4xf32>, %w: tensor<4xf32>):
          %e = "mcc.Exp"(%w)
          %last = "mcc.Loop"(%h, %e) ({
            "mcc.graph"() ({
            ^bb0(%s: tensor<4xf32>, %e: tensor<4xf32>):
              %n = "mcc.Mul"(%s, %e)
              "mcc.return"(%n)
            }) {name = "body", dims = {t = [0, unit]}} : () -> ()
          }) {body = #mcc.region<0>, counter = "t", trips = 8, states = 1}
          "mcc.return"(%last)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        if not any(isinstance(node.op, If | Loop) for node in graph.nodes):
            return graph
        editor = _Editor(graph)
        for node in graph.nodes:
            editor.visit(node)
        return editor.result()


class _Editor:
    """Rebuilds a graph, node by node."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._writer = GraphWriter(graph)
        self._renamed: dict[str, str] = {}
        self._sizes = Names(graph.dims)
        self._dims = dict(graph.dims)
        self._read = {n for node in graph.nodes for n in node.inputs} | set(graph.outputs)

    def result(self) -> Graph:
        """The graph without dead nodes."""
        return replace(self._writer.graph(), dims=self._dims)

    def visit(self, node: Node) -> None:
        """Append ``node``, or its simplified form."""
        inputs = tuple(self._renamed.get(n, n) for n in node.inputs)
        node = node if inputs == node.inputs else replace(node, inputs=inputs)
        match node.op:
            case If():
                self._branch(node, node.op)
            case Loop(trips=0):
                self._none(node, node.op)
            case Loop(trips=1, conditional=False):
                self._single(node, node.op)
            case Loop():
                self._loop(node, node.op)
            case _:
                self._writer.append(node)

    def _branch(self, node: Node, op: If) -> None:
        condition, *captured = node.inputs
        constant = self._writer.constants.get(condition)
        if constant is not None:
            self._inline(node, op.then if bool(constant.data) else op.other, captured)
            return
        bodies = [self._sunk(body, captured) for body in (op.then, op.other)]
        read = [{n for node in b.nodes for n in node.inputs} | set(b.outputs) for b in bodies]
        kept = [
            i
            for i, name in enumerate(captured)
            if name not in self._writer.constants
            and any(b.inputs[i] in r for b, r in zip(bodies, read, strict=True))
        ]
        then, other = (tidy(replace(b, inputs=tuple(b.inputs[i] for i in kept))) for b in bodies)
        inputs = (condition, *(captured[i] for i in kept))
        self._writer.append(replace(node, op=If(then, other), inputs=inputs))

    def _sunk(self, body: Graph, captured: Sequence[str]) -> Graph:
        """``body`` with captured constants moved inside; they are still inputs."""
        own = {
            inner: self._writer.constants[outer]
            for inner, outer in zip(body.inputs, captured, strict=True)
            if outer in self._writer.constants
        }
        return replace(body, constants={**body.constants, **own}) if own else body

    def _loop(self, node: Node, op: Loop) -> None:
        parts = LoopParts.of(node, op)
        parts.sink(self._writer.constants)
        parts.drop_condition(self._writer.constants)
        for result, initial in parts.take_invariants().items():
            self._deliver(result, initial, node)
        parts.drop_dead(frozenset(self._read))
        moved, types = parts.hoist(self._writer.names)
        parts.drop_dead(frozenset(self._read))
        self._writer.types |= types
        self._writer.nodes += moved
        if parts.states or parts.slices:
            self._writer.append(parts.whole())

    def _inline(self, node: Node, body: Graph, operands: Sequence[str]) -> None:
        """Inlines ``body`` in place of ``node``, with its results."""
        body = with_fresh_sizes(body, self._sizes)
        self._dims |= bound_sizes(body)
        names = dict(zip(body.inputs, operands, strict=True))
        for name, constant in body.constants.items():
            names[name] = self._add(name, body)
            self._writer.constants[names[name]] = constant
        for inner in body.nodes:
            names |= {name: self._add(name, body) for name in inner.outputs}
            inputs = tuple(names.get(n, n) for n in inner.inputs)
            outputs = tuple(names[n] for n in inner.outputs)
            source = inner.source or node.source
            self._writer.append(Node(inner.op, inputs, outputs, source))
        for result, value in zip(node.outputs, body.outputs, strict=True):
            self._deliver(result, names[value], node)

    def _add(self, name: str, body: Graph) -> str:
        return self._writer.value(body.types[name], name)

    def _none(self, node: Node, op: Loop) -> None:
        """A loop without iterations."""
        for result, initial in zip(node.outputs, node.inputs[: op.states], strict=False):
            self._deliver(result, initial, node)
        for name in node.outputs[op.states :]:
            type = self._writer.types[name]
            nothing = self._writer.constant(np.zeros((), type.dtype.numpy), "nothing")
            self._writer.append(Node(Expand(type.shape), (nothing,), (name,), node.source))

    def _single(self, node: Node, op: Loop) -> None:
        """A loop of one iteration."""
        body = op.body.substitute({op.counter: 0})
        stacked = node.outputs[op.states :]
        values = zip(stacked, body.outputs[op.states :], strict=True)
        flat = tuple(self._writer.value(body.types[value], name) for name, value in values)
        self._inline(replace(node, outputs=(*node.outputs[: op.states], *flat)), body, node.inputs)
        for name, part in zip(stacked, flat, strict=True):
            reshape = Reshape(self._writer.types[name].shape)
            inputs = (self._renamed.get(part, part),)
            self._writer.append(Node(reshape, inputs, (name,), node.source))

    def _deliver(self, result: str, value: str, node: Node) -> None:
        """Replaces ``result`` by ``value``, keeping the user's names."""
        if result in self._graph.outputs:
            self._writer.append(Node(Identity(), (value,), (result,), node.source))
        else:
            self._renamed[result] = value
