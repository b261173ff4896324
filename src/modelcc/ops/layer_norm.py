"""Normalisation over trailing axes: LayerNorm and RMSNorm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require, same_dtype
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_float, widen
from modelcc.ops.arithmetic import Add, Mul, Value, of
from modelcc.ops.broadcast import unbroadcast
from modelcc.ops.samples import sample, tensor
from modelcc.ops.statistics import standardised, standardised_adjoint, statistics
from modelcc.ops.views import cast


class TrailingNorm(Op):
    """Base: the axes from ``axis`` on are standardised, then scaled and shifted.

    Parameters broadcast to the first operand; if ``centred``, the mean is taken off first.
    """

    axis: int
    epsilon: float
    centred: ClassVar[bool]

    def checked(self, x: TensorType, *parameters: TensorType | None) -> tuple[TensorType]:
        """The result's type; refuses what does not fit."""
        self.require_meetings(x, *parameters)
        name = type(self).__name__
        require_float(x.dtype, name)
        inside = 0 <= self.axis < x.rank
        require(inside, f"{name} from axis {self.axis} on of {x}, which has {x.rank} axes")
        for p in parameters:
            if p is not None:
                same_dtype(x, p)
                require(p.rank <= x.rank, f"{name} parameter {p} has more axes than {x}")
        return (TensorType(x.shape, x.dtype),)

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        x, *parameters = operands
        for p in parameters:
            if p is None or x is None:
                continue
            for ours, theirs in zip(reversed(p.shape), reversed(x.shape), strict=False):
                if ours != 1:
                    yield ours, theirs, f"parameter {p} does not broadcast to {x}"

    def reference(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        wide, axes = widen(x), tuple(range(self.axis, x.ndim))
        centred = wide - wide.mean(axis=axes, keepdims=True) if self.centred else wide
        squares = np.square(centred).mean(axis=axes, keepdims=True)
        y = centred / np.sqrt(squares + np.asarray(self.epsilon, wide.dtype))
        y = y if scale is None else y * widen(scale)
        y = y if bias is None else y + widen(bias)
        return y.astype(x.dtype, copy=False)

    def compute(
        self,
        at: StageBuilder,
        x: Operand,
        scale: Operand | None = None,
        bias: Operand | None = None,
    ) -> Operand:
        outer, inner = x.shape[: self.axis], x.shape[self.axis :]
        stats = statistics(at, x, outer, inner, lambda o, r: (*o, *r), self.epsilon, self.centred)
        wide = stats.inverse.dtype

        def body(o: Point) -> Element:
            value = stats.normalise(x[o], o[: self.axis])
            value = value if scale is None else value * scale.broadcast(o).cast(wide)
            value = value if bias is None else value + bias.broadcast(o).cast(wide)
            return value.cast(x.dtype)

        return at.stage(x.shape, body)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        x = Value(build, inputs[0])
        wide, axes = cast(x, accumulator(x.type.dtype)), tuple(range(self.axis, x.type.rank))
        y, _ = standardised(wide, axes, self.epsilon, self.centred)
        for name, combine in zip(inputs[1:], (Mul(), Add()), strict=False):
            y = of(combine, y, cast(Value(build, name), y.type.dtype)) if name else y
        return (cast(y, x.type.dtype).name,)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, upstream = Value(build, inputs[0]), Value(build, dys[0])
        axes = tuple(range(self.axis, x.type.rank))
        y, inverse = standardised(x, axes, self.epsilon, self.centred)
        scale = next(iter(inputs[1:]), "")
        scaled = upstream * Value(build, scale) if scale else upstream
        dx = standardised_adjoint(scaled, y, inverse, axes, self.centred)
        sums = (upstream * y, upstream)
        parameters = tuple(
            unbroadcast(build, total.name, build.type_of(name).shape) if name else None
            for name, total in zip(inputs[1:], sums, strict=False)
        )
        return (dx.name, *parameters)


@dataclass(frozen=True)
class LayerNorm(TrailingNorm):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` over the axes from ``axis`` on.

    scale and bias broadcast to those axes (Ba et al., "Layer normalization", 2016).
    """

    axis: int
    epsilon: float = 1e-5
    centred = True
    samples = (
        sample(tensor("b", "s", 8), tensor(8), tensor(8), axis=2),
        sample(tensor(2, 3, 4), tensor(3, 4), axis=1, epsilon=1e-3),
        sample(tensor(2, 3, 4), axis=2),
        sample(tensor(2, "d"), tensor("d"), tensor("d"), axis=1),
        sample(tensor(2, 6, dtype=F16), tensor(6, dtype=F16), tensor(6, dtype=F16), axis=1),
    )

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> tuple[TensorType]:
        return self.checked(x, scale, bias)


@dataclass(frozen=True)
class RMSNorm(TrailingNorm):
    """``x / sqrt(mean of x^2 + epsilon) * scale`` over the axes from ``axis`` on.

    Zhang & Sennrich, "Root mean square layer normalization", 2019.
    """

    axis: int
    epsilon: float = 1e-5
    centred = False
    samples = (
        sample(tensor("b", "s", 8), tensor(8), axis=2),
        sample(tensor(2, 3, 4), tensor(3, 4), axis=1, epsilon=1e-3),
        sample(tensor(2, 6, dtype=F16), tensor(6, dtype=F16), axis=1),
    )

    def infer(self, x: TensorType, scale: TensorType | None = None) -> tuple[TensorType]:
        return self.checked(x, scale)


OPS: tuple[type[Op], ...] = (LayerNorm, RMSNorm)
