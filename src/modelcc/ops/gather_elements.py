"""GatherElements and ScatterElements: one index per element, along one axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, compare
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require
from modelcc.ir.types import I32, Array, TensorType
from modelcc.ops.generate import filled
from modelcc.ops.runtime_index import (
    ACCUMULATE,
    COMBINE,
    Combination,
    Point,
    at_index,
    check_updates,
    place_along,
    require_from_front,
    require_integer,
)
from modelcc.ops.samples import sample, tensor
from modelcc.ops.scatter_gradients import Scattering


def inside(axis: int, indices: TensorType, x: TensorType) -> Constraints:
    """Constraints that ``indices`` are no longer than ``x`` but along ``axis``.

    :class:`ModelError` if numbers say that they are.
    """
    sides = zip(indices.shape, x.shape, strict=True)
    pairs = [(i, e) for a, (i, e) in enumerate(sides) if a != axis]
    for i, e in pairs:
        fits = compare(i, "<=", e, {}) is not False
        require(fits, f"indices {indices} are longer than {x} beside axis {axis}")
    return tuple((i, "<=", e) for i, e in pairs if i != e)


@dataclass(frozen=True)
class GatherElements(Op):
    """``result[i] = x[i with i[axis] replaced by indices[i]]``, in the shape of indices.

    ``signed`` indices may count from the end, others that are below zero are out of range.
    """

    axis: int = 0
    signed: bool = True
    samples = (
        sample(tensor(3, 4), np.array([[0, 2, -1, 1]]), axis=0),
        sample(tensor(2, 3), np.array([[0, -1], [2, 2]], np.int32), axis=1),
        sample(tensor(3, dtype=I32), np.array([2, 0])),
        sample(tensor(3, 4), np.array([[2, 0], [1, 1]]), signed=False),
    )

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType]:
        require_integer(indices, "GatherElements")
        require(
            0 <= self.axis < x.rank == indices.rank,
            f"GatherElements along axis {self.axis} of {x} needs indices of its rank, "
            f"not {indices}",
        )
        inside(self.axis, indices, x)
        return (TensorType(indices.shape, x.dtype),)

    def shape_constraints(self, x: TensorType, indices: TensorType) -> Constraints:
        return inside(self.axis, indices, x)

    def reference(self, x: Array, indices: Array) -> Array:
        if not self.signed:
            require_from_front(indices)
        crop = tuple(
            slice(None) if a == self.axis else slice(e) for a, e in enumerate(indices.shape)
        )
        return np.take_along_axis(x[crop], indices.astype(np.int64), self.axis)

    def compute(self, at: StageBuilder, x: Operand, indices: Operand) -> Operand:
        def body(o: Point) -> Element:
            def read(i: Index) -> Element:
                return x[(*o[: self.axis], i, *o[self.axis + 1 :])]

            return at_index(at, indices[o], x, self.axis, read, self.signed)

        return at.stage(indices.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, indices = inputs
        put = ScatterElements(self.axis, "add", self.signed)
        return build.emit(put, filled(build, x), indices, dys[0]), None


@dataclass(frozen=True)
class ScatterElements(Op):
    """x with ``updates[i]`` put at, or combined into, ``i with i[axis] replaced by indices[i]``.

    Of several updates of one element ``none`` keeps the last.  ``signed`` indices may count from
    the end, others that are below zero are out of range.
    """

    axis: int = 0
    reduction: Combination = "none"
    signed: bool = True
    samples = (
        *(
            sample(x, indices, updates, axis=axis, reduction=reduction)
            for reduction in ("none", "add", "mul", "max", "min")
            for axis, x, indices, updates in (
                (1, tensor(2, 4), np.array([[0, 3], [-1, 1]]), tensor(2, 2)),
                (0, tensor(3, "n"), np.array([[2, 0], [1, 1]], np.int32), tensor(2, 2)),
                (0, tensor(4, dtype=I32), np.array([1, 3, 0]), tensor(3, dtype=I32)),
            )
        ),
        sample(tensor(4), np.array([1, 3, 0]), tensor(3), signed=False),
    )

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType]:
        require_integer(indices, "ScatterElements")
        check_updates("ScatterElements", self.reduction, x, updates)
        require(
            0 <= self.axis < x.rank == indices.rank == updates.rank,
            f"ScatterElements along axis {self.axis} needs x, indices and updates of one rank, "
            f"not {x}, {indices} and {updates}",
        )
        self.require_meetings(x, indices, updates)
        inside(self.axis, indices, x)
        return (TensorType(x.shape, x.dtype),)

    def shape_constraints(
        self, x: TensorType, indices: TensorType, updates: TensorType
    ) -> Constraints:
        return (*super().shape_constraints(x, indices, updates), *inside(self.axis, indices, x))

    def meetings(
        self, x: TensorType, indices: TensorType, updates: TensorType
    ) -> Iterator[Meeting]:
        for index, update in zip(indices.shape, updates.shape, strict=True):
            yield index, update, "ScatterElements needs one index per update"

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        if not self.signed:
            require_from_front(indices)
        result = x.copy()
        for place in np.ndindex(*indices.shape):
            target = (*place[: self.axis], indices[place], *place[self.axis + 1 :])
            if self.reduction == "none":
                result[target] = updates[place]
            else:
                result[target] = ACCUMULATE[self.reduction](result[target], updates[place])
        return result

    def compute(self, at: StageBuilder, x: Operand, indices: Operand, updates: Operand) -> Operand:
        return at.scatter(
            x,
            indices.shape,
            lambda o: [place_along(indices[o], x, self.axis, self.signed)],
            lambda o, found: (*o[: self.axis], *found, *o[self.axis + 1 :]),
            lambda o: updates[o],
            COMBINE.get(self.reduction),
        )

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        add = replace(self, reduction="add")
        ways = Scattering(self.reduction, self, add, GatherElements(self.axis, self.signed))
        return ways.gradients(build, dys[0], inputs, outputs[0])
