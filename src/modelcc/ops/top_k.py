"""TopK: the k largest or smallest elements along an axis, by a heap of k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call, index_number, test
from modelcc.ir.compute import Operand
from modelcc.ir.condition import Demands
from modelcc.ir.index import Index, product
from modelcc.ir.loop import Expr, LoopKind
from modelcc.ir.op import Op, Sample, require
from modelcc.ir.types import F16, I32, I64, U8, Array, TensorType
from modelcc.ops.broadcast import numbers
from modelcc.ops.samples import tensor
from modelcc.ops.sorting import below, sift_down

PARALLEL_FROM = 1 << 15
"""Elements from which rows are worth several threads."""

_NAN, _INF = np.nan, np.inf
_ODD = np.array([[1, _NAN, 3, 2], [_NAN, _NAN, 0, 5], [_INF, _NAN, -_INF, 0]], np.float32)


@dataclass(frozen=True)
class TopK(Op):
    """The ``k`` largest (or smallest) elements along ``axis``, best first, and their indices.

    Of equal elements the one with the lower index comes first; NaN is the largest.  O(n log k)
    for n elements: a heap of the best so far, the worst of them in front.
    """

    k: Index
    axis: int
    largest: bool = True
    samples = (
        Sample((tensor(3, 7),), {"k": 3, "axis": 1}),
        Sample((tensor(4, "n"),), {"k": 2, "axis": 0, "largest": False}),
        Sample((np.array([[3, 1, 3], [2, 2, 2]], np.int32),), {"k": 3, "axis": 1}),
        Sample((tensor(2, 5, 3, dtype=F16),), {"k": 4, "axis": 1}),
        Sample((tensor(9, dtype=I64),), {"k": 9, "axis": 0, "largest": False}),
        Sample((tensor(5, dtype=U8),), {"k": 0, "axis": 0}),
        Sample((tensor(1, 1, dtype=I32),), {"k": 1, "axis": 1}),
        Sample((_ODD,), {"k": 3, "axis": 1}),
        Sample((_ODD,), {"k": 3, "axis": 1, "largest": False}),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype.is_float or x.dtype.is_integer, f"TopK of {x.dtype} has no order")
        require(0 <= self.axis < x.rank, f"TopK along axis {self.axis} of {x}")
        extent = x.shape[self.axis]
        fits = not isinstance(self.k, int) or (
            self.k >= 0 and not (isinstance(extent, int) and self.k > extent)
        )
        require(fits, f"TopK of {self.k} elements along axis {self.axis} of {x}")
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return TensorType(shape, x.dtype), TensorType(shape, I64)

    def agreements(self, x: TensorType) -> Demands:
        return ((self.k, "<=", x.shape[self.axis]),)

    def reference(self, x: Array) -> tuple[Array, Array]:
        (k,) = numbers((self.k,))
        moved = np.moveaxis(x, self.axis, -1)
        # The highest last with equal ones in reverse order, for a stable sort.
        order = (
            x.shape[self.axis] - 1 - np.argsort(moved[..., ::-1], -1, "stable")[..., ::-1]
            if self.largest
            else np.argsort(moved, -1, "stable")
        )[..., :k]
        order = np.moveaxis(order, -1, self.axis).astype(np.int64)
        return np.take_along_axis(x, order, self.axis), np.ascontiguousarray(order)

    def algorithm(
        self, at: AlgorithmBuilder, inputs: Sequence[Operand | None], outputs: Sequence[Operand]
    ) -> None:
        (x,), (values, indices) = inputs, outputs
        assert x is not None
        extent, k = x.shape[self.axis], self.k
        inner = product(x.shape[self.axis + 1 :]) or 1
        rows = product(x.shape[: self.axis]) * inner
        work = x.type.elements
        short = rows == 1 or (isinstance(work, int) and work < PARALLEL_FROM)
        kind: LoopKind = "serial" if short else "parallel"
        with at.loop(0, rows, kind) as row, at.when(test(k, ">", 0)):
            outer, lane = row // inner, row % inner
            heap = _Selected(at, self.largest, values, indices, outer * k * inner + lane, inner)
            source = outer * extent * inner + lane
            self._select(at, heap, x, source, inner, extent)

    def _select(
        self,
        at: AlgorithmBuilder,
        heap: _Selected,
        x: Operand,
        source: Index,
        stride: Index,
        extent: Index,
    ) -> None:
        """The best of a row in the heap, then sorted."""
        k = self.k
        with at.loop(0, k) as j:
            heap.write(j, at.load(x, source + j * stride), index_number(j))
        with at.loop(0, k // 2) as step:
            start = k // 2 - 1 - step
            value, origin = (at.register(e) for e in heap.read(start))
            sift_down(at, heap, index_number(start), k, value, origin)
        with at.loop(k, extent) as j:
            value = at.register(at.load(x, source + j * stride))
            origin = at.register(index_number(j))
            # What comes later loses against its equals.
            with at.when(heap.beaten(heap.read(0)[0], value)):
                sift_down(at, heap, index_number(0), k, value, origin)
        with at.loop(0, k - 1) as step:
            last = k - 1 - step
            value, origin = (at.register(e) for e in heap.read(last))
            heap.write(last, *(at.let(e) for e in heap.read(0)))
            sift_down(at, heap, index_number(0), last, value, origin)


@dataclass(frozen=True)
class _Selected:
    """The elements of one row of the results, as a heap."""

    at: AlgorithmBuilder
    largest: bool
    values: Operand
    indices: Operand
    start: Index
    stride: Index

    def read(self, place: Index) -> tuple[Expr, Expr]:
        offset = self.start + place * self.stride
        return self.at.load(self.values, offset), self.at.load(self.indices, offset)

    def write(self, place: Index, value: Expr, origin: Expr) -> None:
        offset = self.start + place * self.stride
        self.at.store(self.values, offset, value)
        self.at.store(self.indices, offset, origin)

    def worse(self, a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> Expr:
        no_better = call("not", self.beaten(b[0], a[0]))
        return call("or", self.beaten(a[0], b[0]), call("and", no_better, call("gt", a[1], b[1])))

    def beaten(self, a: Expr, b: Expr) -> Expr:
        """Whether value ``a`` is worse than ``b``."""
        return below(a, b) if self.largest else below(b, a)


OPS: tuple[type[Op], ...] = (TopK,)
