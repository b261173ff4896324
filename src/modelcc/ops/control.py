"""Control flow: a branch and a loop, whose bodies are graphs.

A body is closed: what it takes from around it are operands of the op and inputs of the body.  It
may mention the named dimensions of the graph around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar, Self

import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Expr, Index, Range, Sym, evaluate, substitute, symbols
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import BOOL, Array, TensorType
from modelcc.ops.arithmetic import Add, Mul
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.comparison import Less
from modelcc.ops.control_gradients import LoopGradient, branch_gradient, with_history
from modelcc.ops.generate import Indices
from modelcc.ops.reverse import GradientError
from modelcc.ops.samples import sample, tensor
from modelcc.ops.slicing import At


class Control(Op):
    """Base of ops with graphs among their attributes."""

    costly: ClassVar[bool] = True

    def graphs(self) -> dict[str, Graph]:
        """The bodies by attribute name."""
        return {k: v for k, v in self.attributes().items() if isinstance(v, Graph)}

    def substitute(self, values: Mapping[str, Index]) -> Self:
        bodies = {k: self.inner(v, values) for k, v in self.graphs().items()}
        rest = {
            k: substitute(v, values) if isinstance(v, Expr) else v
            for k, v in self.attributes().items()
        }
        return type(self)(**(rest | bodies))

    def inner(self, body: Graph, values: Mapping[str, Index]) -> Graph:
        """A body with named dimensions of the graph around it replaced, not those it binds."""
        return body.substitute({n: v for n, v in values.items() if n not in body.binds})

    def symbols(self) -> tuple[str, ...]:
        own = {n for v in self.attributes().values() if isinstance(v, Expr) for n in symbols(v)}
        return tuple(sorted(own.union(*(g.symbols for g in self.graphs().values()))))


def require_inputs(what: str, body: Graph, operands: Sequence[TensorType | None]) -> None:
    """Refuse operands that are not of the types of the inputs of ``body``."""
    expected = [body.types[name] for name in body.inputs]
    require(len(expected) == len(operands), f"{what} takes {len(expected)} operands")
    for name, wanted, given in zip(body.inputs, expected, operands, strict=True):
        fits = given is not None and given.with_layout(None) == wanted.with_layout(None)
        require(fits, f"operand {name!r} of {what} must be {wanted}, not {given}")


def _require_condition(given: TensorType | None) -> None:
    fits = given is not None and given.dtype == BOOL and given.shape == ()
    require(fits, f"a condition must be one bool, not {given}")


@dataclass(frozen=True)
class If(Control):
    """The results of ``then`` if the first operand holds, else those of ``other``.

    Both take the operands behind the condition, and have results of the same types.
    """

    then: Graph
    other: Graph

    def infer(self, condition: TensorType, *captured: TensorType | None) -> tuple[TensorType, ...]:
        _require_condition(condition)
        for what, body in (("then", self.then), ("else", self.other)):
            require_inputs(f"the {what} branch", body, captured)
        results = [result_types(body) for body in (self.then, self.other)]
        for number, (a, b) in enumerate(zip(*results, strict=False)):
            require(a == b, f"result {number} of the branches differs: {a} and {b}")
        require(len(results[0]) == len(results[1]), "the branches differ in their results")
        return results[0]

    def reference(self, condition: Array, *captured: Array) -> tuple[Array, ...]:
        taken = self.then if bool(condition) else self.other
        return run_body(taken, captured)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Of the branch that is taken: a branch again, which computes what it needs anew."""
        condition, *captured = inputs
        wanted = [i for i, name in enumerate(captured) if build.type_of(name).dtype.is_float]
        bodies = {k: branch_gradient(body, wanted) for k, body in self.graphs().items()}
        given = [dy for dy in dys if build.type_of(dy).dtype.is_float]
        found = build.add(If(**bodies), condition, *captured, *given) if wanted else ()
        gradients: list[str | None] = [None] * len(inputs)
        for i, name in zip(wanted, found, strict=True):
            gradients[1 + i] = name
        return tuple(gradients)


def result_types(body: Graph) -> tuple[TensorType, ...]:
    """Types of what ``body`` results in."""
    return tuple(body.types[name].with_layout(None) for name in body.outputs)


def run_body(body: Graph, operands: Sequence[Array]) -> tuple[Array, ...]:
    """What ``body`` results in, interpreted."""
    results = interpret(body, dict(zip(body.inputs, operands, strict=True)))
    return tuple(results[name] for name in body.outputs)


