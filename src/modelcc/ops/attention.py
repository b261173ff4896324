"""Softmax, its logarithm, and scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply
from modelcc.ir.narrowing import Narrowing
from modelcc.ir.op import (
    Builder,
    Gradients,
    Meeting,
    Op,
    Sample,
    Values,
    require,
)
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_float, rounded, widen
from modelcc.ops.arithmetic import Cast, Value, of
from modelcc.ops.broadcast import ReduceSum, unbroadcast, with_axis
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.samples import bounded, sample, tensor
from modelcc.ops.scaled_dot_product import ScaledDotProduct, mixed_values
from modelcc.ops.shape import Transpose
from modelcc.ops.softmax_stages import exponentials, softmax_stages
from modelcc.ops.transcendental import Exp, Log

_HALF: Mapping[str, object] = MappingProxyType({"scale": 0.5})
_TURNED = Transpose((0, 1, 3, 2))


def _axis_samples() -> tuple[Sample, ...]:
    return (
        sample(tensor("n", 7), axis=1),
        sample(tensor(2, 3, "s"), axis=2),
        sample(tensor(2, 5, 3), axis=1),
        sample(tensor(4, 3), axis=0),
        bounded((-40.0, 40.0), tensor(2, 6), axis=1),
        sample(tensor(3, 1), axis=1),
        sample(tensor(2, 5, dtype=F16), axis=1),
    )


@dataclass(frozen=True)
class AxisOp(Op):
    """A same-shaped result that normalises a float tensor along one axis."""

    axis: int
    samples = _axis_samples()

    def infer(self, x: TensorType) -> tuple[TensorType]:
        name = type(self).__name__
        require_float(x.dtype, name)
        require(
            0 <= self.axis < x.rank,
            f"{name} along axis {self.axis} of {x}, which has {x.rank} axes",
        )
        return (TensorType(x.shape, x.dtype),)


@dataclass(frozen=True)
class Softmax(AxisOp):
    """``exp(x) / sum exp(x)`` along ``axis``, shifted by the maximum."""

    def reference(self, x: Array) -> Array:
        wide = widen(x)
        powers = np.exp(wide - wide.max(axis=self.axis, keepdims=True))
        return (powers / powers.sum(axis=self.axis, keepdims=True)).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        return softmax_stages(at, x, self.axis, x.dtype)

    def decompose(self, build: Builder, x: str) -> tuple[str]:
        value = Value(build, x)
        powers = of(Exp(), value - of(ReduceMax((self.axis,)), value))
        return ((powers / of(ReduceSum((self.axis,)), powers)).name,)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        dy, y = Value(build, dys[0]), Value(build, outputs[0])
        return (softmax_adjoint(dy, y, self.axis).name,)


def softmax_adjoint(dy: Value, y: Value, axis: int) -> Value:
    """Gradient of the operand of a softmax with result ``y``."""
    return y * (dy - of(ReduceSum((axis,)), dy * y))


@dataclass(frozen=True)
class LogSoftmax(AxisOp):
    """``x - log sum exp(x)`` along ``axis``, shifted by the maximum."""

    def reference(self, x: Array) -> Array:
        wide = widen(x)
        shifted = wide - wide.max(axis=self.axis, keepdims=True)
        total = np.log(np.exp(shifted).sum(axis=self.axis, keepdims=True))
        return (shifted - total).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        highest, _, total = exponentials(at, x, self.axis)
        logarithm = at.stage(total.shape, lambda o: apply("log", total[o]))

        def body(o: Point) -> Element:
            kept = with_axis(o, self.axis, 0)
            return (x[o].cast(total.dtype) - highest[kept] - logarithm[kept]).cast(x.dtype)

        return at.stage(x.shape, body)

    def decompose(self, build: Builder, x: str) -> tuple[str]:
        value = Value(build, x)
        shifted = value - of(ReduceMax((self.axis,)), value)
        total = of(ReduceSum((self.axis,)), of(Exp(), shifted))
        return ((shifted - of(Log(), total)).name,)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        dy, y = Value(build, dys[0]), Value(build, outputs[0])
        return ((dy - of(Exp(), y) * of(ReduceSum((self.axis,)), dy)).name,)


@dataclass(frozen=True)
class Attention(ScaledDotProduct):
    """``softmax(scale * q @ k^T + mask) @ v`` (Vaswani et al., "Attention is all you need", 2017).

    q is ``[b, h, m, d]``, k ``[b, h, n, d]``, v ``[b, h, n, e]``, mask broadcasts to
    ``[b, h, m, n]``, may be as wide as sums are, and is added to scores.  If ``causal``, query i
    sees the keys up to ``i + offset``.
    """

    narrowing = Narrowing("products", kept=(3,))
    samples = (
        sample(*(tensor("b", 2, "s", 4),) * 3, **_HALF),
        sample(tensor(1, 2, 3, 4), tensor(1, 2, 5, 4), tensor(1, 2, 5, 6), **_HALF),
        sample(tensor(2, 2, 3, 4), *(tensor(2, 2, 5, 4),) * 2, tensor(2, 1, 3, 5), **_HALF),
        sample(tensor(1, 2, 3, 4), tensor(1, 2, 3, 4), tensor(1, 2, 3, 4), tensor(3), **_HALF),
        sample(*(tensor(1, 2, 4, 3),) * 3, scale=0.6, causal=True),
        sample(tensor(1, 2, 2, 3), *(tensor(1, 2, 5, 3),) * 2, scale=0.6, causal=True, offset=3),
        sample(*(tensor(1, 2, 3, 4, dtype=F16),) * 3, **_HALF),
        sample(*(tensor(1, 2, 3, 4, dtype=F16),) * 3, tensor(3, 3), **_HALF),
    )

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> tuple[TensorType]:
        dtype = self.require_operands(q, k, v, mask)
        self.require_meetings(q, k, v, mask)
        return (TensorType((*q.shape[:3], v.shape[3]), dtype),)

    def meetings(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> Iterator[Meeting]:
        return self.operands_meet(q, k, v, mask)

    def reference(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        weights = Softmax(3).reference(self.known_scores(q, k, mask))
        return np.matmul(weights, widen(v)).astype(q.dtype, copy=False)

    def compute(
        self, at: StageBuilder, q: Operand, k: Operand, v: Operand, mask: Operand | None = None
    ) -> Operand:
        weights = softmax_stages(at, self.scores(at, q, k, mask), 3, accumulator(q.dtype))
        return rounded(at, mixed_values(at, weights, v), q.dtype)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        q, k, v, *masks = (Value(build, name) for name in inputs if name)
        weights = of(Softmax(3), self.emitted_scores(build, q, k, masks))
        return (of(MatMul(), weights, v).name,)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        adjoint = AttentionAdjoint(self.scale, self.causal, self.offset)
        found = iter(build.add(adjoint, dys[0], outputs[0], *inputs))
        return tuple(next(found) if name else None for name in inputs)


@dataclass(frozen=True)
class AttentionAdjoint(ScaledDotProduct):
    """Gradients of the operands of ``Attention`` with the result ``y``, given its gradient ``dy``.

    Other operands are those of ``Attention``; a mask has a gradient, too, the last one.
    """

    samples = (
        sample(*(tensor("b", 2, "s", 4),) * 5, **_HALF),
        sample(
            *(tensor(1, 2, 3, 6),) * 2, tensor(1, 2, 3, 4), tensor(1, 2, 5, 4), tensor(1, 2, 5, 6),
            tensor(3, 1), scale=0.5,
        ),
        sample(
            *(tensor(1, 2, 2, 3),) * 3, *(tensor(1, 2, 5, 3),) * 2, scale=0.6, causal=True,
            offset=3,
        ),
    )  # fmt: skip

    def infer(
        self, dy: TensorType, y: TensorType, q: TensorType, k: TensorType, v: TensorType,
        mask: TensorType | None = None,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        dtype = self.require_operands(q, k, v, mask)
        for result in (dy, y):
            fits = result.dtype == dtype and result.rank == 4
            require(fits, f"{type(self).__name__} of {result} needs {dtype} of 4 axes")
        self.require_meetings(dy, y, q, k, v, mask)
        return tuple(TensorType(x.shape, x.dtype) for x in (q, k, v, mask) if x is not None)

    def meetings(
        self, dy: TensorType, y: TensorType, q: TensorType, k: TensorType, v: TensorType,
        mask: TensorType | None = None,
    ) -> Iterator[Meeting]:  # fmt: skip
        yield from self.operands_meet(q, k, v, mask)
        for result in (dy, y):
            for own, other in zip(result.shape, (*q.shape[:3], v.shape[3]), strict=True):
                yield own, other, f"result {result} and operands {q} and {v} differ"

    def reference(
        self, dy: Array, y: Array, q: Array, k: Array, v: Array, mask: Array | None = None
    ) -> tuple[Array, ...]:
        scores = self.known_scores(q, k, mask)
        powers = np.exp(scores - scores.max(axis=3, keepdims=True))
        weights = powers / powers.sum(axis=3, keepdims=True)
        moved = np.matmul(widen(dy), widen(v).swapaxes(2, 3))
        slopes = weights * (moved - (widen(dy) * widen(y)).sum(axis=3, keepdims=True))
        scaled = slopes * np.asarray(self.scale, slopes.dtype)
        found = [
            np.matmul(scaled, widen(k)),
            np.matmul(scaled.swapaxes(2, 3), widen(q)),
            np.matmul(weights.swapaxes(2, 3), widen(dy)),
        ]
        results = [x.astype(q.dtype, copy=False) for x in found]
        if mask is None:
            return tuple(results)
        own = (1,) * (4 - mask.ndim) + mask.shape
        along = tuple(n for n, extent in enumerate(own) if extent != slopes.shape[n])
        of_mask = slopes.sum(axis=along, keepdims=True).reshape(mask.shape)
        return (*results, of_mask.astype(mask.dtype))

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, ...]:
        dy, y, q, k, v, *masks = (Value(build, name) for name in inputs if name)
        weights = of(Softmax(3), self.emitted_scores(build, q, k, masks))
        deltas = of(ReduceSum((3,)), dy * y)
        slopes = weights * (of(MatMul(), dy, of(_TURNED, v)) - deltas)
        scaled = slopes * self.scale
        dq, dk = of(MatMul(), scaled, k), of(MatMul(), of(_TURNED, scaled), q)
        dv = of(MatMul(), of(_TURNED, weights), dy)
        of_masks = [Value(build, unbroadcast(build, slopes.name, m.type.shape)) for m in masks]
        own = [of(Cast(m.type.dtype), x) for m, x in zip(masks, of_masks, strict=True)]
        return (dq.name, dk.name, dv.name, *(x.name for x in own))


OPS: tuple[type[Op], ...] = (Softmax, LogSoftmax, Attention, AttentionAdjoint)
