"""Reductions over axes, cumulative sums, and indices of extremes and sorted order."""

from __future__ import annotations

from typing import Any, Self

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, product
from modelcc.ir.types import BOOL, F64, I64, U8, U64, DType
from modelcc.ops.broadcast import Reduction
from modelcc.ops.cumulative import CumProd, CumSum
from modelcc.ops.generate import Indices
from modelcc.ops.reduce import (
    ArgMax,
    ArgMin,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from modelcc.ops.top_k import TopK
from modelcc.tensor.axes import Axes, axes_of, axis_of
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.shapes import TensorShapes


def total_type(dtype: DType) -> DType:
    """The type of a sum, as in NumPy: integers are added in 64 bits."""
    if dtype.kind == "uint":
        return U64
    return I64 if dtype == BOOL or dtype.is_integer else dtype


class TensorReductions(TensorShapes):
    """Reductions over an axis, several, or all; with ``keepdims`` these stay with extent 1."""

    __slots__ = ()

    def reduced(self, kind: type[Reduction], axis: Axes, keepdims: bool) -> Self:
        """The reduction ``kind``."""
        axes = axes_of(axis, self.ndim)
        return self.result(kind(axes, keepdims), self) if axes else self

    def sum(self, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Self:
        """The sum, of integers in 64 bits."""
        return self._total(ReduceSum, axis, dtype, keepdims)

    def prod(self, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Self:
        """The product, of integers in 64 bits."""
        return self._total(ReduceProd, axis, dtype, keepdims)

    def _total(self, kind: type[Reduction], axis: Axes, dtype: Any, keepdims: bool) -> Self:
        wide = total_type(self.type.dtype) if dtype is None else named_type(dtype)
        return self.cast(wide).reduced(kind, axis, keepdims)

    def mean(self, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Self:
        """The mean, of integers as f64."""
        own = self.type.dtype if self.type.dtype.is_float else F64
        wide = own if dtype is None else named_type(dtype)
        return self.cast(wide).reduced(ReduceMean, axis, keepdims)

    def var(
        self, axis: Axes = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Self:
        """The variance, with divisor ``n - ddof`` for n elements."""
        x = self.cast(named_type(dtype)) if dtype is not None else self
        x = x if x.type.dtype.is_float else x.cast(F64)
        distance = x - x.mean(axis, keepdims=True)
        square = distance * distance
        if not ddof:
            return square.mean(axis, keepdims=keepdims)
        count = product(self.type.shape[a] for a in axes_of(axis, self.ndim))
        return square.sum(axis, keepdims=keepdims) / x.size_as_tensor(count - ddof)

    def size_as_tensor(self, size: Any) -> Self:
        """An extent or an expression of extents, as a number of this type."""
        if isinstance(size, int):
            return self.of_number(max(size, 0), self.type.dtype)
        return self.result(Indices((size,), (), self.type.dtype))

    def std(
        self, axis: Axes = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Self:
        """The square root of :meth:`var`."""
        return self.var(axis, dtype, ddof, keepdims).sqrt()

    def max(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """The greatest element, NaN if there is one."""
        self._some(axis, "greatest")
        return self.reduced(ReduceMax, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """The least element, NaN if there is one."""
        self._some(axis, "least")
        return self.reduced(ReduceMin, axis, keepdims)

    def _some(self, axis: Axes, what: str) -> None:
        if any(self.type.shape[a] == 0 for a in axes_of(axis, self.ndim)):
            raise ModelError(f"{self.type} has no elements to be the {what}", callers_line())

    def any(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """Whether an element is not 0."""
        return self.cast(BOOL).reduced(ReduceMax, axis, keepdims)

    def all(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """Whether no element is 0."""
        return self.cast(BOOL).reduced(ReduceMin, axis, keepdims)

    def logsumexp(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """``log(sum(exp(x)))`` without overflow."""
        return self.floats().reduced(ReduceLogSumExp, axis, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """The index of the first greatest element, in the flattened tensor without ``axis``."""
        return self._place(ArgMax, axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """The index of the first least element, in the flattened tensor without ``axis``."""
        return self._place(ArgMin, axis, keepdims)

    def _place(self, kind: type[ArgMax] | type[ArgMin], axis: int | None, keepdims: bool) -> Self:
        x = self.cast(I64) if self.type.dtype == BOOL else self
        if axis is None:
            found = x.ravel().result(kind(0, False), x.ravel())
            return found.reshape((1,) * self.ndim) if keepdims else found
        return x.result(kind(axis_of(axis, self.ndim), keepdims), x)

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> Self:
        """Cumulative sums along ``axis``, of the flattened tensor without."""
        return self._running(CumSum, axis, dtype)

    def cumprod(self, axis: int | None = None, dtype: Any = None) -> Self:
        """Cumulative products along ``axis``, of the flattened tensor without."""
        return self._running(CumProd, axis, dtype)

    def _running(self, kind: type[CumSum] | type[CumProd], axis: int | None, dtype: Any) -> Self:
        wide = total_type(self.type.dtype) if dtype is None else named_type(dtype)
        x = (self.ravel() if axis is None else self).cast(wide)
        return x.result(kind(axis_of(axis or 0, x.ndim)), x)

    def top_k(self, k: Index, axis: int = -1, largest: bool = True) -> tuple[Self, Self]:
        """The ``k`` largest or smallest elements along ``axis``, best first, and their indices."""
        x = self.cast(U8) if self.type.dtype == BOOL else self
        values, places = x.results(TopK(k, axis_of(axis, self.ndim), largest), x)
        return values.cast(self.type.dtype), places

    def sort(self, axis: int | None = -1) -> Self:
        """Sorted ascending along ``axis``, None for the flattened tensor; NaN last."""
        return self._ordered(axis)[0]

    def argsort(self, axis: int | None = -1) -> Self:
        """Indices of the ascending order along ``axis``; the sort is stable."""
        return self._ordered(axis)[1]

    def _ordered(self, axis: int | None) -> tuple[Self, Self]:
        if axis is None:
            return self.ravel()._ordered(0)
        place = axis_of(axis, self.ndim)
        return self.top_k(self.type.shape[place], place, largest=False)
