"""Joining and splitting of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.numpy.arrays import asarray
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Concatenation along ``axis``; None flattens all first."""
    first, *rest = _some(arrays, "concatenate")
    if axis is None:
        return concatenate([x.ravel() for x in (first, *rest)])
    return first.concatenated(rest, axis)


def stack(arrays: Sequence[Any], axis: int = 0) -> Tensor:
    """Stacked along a new axis."""
    given = _some(arrays, "stack")
    if len({x.shape for x in given}) > 1:
        shapes = ", ".join(str(x.type) for x in given)
        raise ModelError(f"stack of different shapes: {shapes}", callers_line(),
                         "use concatenate, or pad them")  # fmt: skip
    return concatenate([x.expand_dims(axis) for x in given], axis)


def atleast_1d(a: Any) -> Tensor:
    """With at least one axis."""
    x = asarray(a)
    return x if x.ndim else x.reshape((1,))


def atleast_2d(a: Any) -> Tensor:
    """With at least two axes, new ones first."""
    x = atleast_1d(a)
    return x if x.ndim > 1 else x.expand_dims(0)


def vstack(arrays: Sequence[Any]) -> Tensor:
    """Concatenated along rows; vectors are rows."""
    return concatenate([atleast_2d(x) for x in arrays])


def hstack(arrays: Sequence[Any]) -> Tensor:
    """Concatenated along columns."""
    given = [atleast_1d(x) for x in _some(arrays, "hstack")]
    return concatenate(given, 0 if given[0].ndim == 1 else 1)


def column_stack(arrays: Sequence[Any]) -> Tensor:
    """Vectors as columns, concatenated with matrices."""
    given = [atleast_1d(x) for x in arrays]
    return concatenate([x.expand_dims(1) if x.ndim == 1 else x for x in given], 1)


def split(a: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Equal parts, or parts that begin at indices."""
    return asarray(a).split(indices_or_sections, axis)


def array_split(a: Any, sections: int, axis: int = 0) -> list[Tensor]:
    """``sections`` parts, the first ones longer by one if the extent is not divisible."""
    x = asarray(a)
    size, longer = divmod(x.shape[axis], sections)
    ends = [size * k + min(k, longer) for k in range(1, sections)]
    return x.split(ends, axis)


def unstack(a: Any, axis: int = 0) -> list[Tensor]:
    """The parts along ``axis``, without it."""
    x = asarray(a).moveaxis(axis, 0)
    return list(x)


def _some(arrays: Sequence[Any], what: str) -> list[Tensor]:
    given = [asarray(x) for x in arrays]
    if not given:
        raise ModelError(f"{what} of nothing", callers_line(), "give at least one tensor")
    return given
