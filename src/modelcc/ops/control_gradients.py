"""Gradients of branches and loops: bodies whose results are the gradients of their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import DIM, Index, Sym, substitute, symbols
from modelcc.ir.op import Builder, Gradients, Values
from modelcc.ir.types import BOOL, TensorType
from modelcc.ops.arithmetic import Add, Identity
from modelcc.ops.comparison import Where
from modelcc.ops.generate import filled
from modelcc.ops.loop_history import LoopHistory
from modelcc.ops.reverse import Recorder, adjoints, inlined, recalled
from modelcc.ops.slicing import At


def is_float(type: TensorType) -> bool:
    """Whether values of this type can have gradients."""
    return type.dtype.is_float


def branch_gradient(branch: Graph, wanted: Sequence[int]) -> Graph:
    """Gradients of the inputs ``wanted`` of a branch, from its inputs and those of its results.

    Results that are no floats have none.
    """
    build = GraphBuilder(f"{branch.name}_gradient", branch.dims)
    inputs = [build.input(f"x{i}", branch.types[name]) for i, name in enumerate(branch.inputs)]
    dys = [
        build.input(f"dy{i}", branch.types[name])
        for i, name in enumerate(branch.outputs)
        if is_float(branch.types[name])
    ]
    body = Recorder(build)
    results = inlined(body, branch, inputs)
    floats = [name for name in results if is_float(build.type_of(name))]
    names = [inputs[i] for i in wanted]
    found = adjoints(build, body.nodes, summed(build, floats, dys), names)
    return build.build([found.get(name) or filled(build, name) for name in names])


def summed(build: Builder, names: Sequence[str], dys: Sequence[str]) -> dict[str, str]:
    """Gradients by name, added where a name occurs several times."""
    total: dict[str, str] = {}
    for name, dy in zip(names, dys, strict=True):
        total[name] = build.emit(Add(), total[name], dy) if name in total else dy
    return total


def with_history(
    body: Graph, states: int, conditional: bool, saved: Sequence[str], kept: int
) -> Graph:
    """A loop's body that results in the first ``kept`` of its results, and in slices: the states
    at its start, a bool that says that there was an iteration if ``conditional``, and the values
    ``saved``.
    """
    build = GraphBuilder(f"{body.name}_history", body.dims)
    inputs = [build.input(name, body.types[name]) for name in body.inputs]
    results = inlined(build, replace(body, outputs=(*body.outputs[:kept], *saved)), inputs)
    slices = [build.emit(Identity(), name) for name in inputs[:states]]
    if conditional:
        slices.append(build.constant(np.array(True), BOOL))
    return build.build([*results[:kept], *slices, *results[kept:]])


@dataclass(frozen=True)
class Scanned:
    """Operand ``number``, of which each iteration reads a slice of its own, by node ``reader``."""

    number: int
    reader: int
    axis: int
    backwards: bool


@dataclass(frozen=True)
class LoopGradient:
    """The gradient of a loop is a loop: iteration ``t`` goes back over ``trips - 1 - t``.

    Its states are the gradients of states that are floats, then the sums of those of what the body
    captures.  Of captured values that iterations read slice by slice the slices are stacked.
    """

    body: Graph
    counter: str
    trips: Index
    states: int
    conditional: bool

    @cached_property
    def saved(self) -> list[str]:
        """Values of the body that are kept for the way back."""
        return LoopHistory(self.body, self.counter, self.states).kept

    @property
    def histories(self) -> int:
        """Tensors of what iterations began with, and of what is saved."""
        return self.states + self.conditional + len(self.saved)

    @cached_property
    def floats(self) -> list[int]:
        """Numbers of the states that have gradients."""
        return [i for i in range(self.states) if self._is_float(i)]

    @cached_property
    def stacked(self) -> list[Scanned]:
        """Captured values whose gradients are stacked."""
        found = map(self._scanned, range(self.states, len(self.body.inputs)))
        return [s for s in found if s is not None]

    @cached_property
    def summed(self) -> list[int]:
        """Numbers of the other captured values that have gradients."""
        others = {s.number for s in self.stacked}
        captured = range(self.states, len(self.body.inputs))
        return [i for i in captured if self._is_float(i) and i not in others]

    def _is_float(self, i: int) -> bool:
        return self.body.types[self.body.inputs[i]].dtype.is_float

    def _scanned(self, number: int) -> Scanned | None:
        """How operand ``number`` is read, if one node reads it slice by slice."""
        name = self.body.inputs[number]
        readers = [i for i, node in enumerate(self.body.nodes) if name in node.inputs]
        if len(readers) != 1 or name in self.body.outputs or not self._is_float(number):
            return None
        op, step = self.body.nodes[readers[0]].op, Sym(self.counter)
        if not isinstance(op, At) or op.position not in (step, self.trips - 1 - step):
            return None
        if self.body.types[name].shape[op.axis] != self.trips:
            return None
        return Scanned(number, readers[0], op.axis, op.position != step)

    def operands(
        self, build: Builder, dys: Values, inputs: Values, history: Values
    ) -> tuple[str, ...]:
        """What the loop over :meth:`iteration` takes, for gradients ``dys`` of all results."""
        first = [dys[i] for i in self.floats]
        zeros = [filled(build, inputs[i]) for i in self.summed]
        slices = [dy for dy in dys[self.states :] if is_float(build.type_of(dy))]
        return (*first, *zeros, *history, *inputs[self.states :], *slices)

    def by_operand(self, results: Values) -> Gradients:
        """Gradients of the loop's operands."""
        numbers = (*self.floats, *self.summed, *(s.number for s in self.stacked))
        found = dict(zip(numbers, results, strict=True))
        return tuple(found.get(i) for i in range(len(self.body.inputs)))

    def iteration(self, places: Sequence[tuple[int, Index]]) -> Graph:
        """One iteration; ``places`` are the axis and position of each slice of the loop's."""
        before = self.trips - 1 - Sym(self.counter)
        turned = {self.counter: before}
        body = self.body.substitute(turned)
        dims = {s: DIM for s in symbols(self.trips)} | dict(body.dims)
        build = GraphBuilder(f"{body.name}_gradient", dims)
        old = self._inputs(build, "d", [*self.floats, *self.summed])
        history = self._histories(build)
        captured = self._inputs(build, "x", range(self.states, len(body.inputs)))
        slices = [
            build.emit(At(axis, substitute(place, turned)), self._stack(build, i, axis))
            for i, (axis, place) in enumerate(places)
            if is_float(self._result(self.states + i))
        ]
        begun = [build.emit(At(0, before), name) for name in history]
        first, ran = begun[: self.states], begun[self.states] if self.conditional else None
        inputs = [*first, *captured]
        run = Recorder(build)
        known = dict(zip(self.saved, begun[self.states + self.conditional :], strict=True))
        results = recalled(run, body, inputs, known)
        read = [run.nodes[s.reader].outputs[0] for s in self.stacked]
        wanted = [*(inputs[i] for i in (*self.floats, *self.summed)), *read]
        given = summed(
            build,
            [name for name in results if is_float(build.type_of(name))],
            [*old[: len(self.floats)], *slices],
        )
        found = adjoints(build, run.nodes, given, wanted)
        new = [found.get(name) or filled(build, name) for name in wanted]
        return build.build(self._next(build, old, new, ran))

    def _next(self, build: Builder, old: Values, new: Sequence[str], ran: str | None) -> list[str]:
        """``new`` added to sums in ``old``, and without effect unless there was an iteration."""
        zeros = [filled(build, name) for name in new[len(old) :]] if ran else []
        results = [
            build.emit(Add(), was, name) if len(self.floats) <= i < len(old) else name
            for i, (was, name) in enumerate(zip_longest(old, new, fillvalue=""))
        ]
        if ran is None:
            return results
        return [
            build.emit(Where(), ran, name, other)
            for name, other in zip(results, (*old, *zeros), strict=True)
        ]

    def _inputs(self, build: GraphBuilder, stem: str, numbers: Iterable[int]) -> list[str]:
        """Inputs like the operands ``numbers`` of the body."""
        types = self.body.types
        return [build.input(f"{stem}{i}", types[self.body.inputs[i]]) for i in numbers]

    def _histories(self, build: GraphBuilder) -> list[str]:
        types = [self.body.types[name] for name in self.body.inputs[: self.states]]
        types += [TensorType((), BOOL)] * self.conditional
        types += [self.body.types[name] for name in self.saved]
        return [
            build.input(f"begun{i}", TensorType((self.trips, *t.shape), t.dtype))
            for i, t in enumerate(types)
        ]

    def _result(self, i: int) -> TensorType:
        return self.body.types[self.body.outputs[i]]

    def _stack(self, build: GraphBuilder, i: int, axis: int) -> str:
        """The input for the gradient of what slices ``i`` were stacked to along ``axis``."""
        part = self._result(self.states + i)
        shape = (*part.shape[:axis], self.trips, *part.shape[axis:])
        return build.input(f"dy{i}", TensorType(shape, part.dtype))
