"""What attention and its gradients have in common: scores of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, index_value, select
from modelcc.ir.index import Index
from modelcc.ir.op import Builder, Meeting, Op, broadcast_shapes, require, same_dtype
from modelcc.ir.types import I32, I64, Array, DType, TensorType
from modelcc.ops.accumulate import Point, accumulator, combined, require_float, widen
from modelcc.ops.arithmetic import Cast, Value, of
from modelcc.ops.comparison import LessOrEqual, where
from modelcc.ops.generate import Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Transpose


@dataclass(frozen=True)
class ScaledDotProduct(Op):
    """What has scores ``scale * q @ k^T + mask``.

    q is ``[b, h, m, d]``, k ``[b, h, n, d]``, v ``[b, h, n, e]``, mask broadcasts to
    ``[b, h, m, n]``, may be as wide as sums are, and is added to scores.  If ``causal``, query i
    sees the keys up to ``i + offset``.
    """

    costly: ClassVar[bool] = True
    scale: float
    causal: bool = False
    offset: Index = 0

    def require_operands(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None
    ) -> DType:
        """Refuse operands that do not fit; the dtype of those that do."""
        name = type(self).__name__
        dtype = same_dtype(q, k, v)
        require_float(dtype, name)
        if mask is not None and mask.dtype != accumulator(dtype):
            same_dtype(q, mask)
        require(
            q.rank == k.rank == v.rank == 4,
            f"{name} needs [batch, heads, length, size] operands, not {q}, {k} and {v}",
        )
        if mask is not None:
            scores = (*q.shape[:3], k.shape[2])
            fits = mask.rank <= 4 and len(broadcast_shapes(mask.shape, scores)) == 4
            require(fits, f"mask {mask} does not broadcast to {TensorType(scores, dtype)}")
        return dtype

    def operands_meet(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None
    ) -> Iterator[Meeting]:
        """The extents that are equal."""
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

    def known_scores(self, q: Array, k: Array, mask: Array | None) -> Array:
        """Scores, minus infinity where a query does not see a key."""
        scores = np.matmul(widen(q), widen(k).swapaxes(2, 3))
        scores = scores * np.asarray(self.scale, scores.dtype)
        if mask is not None:
            scores = scores + widen(mask)
        if self.causal:
            rows, columns = np.ogrid[: q.shape[2], : k.shape[2]]
            scores = np.where(columns <= rows + self.offset, scores, -np.inf)
        return scores.astype(widen(q).dtype, copy=False)

    def products(self, at: StageBuilder, q: Operand, k: Operand) -> Operand:
        """Of queries and keys."""
        wide = accumulator(q.dtype)
        return combined(
            at,
            (*q.shape[:3], k.shape[2]),
            q.shape[3:],
            "sum",
            lambda o, r: q[(*o[:3], r[0])].cast(wide) * k[(*o[:2], o[3], r[0])].cast(wide),
        )

    def score(self, products: Operand, mask: Operand | None, o: Point) -> Element:
        """A score, of a key that is seen."""
        value = products[o] * self.scale
        return value if mask is None else value + mask.broadcast(o).cast(products.dtype)

    def where_seen(self, o: Point, value: Element, hidden: float) -> Element:
        """``value``, or what is ``hidden`` where the query does not see the key."""
        if not self.causal:
            return value
        return select(index_value(o[2] + self.offset - o[3], I32) >= 0, value, hidden)

    def scores(self, at: StageBuilder, q: Operand, k: Operand, mask: Operand | None) -> Operand:
        """Minus infinity where a query does not see a key."""
        products = self.products(at, q, k)
        return at.stage(
            products.shape,
            lambda o: self.where_seen(o, self.score(products, mask, o), -np.inf),
        )

    def emitted_scores(self, build: Builder, q: Value, k: Value, masks: Sequence[Value]) -> Value:
        """Scores as ops, in the type of ``q``."""
        scores = of(MatMul(), q, of(Transpose((0, 1, 3, 2)), k)) * self.scale
        for addend in masks:
            scores = scores + of(Cast(scores.type.dtype), addend)
        if self.causal:
            scores = scores + self.causal_mask(build, scores.type)
        return scores

    def causal_mask(self, build: Builder, scores: TensorType) -> Value:
        """0 where a query may see a key, minus infinity elsewhere."""
        pair = scores.shape[2:]
        query = Value(build, build.emit(Iota((pair[0], 1), 0, self.offset, 1, I64)))
        key = Value(build, build.emit(Iota((1, pair[1]), 1, 0, 1, I64)))
        zero = Value(build, build.constant(0.0, scores.dtype))
        return where(of(LessOrEqual(), key, query), zero, -np.inf)


def mixed_values(at: StageBuilder, weights: Operand, v: Operand) -> Operand:
    """Sums of values by their weights."""
    return combined(
        at,
        (*weights.shape[:3], v.shape[3]),
        v.shape[2:3],
        "sum",
        lambda o, r: weights[(*o[:3], r[0])] * v[(*o[:2], r[0], o[3])].cast(weights.dtype),
    )
