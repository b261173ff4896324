"""TopK: the k largest or smallest elements along an axis, by a short list or by leading bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, test
from modelcc.ir.compute import Operand
from modelcc.ir.condition import Demands
from modelcc.ir.index import Index, product
from modelcc.ir.op import Op, Sample, require
from modelcc.ir.types import F16, I32, I64, U8, Array, TensorType
from modelcc.ops.broadcast import numbers
from modelcc.ops.radix_sort import KeyedPlaces, KeyOrder, keyed_places
from modelcc.ops.samples import tensor
from modelcc.ops.selection import Row, select_by_key
from modelcc.ops.shortlist import MOST, Shortlist, select_by_list, shortlist

_NAN, _INF = np.nan, np.inf
_ODD = np.array([[1, _NAN, 3, 2], [_NAN, _NAN, 0, 5], [_INF, _NAN, -_INF, 0]], np.float32)


@dataclass(frozen=True)
class TopK(Op):
    """The ``k`` largest (or smallest) elements along ``axis``, best first, and their indices.

    Of equal elements the one with the lower index comes first; NaN is the largest.  Few come
    from a short list (:mod:`modelcc.ops.shortlist`), which most elements never enter; of many,
    those with the leading bits of the k-th and better ones are sorted: O(n) for n elements.
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
        Sample((_ODD,), {"k": 1, "axis": 1}),
        Sample((tensor(3, 21),), {"k": 1, "axis": 1, "largest": False}),
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
        # NumPy's sort misplaces NaN of types that are not its own.
        plain = x if x.dtype.kind in "iuf" else x.astype(np.float32)
        moved = np.moveaxis(plain, self.axis, -1)
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
        inner = product(x.shape[self.axis + 1 :]) or 1
        rows = product(x.shape[: self.axis]) * inner
        work = x.type.elements
        short = rows == 1 or at.capacity.is_little(work)
        extent, k = x.shape[self.axis], self.k

        def row_at(row: Index) -> Row:
            outer, lane = row // inner, row % inner
            source = outer * extent * inner + lane
            target = outer * k * inner + lane
            return Row(x, values, indices, source, target, inner, extent, k, self.largest)

        blocks = 1 if short else at.capacity.blocks(rows)
        few = None if _is(k, ">", MOST) else shortlist(at, x.dtype, self.largest, blocks)
        order = KeyOrder(x.dtype, descending=self.largest)
        many = None if _is(k, "<=", MOST) else keyed_places(at, order, extent, blocks)
        with at.shared_loop(blocks, work) as block:
            lists, pairs = few and few.at_block(block), many and many.at_block(block)
            with at.loop(block * rows // blocks, (block + 1) * rows // blocks) as row:
                _select(at, row_at(row), lists, pairs)


def _is(k: Index, comparison: Literal["<=", ">"], bound: int) -> bool:
    """Whether that is known of k."""
    return isinstance(k, int) and (k <= bound) == (comparison == "<=")


def _select(
    at: AlgorithmBuilder, row: Row, few: Shortlist | None, many: KeyedPlaces | None
) -> None:
    """By the way that is faster for k; there is memory for those that may be."""
    if few and many:
        with at.when(test(row.k, "<=", MOST)), at.when(test(row.k, ">", 0)):
            select_by_list(at, row, few)
        with at.when(test(row.k, ">", MOST)):
            select_by_key(at, row, many)
    elif many:
        select_by_key(at, row, many)
    elif few and row.k != 0:
        select_by_list(at, row, few)


OPS: tuple[type[Op], ...] = (TopK,)
