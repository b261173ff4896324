"""Softmax, its logarithm, and scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, select
from modelcc.ir.index import Index
from modelcc.ir.narrowing import Narrowing
from modelcc.ir.op import (
    Builder,
    Gradients,
    Meeting,
    Op,
    Sample,
    Values,
    broadcast_shapes,
    require,
    same_dtype,
)
from modelcc.ir.types import F16, I32, I64, Array, DType, TensorType
from modelcc.ops.accumulate import Point, accumulator, combined, require_float, rounded, widen
from modelcc.ops.arithmetic import Cast, Value, of
from modelcc.ops.broadcast import ReduceSum, unbroadcast, with_axis
from modelcc.ops.comparison import LessOrEqual, where
from modelcc.ops.generate import Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.samples import bounded, sample, tensor
from modelcc.ops.shape import Transpose
from modelcc.ops.transcendental import Exp, Log

_HALF: Mapping[str, object] = MappingProxyType({"scale": 0.5})


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


def _exponentials(at: StageBuilder, x: Operand, axis: int) -> tuple[Operand, Operand, Operand]:
    """Maximum along ``axis``, ``exp(x - maximum)`` and its sum, in the accumulator of ``x``."""
    wide, kept, extent = accumulator(x.dtype), with_axis(x.shape, axis, 1), x.shape[axis : axis + 1]
    highest = combined(at, kept, extent, "max", lambda o, r: x[with_axis(o, axis, r[0])].cast(wide))
    powers = at.stage(
        x.shape, lambda o: apply("exp", x[o].cast(wide) - highest[with_axis(o, axis, 0)])
    )
    total = combined(at, kept, extent, "sum", lambda o, r: powers[with_axis(o, axis, r[0])])
    return highest, powers, total


def softmax_stages(at: StageBuilder, x: Operand, axis: int, dtype: DType) -> Operand:
    """Softmax along ``axis`` as maximum, exponential, sum and quotient, rounded to ``dtype``."""
    _, powers, total = _exponentials(at, x, axis)
    return at.stage(x.shape, lambda o: (powers[o] / total[with_axis(o, axis, 0)]).cast(dtype))


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
        highest, _, total = _exponentials(at, x, self.axis)
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
class Attention(Op):
    """``softmax(scale * q @ k^T + mask) @ v`` (Vaswani et al., "Attention is all you need", 2017).

    q is ``[b, h, m, d]``, k ``[b, h, n, d]``, v ``[b, h, n, e]``, mask broadcasts to
    ``[b, h, m, n]``, may be as wide as sums are, and is added to scores.  If ``causal``, query i
    sees the keys up to ``i + offset``.
    """

    costly: ClassVar[bool] = True
    narrowing = Narrowing("products", kept=(3,))
    scale: float
    causal: bool = False
    offset: Index = 0
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
        dtype = same_dtype(q, k, v)
        require_float(dtype, "Attention")
        if mask is not None and mask.dtype != accumulator(dtype):
            same_dtype(q, mask)
        require(
            q.rank == k.rank == v.rank == 4,
            f"Attention needs [batch, heads, length, size] operands, not {q}, {k} and {v}",
        )
        self.require_meetings(q, k, v, mask)
        if mask is not None:
            scores = (*q.shape[:3], k.shape[2])
            fits = mask.rank <= 4 and len(broadcast_shapes(mask.shape, scores)) == 4
            require(fits, f"mask {mask} does not broadcast to {TensorType(scores, dtype)}")
        return (TensorType((*q.shape[:3], v.shape[3]), dtype),)

    def meetings(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> Iterator[Meeting]:
        for axis, what in ((0, "batches"), (1, "heads")):
            for other in (k, v):
                yield q.shape[axis], other.shape[axis], f"{what} of {q} and {other} differ"
        yield q.shape[3], k.shape[3], f"head sizes of queries {q} and keys {k} differ"
        yield k.shape[2], v.shape[2], f"lengths of keys {k} and values {v} differ"
        if mask is not None:
            scores = (*q.shape[:3], k.shape[2])
            for score, own in zip(reversed(scores), reversed(mask.shape), strict=False):
                if own != 1:
                    yield score, own, f"mask {mask} of scores {list(map(str, scores))}"

    def reference(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        scores = np.matmul(widen(q), widen(k).swapaxes(2, 3))
        scores = scores * np.asarray(self.scale, scores.dtype)
        if mask is not None:
            scores = scores + widen(mask)
        if self.causal:
            rows, columns = np.ogrid[: q.shape[2], : k.shape[2]]
            scores = np.where(columns <= rows + self.offset, scores, -np.inf)
        weights = Softmax(3).reference(scores.astype(widen(q).dtype, copy=False))
        return np.matmul(weights, widen(v)).astype(q.dtype, copy=False)

    def compute(
        self, at: StageBuilder, q: Operand, k: Operand, v: Operand, mask: Operand | None = None
    ) -> Operand:
        wide = accumulator(q.dtype)
        products = combined(
            at,
            (*q.shape[:3], k.shape[2]),
            q.shape[3:],
            "sum",
            lambda o, r: q[(*o[:3], r[0])].cast(wide) * k[(*o[:2], o[3], r[0])].cast(wide),
        )

        def score(o: Point) -> Element:
            value = products[o] * self.scale
            if mask is not None:
                value = value + mask.broadcast(o).cast(wide)
            if not self.causal:
                return value
            behind = index_value(o[2] + self.offset - o[3], I32)
            return select(behind >= 0, value, -np.inf)

        scores = at.stage(products.shape, score)
        weights = softmax_stages(at, scores, 3, wide)
        mixed = combined(
            at,
            (*q.shape[:3], v.shape[3]),
            v.shape[2:3],
            "sum",
            lambda o, r: weights[(*o[:3], r[0])] * v[(*o[:2], r[0], o[3])].cast(wide),
        )
        return rounded(at, mixed, q.dtype)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        weights = self._weights(build, *inputs)
        return (of(MatMul(), weights, Value(build, inputs[2])).name,)

    def _weights(self, build: Builder, *inputs: str) -> Value:
        q, k, _, *mask = (Value(build, name) for name in inputs if name)
        scores = of(MatMul(), q, of(Transpose((0, 1, 3, 2)), k)) * self.scale
        for addend in mask:
            scores = scores + of(Cast(scores.type.dtype), addend)
        if self.causal:
            scores = scores + self.causal_mask(build, scores.type)
        return of(Softmax(3), scores)

    def causal_mask(self, build: Builder, scores: TensorType) -> Value:
        """0 where a query may see a key, minus infinity elsewhere."""
        pair = scores.shape[2:]
        query = Value(build, build.emit(Iota((pair[0], 1), 0, self.offset, 1, I64)))
        key = Value(build, build.emit(Iota((1, pair[1]), 1, 0, 1, I64)))
        zero = Value(build, build.constant(0.0, scores.dtype))
        return where(of(LessOrEqual(), key, query), zero, -np.inf)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        q, k, v = (Value(build, name) for name in inputs[:3])
        dy, weights = Value(build, dys[0]), self._weights(build, *inputs)
        swap = Transpose((0, 1, 3, 2))
        dv = of(MatMul(), of(swap, weights), dy)
        dweights = of(MatMul(), dy, of(swap, v))
        dscores = softmax_adjoint(dweights, weights, 3)
        scaled = dscores * self.scale
        dq, dk = of(MatMul(), scaled, k), of(MatMul(), of(swap, scaled), q)
        masks = tuple(
            unbroadcast(build, dscores.name, build.type_of(name).shape) if name else None
            for name in inputs[3:]
        )
        return (dq.name, dk.name, dv.name, *masks)


OPS: tuple[type[Op], ...] = (Softmax, LogSoftmax, Attention)
