"""A dialect from outside modelcc: two ops, each with every facet, and nothing else to register.

After ``pip install ./examples/dialect`` modelcc finds it by its entry point (see pyproject.toml):
``modelcc ops waves`` lists it, graph text may use ``"waves.Snake"``, and every target generates
code for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply
from modelcc.ir.op import Builder, Dialect, Gradients, Op, Sample, Values, require, same_dtype
from modelcc.ir.types import Array, TensorType
from modelcc.ops.activation import Activation
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.samples import tensor
from modelcc.ops.transcendental import Sin


@dataclass(frozen=True)
class Snake(Activation):
    """``x + sin(frequency * x)**2 / frequency``, which extrapolates periodic functions.

    Ziyin, Hartwig, Ueda: "Neural networks fail to learn periodic functions and how to fix it",
    2020.  Built on a family's base: it brings the shape rule and broadcasting.
    """

    dialect = "waves"
    samples = (
        Sample((tensor(2, "n", 3),), {}),
        Sample((tensor(8),), {"frequency": 2.5}),
        Sample((tensor(),), {"frequency": 0.5}),
    )
    frequency: float = 1.0

    def evaluate(self, x: Array) -> Array:
        return x + np.sin(x * self.frequency) ** 2 / self.frequency

    def element(self, x: Element) -> Element:
        wave = apply("sin", x * self.frequency)
        return x + wave * wave / self.frequency

    def slope(self, x: Value) -> Value:
        return of(Sin(), x * (2 * self.frequency)) + 1.0


@dataclass(frozen=True)
class Energy(Op):
    """Sum of squares over the last axis: ``(…, n) -> (…)``.  Built on nothing but ``Op``."""

    dialect = "waves"
    samples = (Sample((tensor(3, "n"),), {}), Sample((tensor(2, 3, 4),), {}))

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        (x,) = inputs
        require(x is not None and x.rank > 0, "Energy needs a tensor with an axis to sum over")
        assert x is not None
        require(x.dtype.is_float, f"Energy needs floats, not {x.dtype}")
        return (TensorType(x.shape[:-1], same_dtype(x)),)

    def reference(self, x: Array) -> Array:
        return np.sum(x * x, axis=-1, dtype=x.dtype)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        return at.reduce(x.shape[:-1], x.shape[-1:], "sum", lambda o, r: _square(x[(*o, *r)]))

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        spread = build.emit(Reshape((*build.type_of(x).shape[:-1], 1)), dys[0])
        return ((Value(build, spread) * Value(build, x) * 2.0).name,)


def _square(x: Element) -> Element:
    return x * x


WAVES = Dialect("waves", (Snake, Energy))
