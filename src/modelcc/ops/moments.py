"""Mean and variance together, which normalisation of a batch takes both of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, index_value
from modelcc.ir.index import product
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, combined, require_float, widen
from modelcc.ops.arithmetic import Value
from modelcc.ops.broadcast import Reduction, reduction_samples
from modelcc.ops.generate import Indices
from modelcc.ops.samples import Sample


def _samples() -> tuple[Sample, ...]:
    found = reduction_samples()
    return tuple(Sample(s.operands, {"axes": s.attributes["axes"]}) for s in found)


@dataclass(frozen=True)
class Moments(Op):
    """Mean over ``axes``, which remain as 1, and the mean square of the distance from it."""

    axes: tuple[int, ...]
    samples = _samples()

    @property
    def reduction(self) -> Reduction:
        """Where elements of the results come from."""
        return Reduction(self.axes, True)

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require_float(x.dtype, "Moments")
        for axis in self.axes:
            require(0 <= axis < x.rank, f"Moments over axis {axis} of {x}")
        result = TensorType(self.reduction.kept_shape(x.shape), x.dtype)
        return result, result

    def reference(self, x: Array) -> tuple[Array, Array]:
        wide = widen(x)
        mean = np.asarray(wide.mean(self.axes, keepdims=True))
        squares = np.asarray(np.square(wide - mean))
        return tuple(np.asarray(m, x.dtype) for m in (mean, squares.mean(self.axes, keepdims=True)))

    def compute(self, at: StageBuilder, x: Operand) -> tuple[Operand, Operand]:
        """By two passes, so that nothing cancels."""
        wide, extents = accumulator(x.dtype), [x.shape[a] for a in self.axes]
        count, place = index_value(product(extents), wide), self.reduction.source
        shape = self.reduction.kept_shape(x.shape)

        def element(o: Point, r: Point) -> Element:
            return x[place(o, r, x.rank)].cast(wide)

        total = combined(at, shape, extents, "sum", element)
        mean = at.stage(shape, lambda o: total[o] / count)

        def square(o: Point, r: Point) -> Element:
            distance = element(o, r) - mean[o]
            return distance * distance

        squares = combined(at, shape, extents, "sum", square)
        var = at.stage(shape, lambda o: (squares[o] / count).cast(x.dtype))
        return (mean if wide == x.dtype else at.stage(shape, lambda o: mean[o].cast(x.dtype))), var

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """The variance by way of the mean adds nothing: distances from it add up to 0."""
        x, mean = Value(build, inputs[0]), Value(build, outputs[0])
        dmean, dvar = (Value(build, name) for name in dys)
        shape, dtype = x.type.shape, x.type.dtype
        count = build.emit(Indices((product(shape[a] for a in self.axes),), (), dtype))
        distance = x - mean
        return (((dmean + distance * dvar * 2.0) / Value(build, count)).name,)


OPS: tuple[type[Op], ...] = (Moments,)
