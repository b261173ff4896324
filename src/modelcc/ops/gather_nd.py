"""GatherND and ScatterND: index tuples that select slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require
from modelcc.ir.types import I32, I64, Array, TensorType
from modelcc.ops.generate import Iota, filled
from modelcc.ops.runtime_index import (
    ACCUMULATE,
    COMBINE,
    Combination,
    Point,
    at_index,
    check_updates,
    place_along,
    require_integer,
)
from modelcc.ops.samples import sample, tensor
from modelcc.ops.scatter_gradients import Scattering
from modelcc.ops.shape import Concat, Transpose


@dataclass(frozen=True)
class GatherND(Op):
    """``result[b…, j…, k…] = x[b…, *indices[b…, j…, :], k…]`` with ``batch_dims`` axes ``b``."""

    batch_dims: int = 0
    samples = (
        sample(tensor(3, 4), np.array([[0, 1], [2, -1]])),
        sample(tensor(3, 4), np.array([[1], [-1]])),
        sample(tensor(2, 3, 4), np.array([[[0], [2]], [[1], [1]]]), batch_dims=1),
        sample(tensor(2, 3, "n", dtype=I64), np.array([1, 2], np.int32)),
    )

    def depth(self, indices: TensorType) -> int:
        """Axes of x that one index tuple selects from."""
        depth = indices.shape[-1] if indices.rank else 0
        require(
            isinstance(depth, int) and depth > 0,
            f"the last extent of the indices {indices} of GatherND must be a positive number",
        )
        assert isinstance(depth, int)
        return depth

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType]:
        require_integer(indices, "GatherND")
        last = self.batch_dims + self.depth(indices)
        require(
            self.batch_dims < indices.rank and last <= x.rank,
            f"GatherND with {self.batch_dims} batch axes of {x} by indices {indices}: "
            "an index has more entries than x has axes",
        )
        return (TensorType((*indices.shape[:-1], *x.shape[last:]), x.dtype),)

    def reference(self, x: Array, indices: Array) -> Array:
        lead = indices.shape[: self.batch_dims]
        result = np.empty((*indices.shape[:-1], *x.shape[len(lead) + indices.shape[-1] :]), x.dtype)
        for place in np.ndindex(*indices.shape[:-1]):
            result[place] = x[(*place[: len(lead)], *indices[place])]
        return result

    def compute(self, at: StageBuilder, x: Operand, indices: Operand) -> Operand:
        (result,) = self.infer(x.type, indices.type)
        outer, depth = indices.rank - 1, self.depth(indices.type)

        def read(o: Point, found: Point) -> Element:
            k = len(found)
            if k == depth:
                return x[(*o[: self.batch_dims], *found, *o[outer:])]
            return at_index(
                at, indices[(*o[:outer], k)], x, self.batch_dims + k, lambda i: read(o, (*found, i))
            )

        return at.stage(result.shape, lambda o: read(o, ()))

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, indices = inputs
        zeros = filled(build, x)
        places = self._with_batches(build, indices)
        return build.emit(ScatterND("add"), zeros, places, dys[0]), None

    def _with_batches(self, build: Builder, indices: str) -> str:
        """Index tuples that begin with their places along the batch axes."""
        type = build.type_of(indices)
        shape = (*type.shape[:-1], 1)
        batches = [build.emit(Iota(shape, a, dtype=type.dtype)) for a in range(self.batch_dims)]
        return build.emit(Concat(type.rank - 1), *batches, indices) if batches else indices


@dataclass(frozen=True)
class ScatterND(Op):
    """x with slice ``updates[j…]`` put at, or combined into, ``x[i…, *indices[j…, :]]``, for all
    ``i`` along ``axis`` axes.

    Of several updates of one slice ``none`` keeps the last.
    """

    reduction: Combination = "none"
    axis: int = 0
    samples = (
        *(
            sample(x, indices, updates, reduction=reduction)
            for reduction in ("none", "add", "mul", "max", "min")
            for x, indices, updates in (
                (tensor(3, 4), np.array([[0, 1], [2, -1], [0, 1]]), tensor(3)),
                (tensor(3, "n"), np.array([[2], [0]], np.int32), tensor(2, "n")),
                (tensor(2, 3, dtype=I32), np.array([[[1, 1]], [[0, 2]]]), tensor(2, 1, dtype=I32)),
            )
        ),
        sample(tensor(2, 4, 3), np.array([[3], [-4]]), tensor(2, 2, 3), axis=1),
        sample(tensor(2, 4, 3), np.array([[3, 1], [0, 2]]), tensor(2, 2), axis=1, reduction="add"),
        sample(tensor("n", 5), np.array([[1]]), tensor(1, "n"), axis=1),
    )

    def depth(self, indices: TensorType) -> int:
        """Axes of x that one index tuple selects from."""
        return GatherND().depth(indices)

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType]:
        check_updates("ScatterND", self.reduction, x, updates)
        require(0 <= self.axis < max(1, x.rank), f"ScatterND: {x} has no axis {self.axis}")
        (slices,) = self._slices(x, indices)
        require(
            slices.rank == updates.rank,
            f"the updates of ScatterND into {x} at indices {indices} must be {slices}, "
            f"not {updates}",
        )
        self.require_meetings(x, indices, updates)
        return (TensorType(x.shape, x.dtype),)

    def meetings(
        self, x: TensorType, indices: TensorType, updates: TensorType
    ) -> Iterator[Meeting]:
        (slices,) = self._slices(x, indices)
        for wanted, given in zip(slices.shape, updates.shape, strict=True):
            yield wanted, given, "extents of the updates of ScatterND differ"

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        result = x.copy()
        for place in np.ndindex(*indices.shape[:-1]):
            target = (*(slice(None),) * self.axis, *indices[place])
            if self.reduction == "none":
                result[target] = updates[place]
            else:
                result[target] = ACCUMULATE[self.reduction](result[target], updates[place])
        return result

    def _slices(self, x: TensorType, indices: TensorType) -> tuple[TensorType]:
        """The type of updates, whose axes before ``axis`` are behind those of the indices."""
        shape = [x.shape[a] for a in self._order(x, indices)]
        return GatherND().infer(TensorType(tuple(shape), x.dtype), indices)

    def _order(self, x: TensorType, indices: TensorType) -> tuple[int, ...]:
        """Axes of x with those that are selected first."""
        first = self.axis + self.depth(indices)
        return (*range(self.axis, min(first, x.rank)), *range(self.axis), *range(first, x.rank))

    def compute(self, at: StageBuilder, x: Operand, indices: Operand, updates: Operand) -> Operand:
        outer, depth, first = indices.rank - 1, self.depth(indices.type), self.axis
        return at.scatter(
            x,
            updates.shape,
            lambda o: [place_along(indices[(*o[:outer], k)], x, first + k) for k in range(depth)],
            lambda o, found: (*o[outer : outer + first], *found, *o[outer + first :]),
            lambda o: updates[o],
            COMBINE.get(self.reduction),
        )

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, indices, updates = inputs
        order = self._order(build.type_of(x), build.type_of(indices))
        back = tuple(map(order.index, range(len(order))))

        def turned(name: str, perm: tuple[int, ...]) -> str:
            return build.emit(Transpose(perm), name) if self.axis else name

        ways = Scattering(self.reduction, ScatterND(self.reduction), ScatterND("add"), GatherND())
        operands = (turned(x, order), indices, updates)
        dy, result = turned(dys[0], order), turned(outputs[0], order)
        dx, none, du = ways.gradients(build, dy, operands, result)
        return turned(dx, back), none, du