@dataclass(frozen=True)
class Loop(Control):
    """Iterations of ``body`` with ``counter`` at 0, 1, … before ``trips`` (None: no bound).

    Operands are the first values of ``states`` and what the body captures, which are its inputs.
    It results in the next states, then in one slice for each of ``axes``.  Results of the loop
    are the last states, then the slices stacked: along a new axis at ``axes[i]``, the slice of
    iteration ``t`` at ``t``, or at ``trips - 1 - t`` if ``backwards[i]``.

    If ``conditional``, the first state is a bool, and the loop ends before the first iteration at
    whose start it does not hold; the parts of stacked slices that are left are zero.
    """

    body: Graph
    counter: str
    trips: Index | None
    states: int = 0
    conditional: bool = False
    axes: tuple[int, ...] = ()
    backwards: tuple[bool, ...] = ()

    def inner(self, body: Graph, values: Mapping[str, Index]) -> Graph:
        return super().inner(body, {n: v for n, v in values.items() if n != self.counter})

    def symbols(self) -> tuple[str, ...]:
        return tuple(name for name in super().symbols() if name != self.counter)

    def infer(self, *operands: TensorType | None) -> tuple[TensorType, ...]:
        require_inputs("the loop", self.body, operands)
        require(
            self.trips is not None or (self.conditional and not self.axes),
            "a loop without a bound needs a condition, and cannot stack slices",
        )
        if self.conditional:
            _require_condition(operands[0] if operands else None)
        results = result_types(self.body)
        counted = self.states + len(self.axes)
        require(
            len(results) == counted and len(self.axes) == len(self.backwards),
            f"the body of the loop must have {counted} results, not {len(results)}",
        )
        for number, (first, after) in enumerate(
            zip(operands[: self.states], results[: self.states], strict=True)
        ):
            same = first is not None and first.with_layout(None) == after
            require(same, f"state {number} of the loop is {first} at first and {after} later")
        return (*results[: self.states], *map(self._stacked, results[self.states :], self.axes))

    def _stacked(self, part: TensorType, axis: int) -> TensorType:
        require(0 <= axis <= part.rank, f"there is no axis {axis} to stack {part} along")
        assert self.trips is not None
        return TensorType((*part.shape[:axis], self.trips, *part.shape[axis:]), part.dtype)

    def place(self, number: int) -> Index:
        """Where slice ``number`` of an iteration goes, along its axis."""
        assert self.trips is not None
        step = Sym(self.counter)
        return self.trips - 1 - step if self.backwards[number] else step

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        states, captured = list(operands[: self.states]), operands[self.states :]
        trips = None if self.trips is None else evaluate(self.trips, {})
        parts: list[tuple[Array, ...]] = []
        for step in count() if trips is None else range(trips):
            if self.conditional and not bool(states[0]):
                break
            body = self.body.substitute({self.counter: step})
            results = run_body(body, (*states, *captured))
            states = list(results[: self.states])
            parts.append(results[self.states :])
        return (*states, *self._filled(parts))

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """The iterations backwards, from the states that a second run of the loop has kept."""
        recorded = self.recorded(slices=False)
        history = build.add(recorded, *inputs)[self.states :] if recorded.axes else ()
        return self.backward(build, dys, inputs, history)

    def recorded(self, slices: bool) -> Loop:
        """This loop, which stacks behind its own slices, or in place of them, what
        :meth:`backward` wants to know of its iterations."""
        back, own = self._gradient(), len(self.axes) if slices else 0
        return replace(
            self,
            body=with_history(
                self.body, self.states, self.conditional, back.saved, self.states + own
            ),
            axes=(*self.axes[:own], *(0,) * back.histories),
            backwards=(*self.backwards[:own], *(False,) * back.histories),
        )

    def backward(self, build: Builder, dys: Values, inputs: Values, history: Values) -> Gradients:
        """Gradients of ``inputs`` from those of all results and the ``history`` of a run."""
        back = self._gradient()
        places = tuple(zip(self.axes, map(self.place, range(len(self.axes))), strict=True))
        body, stacked = back.iteration(places), back.stacked
        loop = Loop(
            body,
            self.counter,
            self.trips,
            len(body.outputs) - len(stacked),
            axes=tuple(s.axis for s in stacked),
            backwards=tuple(not s.backwards for s in stacked),
        )
        return back.by_operand(build.add(loop, *back.operands(build, dys, inputs, history)))

    def _gradient(self) -> LoopGradient:
        if self.trips is None:
            raise GradientError("a loop without a bound has no gradient in reverse")
        return LoopGradient(self.body, self.counter, self.trips, self.states, self.conditional)

    def _filled(self, parts: list[tuple[Array, ...]]) -> list[Array]:
        stacked: list[Array] = []
        types = result_types(self.body)[self.states :]
        for number, (axis, type) in enumerate(zip(self.axes, types, strict=True)):
            whole = self._stacked(type, axis)
            result = np.zeros(whole.static_shape(), type.dtype.numpy)
            for step, part in enumerate(parts):
                at = evaluate(self.place(number), {self.counter: step})
                np.moveaxis(result, axis, 0)[at] = part[number]
            stacked.append(result)
        return stacked


def _branch(op: Op) -> Graph:
    build = GraphBuilder("branch")
    x, y = (build.input(name, tensor("n", 3)) for name in "xy")
    return build.build([build.emit(op, x, y), x])


def _sum_of_rows(conditional: bool = False) -> Graph:
    """``s + x[step]`` and ``s * step``; goes on while the sum is below 2."""
    build, step = GraphBuilder("body", {"step": Range(0, None)}), Sym("step")
    more = build.input("more", TensorType((), BOOL)) if conditional else ""
    s, x = build.input("s", tensor(3)), build.input("x", tensor("n", 3))
    after = build.emit(Add(), s, build.emit(At(0, step), x))
    factor = build.emit(Indices((step,), (), tensor().dtype))
    product = build.emit(Mul(), s, factor)
    if not more:
        return build.build([after, product])
    total = build.emit(ReduceSum((0,), False), after)
    return build.build([build.emit(Less(), total, build.constant(2.0)), after, product])


_LOOP: Mapping[str, object] = {"counter": "step", "trips": Sym("n")}
If.samples = (
    sample(
        np.array(True), tensor("n", 3), tensor("n", 3), then=_branch(Add()), other=_branch(Mul())
    ),
)
Loop.samples = (
    sample(
        *(tensor(3), tensor("n", 3)),
        **{"body": _sum_of_rows(), "states": 1, "axes": (0,), "backwards": (False,), **_LOOP},
    ),
    sample(
        *(tensor(3), tensor("n", 3)),
        **{"body": _sum_of_rows(), "states": 1, "axes": (1,), "backwards": (True,), **_LOOP},
    ),
    sample(
        *(np.array(True), tensor(3), tensor("n", 3)),
        **{"body": _sum_of_rows(True), "states": 2, "axes": (0,), "backwards": (False,), **_LOOP},
        conditional=True,
    ),
)

OPS: tuple[type[Op], ...] = (If, Loop)
