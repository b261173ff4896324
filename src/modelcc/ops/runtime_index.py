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
from modelcc.ir.types import I64, Array, TensorType
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


def place_along(
    index: Element, x: Operand, axis: int, signed: bool = True
) -> tuple[Element, IndexBound]:
    """The run-time ``index`` along ``axis`` of x and its bound; ``signed`` ones may count from the
    end."""
    value = wrapped(index, x.shape[axis]) if signed else index
    return value, bound_along(x, axis, signed)


def at_index(
    at: StageBuilder,
    index: Element,
    x: Operand,
    axis: int,
    body: Callable[[Index], Element],
    signed: bool = True,
) -> Element:
    """``body(i)`` at the run-time ``index`` along ``axis`` of x; ``signed`` ones may count from the
    end."""
    value, bound = place_along(index, x, axis, signed)
    return at.gather(value, body, bound)


def require_from_front(indices: Array) -> None:
    """Refuse indices below zero."""
    if indices.size and indices.min() < 0:
        raise IndexError(f"index {indices.min()} counts from the end")


COMBINE: Mapping[Combination, Combine] = MappingProxyType(
    {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
)
"""How an update is combined with what is there; ``none`` is missing."""

ACCUMULATE: Mapping[Combination, np.ufunc] = MappingProxyType(
    {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
)
"""NumPy functions of the combinations, for ``ufunc.at``."""


def check_updates(op: str, reduction: Combination, x: TensorType, updates: TensorType) -> None:
    """Refuse updates of another dtype, and sums of what is not a number."""
    same_dtype(x, updates)
    if reduction != "none":
        require_numeric(x.dtype, f"{op} with reduction {reduction!r}")
