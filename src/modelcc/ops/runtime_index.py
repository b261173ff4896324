"""Indices known at run time only: their checks, wrapping, and what Scatter combines by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, index_value, select
from modelcc.ir.index import Index
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.op import require, same_dtype
from modelcc.ir.scalar import Combine
from modelcc.ir.types import I64, DType, TensorType
from modelcc.ops.accumulate import require_numeric

Point = tuple[Index, ...]
Combination = Literal["none", "add", "mul", "max", "min"]
"""How Scatter combines an update with what is there; ``none`` replaces it."""


def require_integer(indices: TensorType, op: str) -> None:
    """Refuse indices that are not integers."""
    require(
        indices.dtype.is_integer,
        f"the indices of {op} must be integers, not {indices.dtype}",
        "cast them to i64",
    )


def wrapped(index: Element, extent: Index) -> Element:
    """``index``, plus ``extent`` where it is negative; i64 if the sum may not fit."""
    if index.dtype.kind == "uint":
        return index
    if not isinstance(extent, int) or extent >= 1 << (index.dtype.bits - 1):
        index = index.cast(I64)
    return select(index < 0, index + index_value(extent, index.dtype), index)


def bound_along(x: Operand, axis: int, wrapped: bool = True) -> IndexBound:
    """What an index along ``axis`` of x must lie in; ``wrapped`` if it may count from the end."""
    return IndexBound(x.shape[axis], f"axis {axis} of {x.name!r}", wrapped=wrapped)


def at_index(
    at: StageBuilder, index: Element, x: Operand, axis: int, body: Callable[[Index], Element]
) -> Element:
    """``body(i)`` at the run-time ``index`` along ``axis`` of x, which may count from the end."""
    return at.gather(wrapped(index, x.shape[axis]), body, bound_along(x, axis))


def checked(at: StageBuilder, indices: Operand, x: Operand, axis: int) -> Operand:
    """``indices`` along ``axis`` of x, counted from the start; the run ends if x has no such place.

    They are i64, stored: whoever looks at all of them for every element does not check again.
    """

    def body(o: Point) -> Element:
        return at_index(at, indices[o], x, axis, lambda i: index_value(i, I64))

    return at.stage(indices.shape, body)


def neutral(reduction: Combination, dtype: DType) -> float | int:
    """What changes nothing when combined by ``reduction``."""
    if reduction in ("none", "add"):
        return 0
    if reduction == "mul":
        return 1
    if dtype.is_float:
        return float("-inf") if reduction == "max" else float("inf")
    low = 0 if dtype.kind == "uint" else -(1 << (dtype.bits - 1))
    return low if reduction == "max" else low + (1 << dtype.bits) - 1


COMBINE: Mapping[Combination, tuple[Combine, str]] = MappingProxyType(
    {"add": ("sum", "add"), "mul": ("prod", "mul"), "max": ("max", "max"), "min": ("min", "min")}
)
"""Reduction over the updates of one element, and the function that adds them to it."""

ACCUMULATE: Mapping[Combination, np.ufunc] = MappingProxyType(
    {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
)
"""NumPy functions of the combinations, for ``ufunc.at``."""


def check_updates(op: str, reduction: Combination, x: TensorType, updates: TensorType) -> None:
    """Refuse updates of another dtype, and sums of what is not a number."""
    same_dtype(x, updates)
    if reduction != "none":
        require_numeric(x.dtype, f"{op} with reduction {reduction!r}")
