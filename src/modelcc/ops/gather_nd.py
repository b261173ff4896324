"""GatherND and ScatterND: index tuples that select slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, guard, index_value, select
from modelcc.ir.condition import Demands
from modelcc.ir.index import Index, mod, product
from modelcc.ir.op import Builder, Op, Sample, equal, require
from modelcc.ir.tensor import Condition
from modelcc.ir.types import I32, I64, Array, TensorType
from modelcc.ops.accumulate import combined, require_equal
from modelcc.ops.generate import Full
from modelcc.ops.runtime_index import (
    ACCUMULATE,
    COMBINE,
    Combination,
    Point,
    at_index,
    check_updates,
    neutral,
    require_integer,
)
from modelcc.ops.samples import tensor


@dataclass(frozen=True)
class GatherND(Op):
    """``result[b…, j…, k…] = x[b…, *indices[b…, j…, :], k…]`` with ``batch_dims`` axes ``b``."""

    batch_dims: int = 0
    samples = (
        Sample((tensor(3, 4), np.array([[0, 1], [2, -1]])), {}),
        Sample((tensor(3, 4), np.array([[1], [-1]])), {}),
        Sample((tensor(2, 3, 4), np.array([[[0], [2]], [[1], [1]]])), {"batch_dims": 1}),
        Sample((tensor(2, 3, "n", dtype=I64), np.array([1, 2], np.int32)), {}),
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
                at,
                indices[(*o[:outer], k)],
                x,
                self.batch_dims + k,
                lambda i: read(o, (*found, i)),
            )

        return at.stage(result.shape, lambda o: read(o, ()))

    def grad(
        self, build: Builder, dys: Sequence[str], x: str, indices: str
    ) -> tuple[str | None, None]:
        if self.batch_dims:
            return None, None
        t = build.type_of(x)
        zeros = build.emit(Full(t.shape, 0, t.dtype))
        return build.emit(ScatterND("add"), zeros, indices, dys[0]), None


@dataclass(frozen=True)
class ScatterND(Op):
    """x with slice ``updates[j…]`` put at, or combined into, ``x[*indices[j…, :]]``.

    Of several updates of one slice ``none`` keeps the last.  As stages every element looks at
    all index tuples.
    """

    reduction: Combination = "none"
    samples = tuple(
        Sample((x, indices, updates), {"reduction": reduction})
        for reduction in ("none", "add", "mul", "max", "min")
        for x, indices, updates in (
            (tensor(3, 4), np.array([[0, 1], [2, -1], [0, 1]]), tensor(3)),
            (tensor(3, "n"), np.array([[2], [0]], np.int32), tensor(2, "n")),
            (tensor(2, 3, dtype=I32), np.array([[[1, 1]], [[0, 2]]]), tensor(2, 1, dtype=I32)),
        )
    )

    def depth(self, indices: TensorType) -> int:
        """Axes of x that one index tuple selects from."""
        return GatherND().depth(indices)

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType]:
        check_updates("ScatterND", self.reduction, x, updates)
        (slices,) = GatherND().infer(x, indices)
        require(
            slices.rank == updates.rank,
            f"the updates of ScatterND into {x} at indices {indices} must be {slices}, "
            f"not {updates}",
        )
        for wanted, given in zip(slices.shape, updates.shape, strict=True):
            require_equal(wanted, given, "extents of the updates of ScatterND differ")
        return (TensorType(x.shape, x.dtype),)

    def agreements(self, x: TensorType, indices: TensorType, updates: TensorType) -> Demands:
        (slices,) = GatherND().infer(x, indices)
        return equal(slices.shape, updates.shape)

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        result = x.copy()
        for place in np.ndindex(*indices.shape[:-1]):
            target = tuple(indices[place])
            if self.reduction == "none":
                result[target] = updates[place]
            else:
                result[target] = ACCUMULATE[self.reduction](result[target], updates[place])
        return result

    def compute(self, at: StageBuilder, x: Operand, indices: Operand, updates: Operand) -> Operand:
        outer, depth = indices.shape[:-1], self.depth(indices.type)
        places = [self._places(at, indices, x, k) for k in range(depth)]

        def met(o: Point, j: Point, then: Element, other: float) -> Element:
            """``then`` where index tuple j selects the slice of ``o``."""
            result = then
            for k in range(depth):
                index = places[k][j]
                here = apply("eq", index, index_value(o[k], index.dtype))
                result = select(here, result, other)
            return result

        if self.reduction != "none":
            combine, function = COMBINE[self.reduction]
            start = neutral(self.reduction, x.dtype)
            total = combined(
                at,
                x.shape,
                outer,
                combine,
                lambda o, j: met(o, j, updates[(*j, *o[depth:])], start),
            )
            return at.stage(x.shape, lambda o: apply(function, x[o], total[o]))
        last = combined(
            at,
            x.shape,
            outer,
            "max",
            lambda o, j: met(o, j, index_value(_linear(j, outer), I64), -1),
        )

        def body(o: Point) -> Element:
            # The number of an update, where there are any.
            update = at.gather(
                apply("max", last[o], 0),
                lambda j: updates[(*_unlinear(j, outer), *o[depth:])],
                None,
            )
            some = [Condition(product(outer), ">=", 1)]
            return select(last[o] < 0, x[o], guard(some, update, 0))

        return at.stage(x.shape, body)

    def _places(self, at: StageBuilder, indices: Operand, x: Operand, axis: int) -> Operand:
        """Where tuples are along ``axis`` of x; the run ends if x has no such place."""

        def body(o: Point) -> Element:
            return at_index(at, indices[(*o, axis)], x, axis, lambda i: index_value(i, I64))

        return at.stage(indices.shape[:-1], body)

    def grad(
        self, build: Builder, dys: Sequence[str], x: str, indices: str, updates: str
    ) -> tuple[str | None, None, str | None]:
        du = build.emit(GatherND(), dys[0], indices)
        if self.reduction == "add":
            return dys[0], None, du
        return None, None, None


def _linear(j: Sequence[Index], extents: Sequence[Index]) -> Index:
    """Row-major position of index ``j``."""
    position: Index = 0
    for i, extent in zip(j, extents, strict=True):
        position = position * extent + i
    return position


def _unlinear(position: Index, extents: Sequence[Index]) -> Point:
    """The index at a row-major position."""
    result: list[Index] = []
    for axis, extent in enumerate(extents):
        i = position // product(extents[axis + 1 :])
        result.append(mod(i, extent) if axis else i)
    return tuple(result)
