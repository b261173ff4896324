"""What of a loop's iterations is kept for its gradient; all else is computed again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import evaluate, symbols
from modelcc.ops.reverse import Recorder, adjoints, recalled
from modelcc.ops.slicing import At

UNKNOWN = 32
"""What a named dimension is taken to be."""


@dataclass(frozen=True)
class LoopHistory:
    """The first ``states`` inputs of ``body`` are what the last iteration left, and ``counter``
    says which one it is."""

    body: Graph
    counter: str
    states: int

    @property
    def kept(self) -> list[str]:
        """Values from which gradients compute what they read without products or control flow.

        Either those of costly ops, or what is read of all that depends on these and on slices of
        stacked tensors, such as gates behind their activations: whichever is smaller, with the
        slices that the rest is computed from.
        """
        options = (self._read_of_costly(), [name for node in self._costly for name in node.outputs])
        (read, one), (made, other) = map(self._reached, options)
        return made if other < one else read

    @cached_property
    def _varying(self) -> list[Node]:
        """Nodes whose results differ from iteration to iteration."""
        varying, found = set(self.body.inputs[: self.states]), list[Node]()
        for node in self.body.nodes:
            if not (varying.isdisjoint(node.inputs) and self._own.isdisjoint(node.op.symbols())):
                varying.update(node.outputs)
                found.append(node)
        return found

    @cached_property
    def _own(self) -> set[str]:
        """Symbols that have a value in an iteration only."""
        return {self.counter, *self.body.binds}

    @cached_property
    def _costly(self) -> list[Node]:
        return [node for node in self._varying if node.op.costly and self._stacks(node)]

    def _stacks(self, node: Node) -> bool:
        """Whether results are of one size in all iterations."""
        extents = [e for name in node.outputs for e in self.body.types[name].shape]
        return self._own.isdisjoint(s for extent in extents for s in symbols(extent))

    def _read_of_costly(self) -> list[str]:
        """What gradients read and that depends on costly ops or slices."""
        found, hard = list[str](), set[str]()
        for node in self._varying:
            if self._is_slice(node):
                hard.update(node.outputs)
            elif node.op.costly or not hard.isdisjoint(node.inputs):
                if self._stacks(node) and not self._needed.isdisjoint(node.outputs):
                    found += node.outputs
                else:
                    hard.update(node.outputs)
        return found

    def _is_slice(self, node: Node) -> bool:
        return isinstance(node.op, At) and self.counter in node.op.symbols()

    @cached_property
    def _needed(self) -> frozenset[str]:
        """Values of the body that the gradients of its inputs read."""
        body, types = self.body, self.body.types
        build = GraphBuilder(body.name, body.dims)
        inputs = [build.input(name, types[name]) for name in body.inputs]
        run = Recorder(build)
        results = dict.fromkeys(recalled(run, body, inputs, {}))
        floats = [name for name in results if build.type_of(name).dtype.is_float]
        dys = {name: build.input(f"{name}.dy", build.type_of(name)) for name in floats}
        made = dict(zip(body.inputs, inputs, strict=True)) | {
            own: name
            for node, inner in zip(run.nodes, body.nodes, strict=True)
            for name, own in zip(node.outputs, inner.outputs, strict=True)
        }
        wanted = [made[name] for name in map(self._differentiated, body.inputs)]
        wanted = [name for name in wanted if build.type_of(name).dtype.is_float]
        found = adjoints(build, run.nodes, dys, wanted)
        graph = build.build([found[name] for name in wanted if name in found])
        names = {name: own for own, name in made.items() if own not in body.inputs}
        read = set(graph.outputs)
        for node in reversed(graph.nodes):
            if names.keys().isdisjoint(node.outputs) and not read.isdisjoint(node.outputs):
                read.update(node.inputs)
        return frozenset(names[name] for name in read if name in names)

    def _differentiated(self, name: str) -> str:
        """What the gradient of an input is stacked or summed up of: slices, if one node reads it
        slice by slice."""
        readers = [node for node in self.body.nodes if name in node.inputs]
        alone = len(readers) == 1 and self._is_slice(readers[0])
        return readers[0].outputs[0] if alone else name

    def _reached(self, kept: Collection[str]) -> tuple[list[str], int]:
        """Those of ``kept`` that something is computed from again, and how many elements an
        iteration reads of them and of stacked tensors."""
        left, found, slices = set(self._needed), list[str](), list[str]()
        for node in reversed(self.body.nodes):
            if left.isdisjoint(node.outputs):
                continue
            if not set(kept).isdisjoint(node.outputs):
                found[:0] = node.outputs
            elif self._is_slice(node):
                slices += node.outputs
            else:
                left.update(node.inputs)
        return found, sum(map(self._elements, (*found, *slices)))

    def _elements(self, name: str) -> int:
        return prod(self._extents(name))

    def _extents(self, name: str) -> Iterator[int]:
        for extent in self.body.types[name].shape:
            yield evaluate(extent, dict.fromkeys(symbols(extent), UNKNOWN))
