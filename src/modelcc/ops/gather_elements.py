"""GatherElements and ScatterElements: one index per element, along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, guard, index_value, select
from modelcc.ir.condition import Demands
from modelcc.ir.index import Index
from modelcc.ir.op import Builder, Op, Sample, equal, require
from modelcc.ir.tensor import Condition
from modelcc.ir.types import I32, I64, Array, TensorType
from modelcc.ops.accumulate import require_equal
from modelcc.ops.generate import Full
from modelcc.ops.runtime_index import (
    ACCUMULATE,
    COMBINE,
    Combination,
    Point,
    at_index,
    check_updates,
    checked,
    neutral,
    require_integer,
)
from modelcc.ops.samples import tensor


def inside(axis: int, indices: TensorType, x: TensorType) -> Demands:
    """Demands that ``indices`` are no longer than ``x`` but along ``axis``."""
    pairs = enumerate(zip(indices.shape, x.shape, strict=True))
    return tuple((i, "<=", e) for a, (i, e) in pairs if a != axis and i != e)


@dataclass(frozen=True)
class GatherElements(Op):
    """``result[i] = x[i with i[axis] replaced by indices[i]]``, in the shape of indices."""

    axis: int = 0
    samples = (
        Sample((tensor(3, 4), np.array([[0, 2, -1, 1]])), {"axis": 0}),
        Sample((tensor(2, 3), np.array([[0, -1], [2, 2]], np.int32)), {"axis": 1}),
        Sample((tensor(3, dtype=I32), np.array([2, 0])), {}),
    )

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType]:
        require_integer(indices, "GatherElements")
        require(
            0 <= self.axis < x.rank == indices.rank,
            f"GatherElements along axis {self.axis} of {x} needs indices of its rank, "
            f"not {indices}",
        )
        return (TensorType(indices.shape, x.dtype),)

    def agreements(self, x: TensorType, indices: TensorType) -> Demands:
        return inside(self.axis, indices, x)

    def reference(self, x: Array, indices: Array) -> Array:
        crop = tuple(
            slice(None) if a == self.axis else slice(e) for a, e in enumerate(indices.shape)
        )
        return np.take_along_axis(x[crop], indices.astype(np.int64), self.axis)

    def compute(self, at: StageBuilder, x: Operand, indices: Operand) -> Operand:
        def body(o: Point) -> Element:
            return at_index(
                at,
                indices[o],
                x,
                self.axis,
                lambda i: x[(*o[: self.axis], i, *o[self.axis + 1 :])],
            )

        return at.stage(indices.shape, body)

    def grad(self, build: Builder, dys: Sequence[str], x: str, indices: str) -> tuple[str, None]:
        t = build.type_of(x)
        zeros = build.emit(Full(t.shape, 0, t.dtype))
        return build.emit(ScatterElements(self.axis, "add"), zeros, indices, dys[0]), None


@dataclass(frozen=True)
class ScatterElements(Op):
    """x with ``updates[i]`` put at, or combined into, ``i with i[axis] replaced by indices[i]``.

    Of several updates of one element ``none`` keeps the last.  As stages every element looks at
    all updates of its line.
    """

    axis: int = 0
    reduction: Combination = "none"
    samples = tuple(
        Sample((x, indices, updates), {"axis": axis, "reduction": reduction})
        for reduction in ("none", "add", "mul", "max", "min")
        for axis, x, indices, updates in (
            (1, tensor(2, 4), np.array([[0, 3], [-1, 1]]), tensor(2, 2)),
            (0, tensor(3, "n"), np.array([[2, 0], [1, 1]], np.int32), tensor(2, 2)),
            (0, tensor(4, dtype=I32), np.array([1, 3, 0]), tensor(3, dtype=I32)),
        )
    )

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType]:
        require_integer(indices, "ScatterElements")
        check_updates("ScatterElements", self.reduction, x, updates)
        require(
            0 <= self.axis < x.rank == indices.rank == updates.rank,
            f"ScatterElements along axis {self.axis} needs x, indices and updates of one rank, "
            f"not {x}, {indices} and {updates}",
        )
        for index, update in zip(indices.shape, updates.shape, strict=True):
            require_equal(index, update, "ScatterElements needs one index per update")
        return (TensorType(x.shape, x.dtype),)

    def agreements(self, x: TensorType, indices: TensorType, updates: TensorType) -> Demands:
        return (*equal(indices.shape, updates.shape), *inside(self.axis, indices, x))

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        result = x.copy()
        for place in np.ndindex(*indices.shape):
            target = (*place[: self.axis], indices[place], *place[self.axis + 1 :])
            if self.reduction == "none":
                result[target] = updates[place]
            else:
                result[target] = ACCUMULATE[self.reduction](result[target], updates[place])
        return result

    def compute(self, at: StageBuilder, x: Operand, indices: Operand, updates: Operand) -> Operand:
        lines = (indices.shape[self.axis],)
        places = checked(at, indices, x, self.axis)

        def met(o: Point, j: Index, then: Element, other: float) -> Element:
            """``then`` where update j of the line of ``o`` goes to ``o``."""
            index = places[self._source(o, j)]
            here = apply("eq", index, index_value(o[self.axis], index.dtype))
            return guard(self._limits(o, x, indices), select(here, then, other), other)

        def update(o: Point, j: Index) -> Element:
            return updates[self._source(o, j)]

        if self.reduction != "none":
            combine, function = COMBINE[self.reduction]
            start = neutral(self.reduction, x.dtype)
            total = at.reduce(
                x.shape, lines, combine, lambda o, r: met(o, r[0], update(o, r[0]), start)
            )
            return at.stage(x.shape, lambda o: apply(function, x[o], total[o]))
        last = at.reduce(
            x.shape, lines, "max", lambda o, r: met(o, r[0], index_value(r[0], I64), -1)
        )

        def body(o: Point) -> Element:
            # The number of an update, where there are any.
            latest = at.gather(apply("max", last[o], 0), lambda j: update(o, j), None)
            some = (*self._limits(o, x, indices), Condition(lines[0], ">=", 1))
            return select(last[o] < 0, x[o], guard(some, latest, 0))

        return at.stage(x.shape, body)

    def _source(self, o: Point, j: Index) -> Point:
        """Where update ``j`` of the line of ``o`` stands."""
        return (*o[: self.axis], j, *o[self.axis + 1 :])

    def _limits(self, o: Point, x: Operand, indices: Operand) -> list[Condition]:
        """What must hold for the line of ``o`` to have updates."""
        return [
            Condition(o[a], "<", e)
            for a, e in enumerate(indices.shape)
            if a != self.axis and e != x.shape[a]
        ]

    def grad(
        self, build: Builder, dys: Sequence[str], x: str, indices: str, updates: str
    ) -> tuple[str | None, None, str | None]:
        if self.reduction != "add":
            return None, None, None
        return dys[0], None, build.emit(GatherElements(self.axis), dys[0], indices)
