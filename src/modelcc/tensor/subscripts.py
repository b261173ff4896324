"""Parsing of subscripts, as in NumPy: each axis with its number, slice or indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, cast

import numpy as np

from modelcc.frontends.kit.slicing import FAR, clamped_range
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Expr, Index
from modelcc.ops.broadcast import dim_bounds
from modelcc.tensor.lazy import Lazy, callers_line


class SubscriptError(ModelError, IndexError):
    """An index that a tensor does not have."""


@dataclass(frozen=True)
class Cut:
    """Elements of an axis: ``count`` from ``start`` on, with stride ``step``; possibly dropped."""

    start: Index
    count: Index
    step: int = 1
    gone: bool = False


@dataclass(frozen=True)
class New:
    """A new axis."""


@dataclass(frozen=True)
class Picked:
    """A tensor of indices, or of bools for as many axes as it has."""

    indices: Lazy


Part = Cut | New | Picked
"""The part of a subscript for an axis."""


def parts_of(subscript: Any, shape: Sequence[Index], lift: Any) -> list[Part]:
    """A part for each axis of ``shape`` and each new one, in order; ``lift`` makes tensors.

    :class:`SubscriptError` for parts that are out of range or not an index.
    """
    items: list[Any] = [_item(item, lift) for item in items_of(subscript)]
    taken = sum(_axes_taken(item) for item in items)
    if taken > len(shape):
        raise _wrong(f"{taken} indices for {len(shape)} axes", "give at most one for each axis")
    dots = [k for k, item in enumerate(items) if isinstance(item, EllipsisType)]
    if len(dots) > 1:
        raise _wrong("several ... among the indices", "one stands for all axes left")
    at = dots[0] if dots else len(items)
    items[at : at + 1] = [slice(None)] * (len(shape) - taken)
    parts: list[Part] = []
    axis = 0
    for item in items:
        parts.append(_part(item, shape[axis] if axis < len(shape) else 0, axis, shape))
        axis += _axes_taken(item)
    return parts


def items_of(subscript: Any) -> tuple[Any, ...]:
    """The items of a subscript."""
    return cast("tuple[Any, ...]", subscript) if isinstance(subscript, tuple) else (subscript,)


def _item(item: Any, lift: Any) -> Any:
    """Lists, arrays and bools become tensors, integer-like values numbers."""
    if item is None or isinstance(item, slice | EllipsisType | Expr):
        return cast("Any", item)
    if isinstance(item, bool | np.bool_):
        raise _wrong("a bool among the indices", "use None, or modelcc.numpy.where")
    if isinstance(item, int | np.integer):
        return item.__index__()
    tensor: Lazy = item if isinstance(item, Lazy) else lift(_indices(item))
    if tensor.type.dtype.kind not in ("bool", "int", "uint"):
        raise _wrong(f"an index of type {tensor.type.dtype}", "indices are integers or bools")
    return tensor


def _indices(item: Any) -> Any:
    array = np.array(item)
    return array.astype(np.int64) if array.size == 0 and array.dtype == np.float64 else array


def _axes_taken(item: Any) -> int:
    if item is None or isinstance(item, EllipsisType):
        return 0
    if isinstance(item, Lazy) and item.type.dtype.kind == "bool":
        return item.ndim
    return 1


def _part(item: Any, extent: Index, axis: int, shape: Sequence[Index]) -> Part:
    if item is None:
        return New()
    if isinstance(item, slice):
        return _cut(cast("Any", item), extent, axis)
    if isinstance(item, Lazy):
        return Picked(item)
    return Cut(_place(item, extent, axis, shape), 1, gone=True)


def _place(item: Index, extent: Index, axis: int, shape: Sequence[Index]) -> Index:
    """The index counted from the front."""
    if isinstance(item, int) and isinstance(extent, int) and not -extent <= item < extent:
        given = ", ".join(map(str, shape))
        raise _wrong(f"index {item} for axis {axis} of extent {extent}",
                     f"the shape is ({given})")  # fmt: skip
    return item + extent if isinstance(item, int) and item < 0 else item


def _cut(item: slice, extent: Index, axis: int) -> Cut:
    start, stop, step = (_bound(b) for b in (item.start, item.stop, item.step))
    step = 1 if step is None else step
    if not isinstance(step, int) or step == 0:
        raise _wrong(f"a slice of axis {axis} with step {step}", "steps are numbers, not 0")
    if isinstance(extent, int) and not isinstance(start, Expr) and not isinstance(stop, Expr):
        places = range(extent)[slice(start, stop, step)]
        return Cut(places.start if len(places) else 0, len(places), step)
    first = (0 if step > 0 else FAR) if start is None else start
    end = (FAR if step > 0 else -FAR) if stop is None else stop
    if step < 0 and start is None:
        first = extent - 1
    found, count = clamped_range(first, end, step, extent, dim_bounds((extent, first, end)))
    return Cut(found, count, step)


def _bound(value: Any) -> Any:
    return value if value is None or isinstance(value, int | Expr) else value.__index__()


def _wrong(what: str, hint: str) -> SubscriptError:
    return SubscriptError(what, callers_line(), hint)
