"""NonMaxSuppression: boxes by falling score, without those that overlap a better one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    integer,
    number,
    predicate,
    reduce,
    splat,
)
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import Buffer, Expr, Var
from modelcc.ir.op import Op, require
from modelcc.ir.types import BOOL, F32, I64, Array, TensorType
from modelcc.ops.best_first import best_first
from modelcc.ops.radix_sort import KeyedPlaces, KeyOrder
from modelcc.ops.samples import sample, tensor

LIKELY = 2
"""Boxes that are looked at for each one that remains."""

Box = tuple[Expr, Expr, Expr, Expr]
"""Lower y, lower x, upper y, upper x."""


@dataclass(frozen=True)
class NonMaxSuppression(Op):
    """Which boxes remain for each batch and class, best first.

    Operands: boxes f32[batches, n, 4], scores f32[batches, classes, n], the greatest number per
    class i64[1], the overlap (intersection over union) above which the lesser box goes f32[1],
    and the score that must be exceeded f32[1] (absent: none).  Boxes are corners in any order, or
    centre, width and height if ``centered``.  A score of NaN is the worst.  Results:
    (batch, class, box) i64[rows, 3] with ``rows`` = batches * classes * ``limit``, zeros
    behind, and how many there are, i64[1].
    """

    differentiable = False
    limit: Index
    centered: bool = False
    samples = (
        sample(
            tensor(1, 6, 4),
            tensor(1, 2, 6),
            np.array([3]),
            np.array([0.3], np.float32),
            None,
            limit=3,
        ),
        sample(
            tensor(2, "n", 4),
            tensor(2, 1, "n"),
            np.array([4]),
            np.array([0.5], np.float32),
            np.array([0.1], np.float32),
            limit=Sym("n"),
            centered=True,
        ),
        sample(
            tensor(1, 4, 4),
            np.array([[[np.nan, 0.5, np.nan, 0.7]]], np.float32),
            np.array([4]),
            np.array([0.9], np.float32),
            None,
            limit=4,
        ),
        sample(
            tensor(1, 3, 4),
            tensor(1, 1, 3),
            np.array([0]),
            np.array([0.0], np.float32),
            None,
            limit=3,
        ),
    )

    def infer(
        self,
        boxes: TensorType,
        scores: TensorType,
        most: TensorType,
        overlap: TensorType,
        least: TensorType | None,
    ) -> tuple[TensorType, TensorType]:
        shaped = boxes.rank == scores.rank == 3 and boxes.shape[-1] == 4
        require(
            shaped and boxes.dtype == scores.dtype == F32,
            f"NonMaxSuppression needs f32 boxes [b, n, 4] and scores [b, c, n], not {boxes} "
            f"and {scores}",
        )
        rows = scores.shape[0] * scores.shape[1] * self.limit
        return TensorType((rows, 3), I64), TensorType((1,), I64)

    def reference(
        self, boxes: Array, scores: Array, most: Array, overlap: Array, least: Array | None
    ) -> tuple[Array, Array]:
        batches, classes, _ = scores.shape
        rows: list[tuple[int, int, int]] = []
        for batch, kind in np.ndindex(batches, classes):
            own: list[int] = []
            for i in np.argsort(-scores[batch, kind], kind="stable").tolist():
                if least is not None and not scores[batch, kind, i] > least[0]:
                    continue
                others = (_overlap(boxes[batch, i], boxes[batch, j], self.centered) for j in own)
                if len(own) < int(most[0]) and all(o <= overlap[0] for o in others):
                    own.append(i)
            rows += [(batch, kind, i) for i in own]
        (limit,) = (self.limit if isinstance(self.limit, int) else scores.shape[2],)
        whole = np.zeros((batches * classes * limit, 3), np.int64)
        whole[: len(rows)] = np.array(rows, np.int64).reshape(-1, 3)
        return whole, np.array([len(rows)], np.int64)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        boxes, scores, most, overlap, least = inputs
        rows, count = outputs
        assert boxes is not None and scores is not None
        assert most is not None and overlap is not None
        batches, classes, n = scores.shape
        pairs = best_first(at, KeyOrder(F32, descending=True, nan_last=True), n)
        kept = _Kept(at, [at.scratch(F32, self.limit + at.lanes) for _ in range(5)])
        found = at.register(integer(0))
        limit = at.let(call("min", at.load(most, 0), index_number(self.limit)))
        with at.loop(0, batches) as batch, at.loop(0, classes) as kind:
            line = (batch * classes + kind) * n
            candidates = _candidates(at, pairs.all, scores, line, least, n)
            own = at.register(integer(0))
            likely = call("mul", limit, integer(LIKELY))
            with pairs.each(at, candidates, likely, call("lt", own, limit)) as i:
                box = self._box(at, boxes, (batch * n + i) * 4)
                with at.when(kept.leaves(box, at.index(own), at.load(overlap, 0))):
                    row = at.index(found)
                    for column, value in enumerate((batch, kind, i)):
                        at.store(rows, row * 3 + column, index_number(value))
                    kept.append(box, at.index(own))
                    at.assign(own, add(own, 1))
                    at.assign(found, add(found, 1))
        at.store(count, 0, found)
        with at.loop(3 * at.index(found), rows.type.elements) as i:
            at.store(rows, i, integer(0))

    def _box(self, at: AlgorithmBuilder, boxes: Operand, start: Index) -> Box:
        a, b, c, d = (at.let(at.load(boxes, start + i)) for i in range(4))
        if self.centered:
            half = number(0.5, F32)
            wide, high = call("mul", c, half), call("mul", d, half)
            ends = (call("sub", b, high), call("sub", a, wide), add(b, high), add(a, wide))
            low_y, low_x, high_y, high_x = (at.let(e) for e in ends)
            return low_y, low_x, high_y, high_x
        lows = (call("min", a, c), call("min", b, d))
        highs = (call("max", a, c), call("max", b, d))
        low_y, low_x, high_y, high_x = (at.let(e) for e in (*lows, *highs))
        return low_y, low_x, high_y, high_x


def _candidates(
    at: AlgorithmBuilder,
    pairs: KeyedPlaces,
    scores: Operand,
    line: Index,
    least: Operand | None,
    n: Index,
) -> Sym:
    """Put the boxes whose score exceeds the least one into ``pairs``; how many there are."""
    found = at.register(integer(0))
    with at.loop(0, n) as i:
        score = at.let(at.load(scores, line + i))
        key = pairs.order.of(at, score)
        # Written in any case, and counted if wanted: no branch that nobody can foretell.
        pairs.put(at, at.index(found), key, index_number(i))
        good = integer(1)
        if least is not None:
            good = convert(call("gt", score, at.load(least, 0)), I64)
        at.assign(found, call("add", found, good))
    return at.index(found)


@dataclass(frozen=True)
class _Kept:
    """The boxes kept so far: a buffer for each coordinate and one for areas, compared as vectors.

    Behind the last box there are areas of 0 up to a whole vector, which no box overlaps.
    """

    at: AlgorithmBuilder
    columns: Sequence[Buffer]

    def append(self, box: Box, place: Index) -> None:
        at = self.at
        with at.when(predicate(place % at.lanes, "==", 0)):
            for column in self.columns:
                at.store(column, place, number(0.0, F32, at.lanes))
        for column, value in zip(self.columns, (*box, _area(box)), strict=True):
            at.store(column, place, value)

    def leaves(self, box: Box, count: Index, threshold: Expr) -> Var:
        """Whether no box overlaps ``box`` by more than ``threshold`` of their union."""
        at = self.at
        wide = [splat(value, at.lanes) for value in (*box, at.let(_area(box)))]
        limit = splat(at.let(threshold), at.lanes)
        remains = at.register(number(True, BOOL))
        place = at.register(integer(0))
        with at.while_(call("and", remains, call("lt", place, index_number(count)))):
            start = at.index(place)
            rivals = [at.let(at.load(column, start, at.lanes)) for column in self.columns]
            covered = _covers(at, wide, rivals, limit)
            at.assign(remains, call("not", reduce("or", covered)))
            at.assign(place, add(place, at.lanes))
        return remains


def _area(box: Box) -> Expr:
    return call("mul", call("sub", box[2], box[0]), call("sub", box[3], box[1]))


def _covers(at: AlgorithmBuilder, a: Sequence[Expr], b: Sequence[Expr], threshold: Expr) -> Var:
    """Whether boxes (with their areas) have more than ``threshold`` of their union in common."""
    zero = number(0.0, F32, at.lanes)
    spans = (
        call("sub", call("min", a[i + 2], b[i + 2]), call("max", a[i], b[i])) for i in range(2)
    )
    height, width = (call("max", span, zero) for span in spans)
    common = at.let(call("mul", height, width))
    own, other = a[4], b[4]
    union = at.let(call("sub", call("add", own, other), common))
    real = call("and", call("gt", own, zero), call("gt", other, zero))
    over = call("gt", call("div", common, union), threshold)
    return at.let(call("and", call("and", real, call("gt", union, zero)), over))


def _overlap(a: Array, b: Array, centered: bool) -> float:
    """Intersection over union in f32."""
    corners = [_corners(box, centered) for box in (a, b)]
    (low_a, high_a), (low_b, high_b) = corners
    common = np.prod(np.maximum(np.minimum(high_a, high_b) - np.maximum(low_a, low_b), 0))
    own, other = np.prod(high_a - low_a), np.prod(high_b - low_b)
    union = own + other - common
    return float(common / union) if own > 0 and other > 0 and union > 0 else 0.0


def _corners(box: Array, centered: bool) -> tuple[Array, Array]:
    if centered:
        half = box[[3, 2]] * np.float32(0.5)
        return box[[1, 0]] - half, box[[1, 0]] + half
    return np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])


OPS: tuple[type[Op], ...] = (NonMaxSuppression,)
