"""Ops that say how gradients go: not at all, by a rule of one's own, by computing anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.compute import Element, Operand, StageBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import BOOL, F64, I64, Array, TensorType
from modelcc.ops.arithmetic import Elementwise, Identity, Mul, typed_samples, unary_samples
from modelcc.ops.control import Control, require_inputs, result_types, run_body
from modelcc.ops.control_gradients import is_float, summed
from modelcc.ops.reverse import Recorder, adjoints, inlined
from modelcc.ops.samples import sample, tensor
from modelcc.ops.transcendental import Sin


@dataclass(frozen=True)
class StopGradient(Elementwise):
    """``x``, which counts as a constant for gradients."""

    differentiable = False
    domain = "any"
    samples = (*unary_samples(), *typed_samples((I64, BOOL), 1))

    def element(self, x: Element) -> Element:
        return x

    def evaluate(self, x: Array) -> Array:
        return np.array(x)


@dataclass(frozen=True)
class After(Op):
    """``x``, computed once ``token`` is there (x, token).

    What is computed of it is not the same as what is computed of ``x``: a value that is to be
    computed anew, and not kept, depends on it.
    """

    samples = (
        sample(tensor(3, "n"), tensor(2)),
        sample(tensor(), tensor(4, dtype=F64)),
        sample(tensor(4, dtype=I64), tensor(2)),
    )

    def infer(self, x: TensorType, token: TensorType) -> tuple[TensorType]:
        return (x.with_layout(None),)

    def reference(self, x: Array, token: Array) -> Array:
        return x.copy()

    def compute(self, at: StageBuilder, x: Operand, token: Operand) -> Operand:
        return at.stage(x.shape, lambda o: x[o])

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        return (dys[0] if is_float(build.type_of(inputs[0])) else None, None)


@dataclass(frozen=True)
class Checkpoint(Control):
    """The results of ``body``, whose gradient computes again what it needs of the inside.

    Chen et al., "Training deep nets with sublinear memory cost" (2016).
    """

    body: Graph

    def infer(self, *operands: TensorType | None) -> tuple[TensorType, ...]:
        require_inputs("the checkpoint", self.body, operands)
        return result_types(self.body)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        return run_body(self.body, operands)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, ...]:
        return inlined(build, self.body, inputs)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        given = [dy for dy in dys if is_float(build.type_of(dy))]
        begun = [build.emit(After(), name, given[0]) for name in inputs]
        run = Recorder(build)
        results = inlined(run, self.body, begun)
        floats = [name for name in results if is_float(build.type_of(name))]
        found = adjoints(build, run.nodes, summed(build, floats, given), begun)
        return tuple(found.get(name) for name in begun)


@dataclass(frozen=True)
class CustomGradient(Control):
    """The first ``results`` operands, whose gradients go to the ``arguments`` behind them.

    ``backward`` takes the other operands and gradients of results that are floats, and results in
    gradients of those arguments whose numbers are in ``wanted``.
    """

    backward: Graph
    results: int
    arguments: int
    wanted: tuple[int, ...]

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        first, saved = operands[: self.results], operands[self.results + self.arguments :]
        dys = [type.with_layout(None) for type in first if is_float(type)]
        require_inputs("the gradient", self.backward, (*saved, *dys))
        self._require_gradients(operands[self.results : self.results + self.arguments])
        return tuple(type.with_layout(None) for type in first)

    def _require_gradients(self, arguments: Sequence[TensorType]) -> None:
        found = result_types(self.backward)
        require(len(found) == len(self.wanted), "the gradient must have a result for each argument")
        for number, type in zip(self.wanted, found, strict=True):
            expected = arguments[number].with_layout(None)
            fits = type == expected
            require(fits, f"the gradient of argument {number} must be {expected}, not {type}")

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        return tuple(x.copy() for x in operands[: self.results])

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, ...]:
        return tuple(build.emit(Identity(), name) for name in inputs[: self.results])

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        saved = inputs[self.results + self.arguments :]
        given = [dy for dy in dys if is_float(build.type_of(dy))]
        found = inlined(build, self.backward, (*saved, *given))
        gradients: list[str | None] = [None] * len(inputs)
        for number, name in zip(self.wanted, found, strict=True):
            gradients[self.results + number] = name
        return tuple(gradients)


def _sine_of_product() -> Graph:
    build = GraphBuilder("body")
    x, y = (build.input(name, tensor("n", 3)) for name in "xy")
    return build.build([build.emit(Sin(), build.emit(Mul(), x, y))])


def _product() -> Graph:
    """The gradient ``2 x dy`` of a square."""
    build = GraphBuilder("backward")
    twice, dy = (build.input(name, tensor("n", 3)) for name in ("twice", "dy"))
    return build.build([build.emit(Mul(), twice, dy)])


Checkpoint.samples = (sample(tensor("n", 3), tensor("n", 3), body=_sine_of_product()),)
CustomGradient.samples = (
    sample(*(tensor("n", 3),) * 3, backward=_product(), results=1, arguments=1, wanted=(0,)),
)

OPS: tuple[type[Op], ...] = (StopGradient, After, Checkpoint, CustomGradient)
