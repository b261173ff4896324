"""Normalisation over trailing axes: LayerNorm and RMSNorm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder
from modelcc.ir.op import Builder, Meeting, Op, require, same_dtype
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import (
    Point,
    accumulator,
    require_float,
    widen,
)
from modelcc.ops.arithmetic import Add, Mul, Value, of
from modelcc.ops.broadcast import unbroadcast
from modelcc.ops.samples import sample, tensor
from modelcc.ops.statistics import cast, standardised, standardised_adjoint, statistics


class TrailingNorm(Op):
    """Base: parameters broadcast to the first operand."""

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        x, *parameters = operands
        for p in parameters:
            if p is None or x is None:
                continue
            for ours, theirs in zip(reversed(p.shape), reversed(x.shape), strict=False):
                if ours != 1:
                    yield ours, theirs, f"parameter {p} does not broadcast to {x}"


@dataclass(frozen=True)
class LayerNorm(TrailingNorm):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` over the axes from ``axis`` on.

    scale and bias broadcast to those axes (Ba et al., "Layer normalization", 2016).
    """

    axis: int
    epsilon: float = 1e-5
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
        self.require_meetings(x, scale, bias)
        return _infer_trailing(type(self).__name__, self.axis, x, scale, bias)

    def reference(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        wide, axes = widen(x), tuple(range(self.axis, x.ndim))
        centred = wide - wide.mean(axis=axes, keepdims=True)
        variance = np.square(centred).mean(axis=axes, keepdims=True)
        y = centred / np.sqrt(variance + np.asarray(self.epsilon, wide.dtype))
        return _affine(y, scale, bias).astype(x.dtype, copy=False)

    def compute(
        self,
        at: StageBuilder,
        x: Operand,
        scale: Operand | None = None,
        bias: Operand | None = None,
    ) -> Operand:
        return _trailing(at, x, self.axis, self.epsilon, True, scale, bias)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        return (_decomposed(build, self.axis, self.epsilon, True, *inputs),)

    def grad(self, build: Builder, dys: Sequence[str], *inputs: str) -> tuple[str | None, ...]:
        return _gradients(build, dys[0], self.axis, self.epsilon, True, *inputs)


@dataclass(frozen=True)
class RMSNorm(TrailingNorm):
    """``x / sqrt(mean of x^2 + epsilon) * scale`` over the axes from ``axis`` on.

    Zhang & Sennrich, "Root mean square layer normalization", 2019.
    """

    axis: int
    epsilon: float = 1e-5
    samples = (
        sample(tensor("b", "s", 8), tensor(8), axis=2),
        sample(tensor(2, 3, 4), tensor(3, 4), axis=1, epsilon=1e-3),
        sample(tensor(2, 6, dtype=F16), tensor(6, dtype=F16), axis=1),
    )

    def infer(self, x: TensorType, scale: TensorType | None = None) -> tuple[TensorType]:
        self.require_meetings(x, scale)
        return _infer_trailing("RMSNorm", self.axis, x, scale, None)

    def reference(self, x: Array, scale: Array | None = None) -> Array:
        wide, axes = widen(x), tuple(range(self.axis, x.ndim))
        squares = np.square(wide).mean(axis=axes, keepdims=True)
        y = wide / np.sqrt(squares + np.asarray(self.epsilon, wide.dtype))
        return _affine(y, scale, None).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand, scale: Operand | None = None) -> Operand:
        return _trailing(at, x, self.axis, self.epsilon, False, scale, None)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        return (_decomposed(build, self.axis, self.epsilon, False, *inputs),)

    def grad(self, build: Builder, dys: Sequence[str], *inputs: str) -> tuple[str | None, ...]:
        return _gradients(build, dys[0], self.axis, self.epsilon, False, *inputs)


def _decomposed(build: Builder, axis: int, epsilon: float, centred: bool, *inputs: str) -> str:
    x = Value(build, inputs[0])
    wide, axes = cast(x, accumulator(x.type.dtype)), tuple(range(axis, x.type.rank))
    y, _ = standardised(wide, axes, epsilon, centred)
    for name, combine in zip(inputs[1:], (Mul(), Add()), strict=False):
        y = of(combine, y, cast(Value(build, name), y.type.dtype)) if name else y
    return cast(y, x.type.dtype).name


def _gradients(
    build: Builder, dy: str, axis: int, epsilon: float, centred: bool, *inputs: str
) -> tuple[str | None, ...]:
    x, upstream = Value(build, inputs[0]), Value(build, dy)
    axes = tuple(range(axis, x.type.rank))
    y, inverse = standardised(x, axes, epsilon, centred)
    scale = next(iter(inputs[1:]), "")
    scaled = upstream * Value(build, scale) if scale else upstream
    dx = standardised_adjoint(scaled, y, inverse, axes, centred)
    sums = (upstream * y, upstream)
    parameters = tuple(
        unbroadcast(build, total.name, build.type_of(name).shape) if name else None
        for name, total in zip(inputs[1:], sums, strict=False)
    )
    return (dx.name, *parameters)


def _infer_trailing(
    name: str, axis: int, x: TensorType, *parameters: TensorType | None
) -> tuple[TensorType]:
    require_float(x.dtype, name)
    require(0 <= axis < x.rank, f"{name} from axis {axis} on of {x}, which has {x.rank} axes")
    for p in parameters:
        if p is None:
            continue
        same_dtype(x, p)
        require(p.rank <= x.rank, f"{name} parameter {p} has more axes than {x}")
    return (TensorType(x.shape, x.dtype),)


def _affine(y: Array, scale: Array | None, bias: Array | None) -> Array:
    y = y if scale is None else y * widen(scale)
    return y if bias is None else y + widen(bias)


def _trailing(
    at: StageBuilder,
    x: Operand,
    kept: int,
    epsilon: float,
    centred: bool,
    scale: Operand | None,
    bias: Operand | None,
) -> Operand:
    outer, inner = x.shape[:kept], x.shape[kept:]
    stats = statistics(at, x, outer, inner, lambda o, r: (*o, *r), epsilon, centred)
    wide = stats.inverse.dtype

    def body(o: Point) -> Element:
        value = stats.normalise(x[o], o[:kept])
        value = value if scale is None else value * scale.broadcast(o).cast(wide)
        value = value if bias is None else value + bias.broadcast(o).cast(wide)
        return value.cast(x.dtype)

    return at.stage(x.shape, body)


OPS: tuple[type[Op], ...] = (LayerNorm, RMSNorm)
