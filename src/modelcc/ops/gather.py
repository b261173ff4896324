"""Ops that read and write at run-time indices: Gather, OneHot, ScatterND …

Negative indices count from the end.  An index out of range is a fault of the caller; the NumPy
references raise ``IndexError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, number, select
from modelcc.ir.index import Index
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.narrowing import FOLLOWS
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require
from modelcc.ir.quantized_form import MOVES, QuantizedForm
from modelcc.ir.types import BOOL, F16, I64, Array, TensorType
from modelcc.ops.accumulate import accumulator, require_numeric, rounded
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum, Reshape, numbers
from modelcc.ops.gather_elements import GatherElements as GatherElements
from modelcc.ops.gather_elements import ScatterElements as ScatterElements
from modelcc.ops.gather_nd import GatherND as GatherND
from modelcc.ops.gather_nd import ScatterND as ScatterND
from modelcc.ops.runtime_index import Point, at_index, require_integer, wrapped
from modelcc.ops.samples import sample, tensor
from modelcc.ops.shape import Concat


@dataclass(frozen=True)
class Gather(Op):
    """``result[i…, j…, k…] = x[i…, indices[j…], k…]`` with ``axis`` axes in ``i``."""

    narrowing = FOLLOWS
    axis: int = 0
    symbolic = True
    samples = (
        sample(tensor(3, 4), np.array([0, 2, -1, 1])),
        sample(tensor(2, "n", 3), np.array([[0, 1], [-1, 0]]), axis=1),
        sample(tensor(4, 3), np.array(2)),
        sample(tensor(3, dtype=I64), np.array(-1, np.int32), axis=0),
        sample(tensor(2, 3, dtype=F16), np.zeros((0,), np.int64), axis=1),
        sample(tensor(4, dtype=BOOL), np.array([[[3]]], np.int32)),
    )

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType]:
        require_integer(indices, "Gather")
        require(0 <= self.axis < x.rank, f"Gather along axis {self.axis} of {x}")
        shape = (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])
        return (TensorType(shape, x.dtype),)

    def reference(self, x: Array, indices: Array) -> Array:
        taken = np.empty(
            (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :]), x.dtype
        )
        taken[...] = np.take(x, indices.astype(np.int64), self.axis)
        return taken

    def compute(self, at: StageBuilder, x: Operand, indices: Operand) -> Operand:
        (result,) = self.infer(x.type, indices.type)
        first, last = self.axis, self.axis + indices.rank

        def body(o: Point) -> Element:
            return at_index(
                at, indices[o[first:last]], x, self.axis, lambda i: x[(*o[:first], i, *o[last:])]
            )

        return at.stage(result.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, indices = inputs
        extent = build.type_of(x).shape[self.axis]
        return build.emit(GatherSum(self.axis, extent), dys[0], indices), None

    def quantize(self) -> QuantizedForm:
        return MOVES


@dataclass(frozen=True)
class GatherSum(Op):
    """The transpose of :class:`Gather`: adds x at ``indices`` along ``axis`` of zeros.

    ``result[i…, e, k…] = sum over j with indices[j…] == e of x[i…, j…, k…]``, ``e < extent``.
    """

    axis: int
    extent: Index
    samples = (
        sample(tensor(4, 3), np.array([0, 2, -1, 2]), axis=0, extent=5),
        sample(tensor(2, 2, 2, "n"), np.array([[0, 1], [-1, 0]]), axis=1, extent=3),
        sample(tensor(3, dtype=F16), np.array(1), axis=0, extent=2),
    )

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType]:
        require_integer(indices, "GatherSum")
        require_numeric(x.dtype, "GatherSum")
        last = self.axis + indices.rank
        self.require_meetings(x, indices)
        return (TensorType((*x.shape[: self.axis], self.extent, *x.shape[last:]), x.dtype),)

    def meetings(self, x: TensorType, indices: TensorType) -> Iterator[Meeting]:
        last = self.axis + indices.rank
        for given, expected in zip(x.shape[self.axis : last], indices.shape, strict=True):
            yield given, expected, f"GatherSum of {x} at indices {indices}"

    def reference(self, x: Array, indices: Array) -> Array:
        (extent,) = numbers((self.extent,))
        last = self.axis + indices.ndim
        total = np.zeros((*x.shape[: self.axis], extent, *x.shape[last:]), x.dtype)
        place = (slice(None),) * self.axis
        for j in np.ndindex(*indices.shape):
            total[(*place, indices[j])] += x[(*place, *j)]
        return total

    def compute(self, at: StageBuilder, x: Operand, indices: Operand) -> Operand:
        (result,) = self.infer(x.type, indices.type)
        wide = accumulator(x.dtype)
        first, last = self.axis, self.axis + indices.rank
        total = at.scatter(
            at.stage(result.shape, lambda _: number(0, wide)),
            x.shape,
            lambda o: [(wrapped(indices[o[first:last]], self.extent), self._bound())],
            lambda o, found: (*o[:first], *found, *o[last:]),
            lambda o: x[o].cast(wide),
            "sum",
        )
        return rounded(at, total, x.dtype)

    def _bound(self) -> IndexBound:
        return IndexBound(self.extent, f"axis {self.axis} of the sum", wrapped=True)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        _, indices = inputs
        return build.emit(Gather(self.axis), dys[0], indices), None


@dataclass(frozen=True)
class OneHot(Op):
    """``values[1]`` where the new ``axis`` of extent ``depth`` is at the index, else ``values[0]``.

    Indices outside ``-depth … depth-1`` give ``values[0]`` everywhere.
    """

    axis: int
    depth: Index
    samples = (
        sample(np.array([0, 2, -1, 7]), np.array([0.0, 1.0], np.float32), axis=1, depth=4),
        sample(np.array([[0, 2], [-4, 1]], np.int32), np.array([3, 5]), axis=0, depth=3),
        sample(np.array(1), np.array([-1.0, 1.0], np.float32), axis=0, depth=2),
    )

    def infer(self, indices: TensorType, values: TensorType) -> tuple[TensorType]:
        require_integer(indices, "OneHot")
        require(values.shape == (2,), f"OneHot needs the two values off and on, not {values}")
        require(
            0 <= self.axis <= indices.rank,
            f"OneHot cannot put a new axis {self.axis} into indices {indices}",
        )
        before, after = indices.shape[: self.axis], indices.shape[self.axis :]
        return (TensorType((*before, self.depth, *after), values.dtype),)

    def reference(self, indices: Array, values: Array) -> Array:
        (depth,) = numbers((self.depth,))
        places = np.expand_dims(np.where(indices < 0, indices + depth, indices), self.axis)
        line = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - self.axis))
        hot: Array = places == line
        off, on = (values[[k]].reshape(()) for k in (0, 1))
        return np.where(hot, on, off)

    def compute(self, at: StageBuilder, indices: Operand, values: Operand) -> Operand:
        (result,) = self.infer(indices.type, values.type)

        def body(o: Point) -> Element:
            index = indices[(*o[: self.axis], *o[self.axis + 1 :])]
            place = index_value(o[self.axis], index.dtype)
            hot = apply("eq", wrapped(index, self.depth), place)
            return select(hot, values[1], values[0])

        return at.stage(result.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        indices, values = inputs
        dtype, dy = build.type_of(values).dtype, Value(build, dys[0])
        bits = build.constant(np.array([0, 1], dtype.numpy))
        hot = dy * Value(build, build.emit(self, indices, bits))
        axes = tuple(range(dy.type.rank))
        on, off = (of(Reshape((1,)), of(ReduceSum(axes), part)) for part in (hot, dy - hot))
        return None, of(Concat(0), off, on).name


OPS: tuple[type[Op], ...] = (
    *(Gather, GatherSum, OneHot),
    *(GatherElements, ScatterElements, GatherND, ScatterND),
)
