"""Attention as training needs it: with what its weights are made of again, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply
from modelcc.ir.narrowing import Narrowing
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, combined, rounded, widen
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum, unbroadcast, with_axis
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceLogSumExp
from modelcc.ops.samples import bounded, sample, tensor
from modelcc.ops.scaled_dot_product import ScaledDotProduct, mixed_values
from modelcc.ops.shape import Transpose
from modelcc.ops.softmax_stages import exponentials
from modelcc.ops.transcendental import Exp
from modelcc.ops.views import cast, reshaped

_HALF: Mapping[str, object] = MappingProxyType({"scale": 0.5})
_SWAP = Transpose((0, 1, 3, 2))
_SMALL = (-1.0, 1.0)
"""Numbers of samples: sums are not those of the scores, whose powers would be large else."""


@dataclass(frozen=True)
class AttentionSums(ScaledDotProduct):
    """``Attention``, and for each query the logarithm of the sum of its scores' exponentials.

    Operands are those of ``Attention``; the sums are ``[b, h, m]`` in the type of sums.
    """

    narrowing = Narrowing("products", kept=(3,))
    samples = (
        sample(*(tensor("b", 2, "s", 4),) * 3, **_HALF),
        sample(tensor(2, 2, 3, 4), *(tensor(2, 2, 5, 4),) * 2, tensor(2, 1, 3, 5), **_HALF),
        sample(tensor(1, 2, 2, 3), *(tensor(1, 2, 5, 3),) * 2, scale=0.6, causal=True, offset=3),
        sample(*(tensor(1, 2, 3, 4, dtype=F16),) * 3, **_HALF),
    )

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> tuple[TensorType, TensorType]:
        dtype = self.require_operands(q, k, v, mask)
        self.require_meetings(q, k, v, mask)
        sums = TensorType(q.shape[:3], accumulator(dtype))
        return TensorType((*q.shape[:3], v.shape[3]), dtype), sums

    def meetings(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> Iterator[Meeting]:
        return self.operands_meet(q, k, v, mask)

    def reference(
        self, q: Array, k: Array, v: Array, mask: Array | None = None
    ) -> tuple[Array, Array]:
        scores = self.known_scores(q, k, mask)
        highest = scores.max(axis=3, keepdims=True)
        powers = np.exp(scores - highest)
        total = powers.sum(axis=3, keepdims=True)
        mixed = np.matmul(powers / total, widen(v)).astype(q.dtype, copy=False)
        return mixed, (highest + np.log(total))[..., 0]

    def compute(
        self, at: StageBuilder, q: Operand, k: Operand, v: Operand, mask: Operand | None = None
    ) -> tuple[Operand, Operand]:
        highest, powers, total = exponentials(at, self.scores(at, q, k, mask), 3)
        sums = at.stage(q.shape[:3], lambda o: highest[(*o, 0)] + apply("log", total[(*o, 0)]))
        weights = at.stage(powers.shape, lambda o: powers[o] / total[with_axis(o, 3, 0)])
        return rounded(at, mixed_values(at, weights, v), q.dtype), sums

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, str]:
        q, k, v, *masks = (Value(build, name) for name in inputs if name)
        wide = accumulator(q.type.dtype)
        scores = self.emitted_scores(build, cast(q, wide), cast(k, wide), masks)
        sums = of(ReduceLogSumExp((3,), True), scores)
        mixed = cast(of(MatMul(), of(Exp(), scores - sums), cast(v, wide)), q.type.dtype)
        return mixed.name, reshaped(sums, *q.type.shape[:3]).name

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """The sums' own gradient is a part of every score's: it is taken off what rows have."""
        dy, y = Value(build, dys[0]), Value(build, outputs[0])
        deltas = row_products(dy, y) - Value(build, dys[1])
        return gradients(self, build, dy, inputs, Value(build, outputs[1]), deltas)


@dataclass(frozen=True)
class AttentionGradients(ScaledDotProduct):
    """Gradients of the queries, keys and values of attention, whose weights are made again.

    ``dy`` is that of its result, ``sums`` are those of ``AttentionSums``, ``deltas`` the sums of
    ``dy * y`` along rows; other operands are those of ``Attention``.  Weights and gradients of
    scores are rounded to the type of ``q`` before they are multiplied (Dao, "FlashAttention-2",
    2023).
    """

    narrowing = Narrowing("products", kept=(4, 5, 6))
    samples = (
        bounded(_SMALL, *(tensor("b", 2, "s", 4),) * 4, *(tensor("b", 2, "s"),) * 2, **_HALF),
        bounded(
            _SMALL, tensor(1, 2, 3, 6), tensor(1, 2, 3, 4), tensor(1, 2, 5, 4), tensor(1, 2, 5, 6),
            *(tensor(1, 2, 3),) * 2, tensor(3, 5), scale=0.5,
        ),
        bounded(
            _SMALL, *(tensor(1, 2, 2, 3),) * 2, *(tensor(1, 2, 5, 3),) * 2, *(tensor(1, 2, 2),) * 2,
            scale=0.6, causal=True, offset=3,
        ),
        bounded(_SMALL, *(tensor(1, 2, 3, 4, dtype=F16),) * 4, *(tensor(1, 2, 3),) * 2, **_HALF),
    )  # fmt: skip

    def infer(
        self, dy: TensorType, q: TensorType, k: TensorType, v: TensorType, sums: TensorType,
        deltas: TensorType, mask: TensorType | None = None,
    ) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
        dtype = self.require_operands(q, k, v, mask)
        wide, name = accumulator(dtype), type(self).__name__
        require(dy.dtype == dtype and dy.rank == 4, f"{name} of {dy} needs {dtype} of 4 axes")
        for of_rows in (sums, deltas):
            fits = of_rows.dtype == wide and of_rows.rank == 3
            require(fits, f"{name} needs rows of {wide} with 3 axes, not {of_rows}")
        self.require_meetings(dy, q, k, v, sums, deltas, mask)
        return TensorType(q.shape, dtype), TensorType(k.shape, dtype), TensorType(v.shape, dtype)

    def meetings(
        self, dy: TensorType, q: TensorType, k: TensorType, v: TensorType, sums: TensorType,
        deltas: TensorType, mask: TensorType | None = None,
    ) -> Iterator[Meeting]:  # fmt: skip
        yield from self.operands_meet(q, k, v, mask)
        yield dy.shape[3], v.shape[3], f"columns of {dy} and values {v} differ"
        for rows in (dy, sums, deltas):
            for own, other in zip(rows.shape[:3], q.shape[:3], strict=True):
                yield own, other, f"rows of {rows} and queries {q} differ"

    def reference(
        self, dy: Array, q: Array, k: Array, v: Array, sums: Array, deltas: Array,
        mask: Array | None = None,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        weights = np.exp(self.known_scores(q, k, mask) - sums[..., None])
        moved = np.matmul(widen(dy), widen(v).swapaxes(2, 3))
        slopes = widen((weights * (moved - deltas[..., None])).astype(q.dtype, copy=False))
        weights = widen(weights.astype(q.dtype, copy=False))
        scale = np.asarray(self.scale, slopes.dtype)
        found = (
            np.matmul(slopes, widen(k)) * scale,
            np.matmul(slopes.swapaxes(2, 3), widen(q)) * scale,
            np.matmul(weights.swapaxes(2, 3), widen(dy)),
        )
        dq, dk, dv = (x.astype(q.dtype, copy=False) for x in found)
        return dq, dk, dv

    def compute(
        self, at: StageBuilder, dy: Operand, q: Operand, k: Operand, v: Operand, sums: Operand,
        deltas: Operand, mask: Operand | None = None,
    ) -> tuple[Operand, Operand, Operand]:  # fmt: skip
        wide, products = accumulator(q.dtype), self.products(at, q, k)

        def power(o: Point) -> Element:
            value = apply("exp", self.score(products, mask, o) - sums[o[:3]])
            return self.where_seen(o, value, 0.0)

        def half(value: Element) -> Element:
            return value.cast(q.dtype).cast(wide)

        weights = at.stage(products.shape, power)
        moved = self.products(at, dy, v)
        slopes = at.stage(
            products.shape, lambda o: (weights[o] * (moved[o] - deltas[o[:3]])).cast(q.dtype)
        )

        def turned(left: Operand, right: Operand) -> Operand:
            """Sums along queries."""
            return combined(
                at, (*k.shape[:3], right.shape[3]), q.shape[2:3], "sum",
                lambda o, r: half(left[(*o[:2], r[0], o[2])])
                * right[(*o[:2], r[0], o[3])].cast(wide),
            )  # fmt: skip

        dq = combined(
            at, q.shape, k.shape[2:3], "sum",
            lambda o, r: slopes[(*o[:3], r[0])].cast(wide) * k[(*o[:2], r[0], o[3])].cast(wide),
        )  # fmt: skip
        dk, dv = turned(slopes, q), turned(weights, dy)

        def scaled(x: Operand) -> Operand:
            return at.stage(x.shape, lambda o: (x[o] * self.scale).cast(q.dtype))

        return scaled(dq), scaled(dk), rounded(at, dv, q.dtype)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, str, str]:
        dy, q, k = (Value(build, name) for name in inputs[:3])
        weights, slopes = (cast(x, q.type.dtype) for x in self.slopes(build, *inputs))
        dq, dk = of(MatMul(), slopes, k), of(MatMul(), of(_SWAP, slopes), q)
        dv = of(MatMul(), of(_SWAP, weights), dy)
        return (dq * self.scale).name, (dk * self.scale).name, dv.name

    def slopes(self, build: Builder, *inputs: str) -> tuple[Value, Value]:
        """Weights, and gradients of scores, in the type of sums."""
        dy, q, k, v, sums, deltas, *masks = (Value(build, name) for name in inputs if name)
        rows = [reshaped(x, *x.type.shape, 1) for x in (sums, deltas)]
        dy, q, k, v = (cast(x, sums.type.dtype) for x in (dy, q, k, v))
        weights = of(Exp(), self.emitted_scores(build, q, k, masks) - rows[0])
        return weights, weights * (of(MatMul(), dy, of(_SWAP, v)) - rows[1])


def row_products(dy: Value, y: Value) -> Value:
    """Sums of the products of the elements of rows, in the type of sums."""
    wide = accumulator(y.type.dtype)
    return of(ReduceSum((3,), False), cast(dy, wide) * cast(y, wide))


def gradients(
    op: ScaledDotProduct, build: Builder, dy: Value, inputs: Values, sums: Value, deltas: Value
) -> Gradients:
    """Those of the operands of an attention with the scores of ``op``."""
    whole = AttentionGradients(op.scale, op.causal, op.offset)
    operands = (dy.name, *inputs[:3], sums.name, deltas.name, *inputs[3:])
    found = build.add(whole, *operands)
    masks = (_of_mask(whole, build, operands, name) if name else None for name in inputs[3:])
    return (*found, *masks)


def _of_mask(op: AttentionGradients, build: Builder, operands: Values, mask: str) -> str:
    """The gradient of a mask: that of all scores that it is added to."""
    slopes, type = op.slopes(build, *operands)[1], build.type_of(mask)
    return cast(Value(build, unbroadcast(build, slopes.name, type.shape)), type.dtype).name


OPS: tuple[type[Op], ...] = (AttentionSums, AttentionGradients)
