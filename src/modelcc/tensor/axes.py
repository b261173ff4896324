"""Axes as given by users: one, several or all, counted from either end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Expr, Index, compare, floordiv, product
from modelcc.ir.op import broadcast_shapes
from modelcc.ops.broadcast import dim_bounds
from modelcc.tensor.lazy import callers_line

Axes: TypeAlias = int | Sequence[int] | None
"""An axis, several, or None for all."""


def axis_of(axis: int, rank: int) -> int:
    """``axis`` from the front; :class:`ModelError` if there is no such axis."""
    place = axis.__index__()
    if not -rank <= place < rank:
        raise ModelError(f"there is no axis {axis} among {rank}", callers_line(),
                         f"axes are from {-rank} to {rank - 1}" if rank else None)  # fmt: skip
    return place % rank


def axes_of(axis: Axes, rank: int) -> tuple[int, ...]:
    """``axis`` as axes from the front, None as all; :class:`ModelError` for duplicates."""
    if axis is None:
        return tuple(range(rank))
    given = (axis,) if hasattr(axis, "__index__") else tuple(axis)  # pyright: ignore
    found = tuple(axis_of(a, rank) for a in given)  # pyright: ignore
    if len(set(found)) != len(found):
        raise ModelError(f"axes {given} repeat one", callers_line(), "name each axis once")
    return found


def extents_of(shape: Index | Sequence[Index]) -> tuple[Index, ...]:
    """A shape that may be given as one extent."""
    given = shape if isinstance(shape, Sequence) else (shape,)
    return tuple(e if isinstance(e, int | Expr) else e.__index__() for e in given)  # pyright: ignore


def filled_in(shape: Sequence[Index], old: Sequence[Index]) -> tuple[Index, ...]:
    """``shape`` with its -1 replaced to match the number of elements of ``old``.

    :class:`ModelError` if -1 occurs twice or no number fits.
    """
    unknown = [a for a, e in enumerate(shape) if e == -1]
    if not unknown:
        return tuple(shape)
    rest, elements = product(e for e in shape if e != -1), product(old)
    fits = rest != 0 and compare(floordiv(elements, rest) * rest, "==", elements,
                                 dim_bounds(old, shape))  # fmt: skip
    if len(unknown) > 1 or fits is False:
        text = ", ".join(map(str, shape))
        hint = "one extent may be -1, and the others must divide the elements"
        raise ModelError(f"{elements} elements have no shape ({text})", callers_line(), hint)
    return tuple(floordiv(elements, rest) if e == -1 else e for e in shape)


def common(*shapes: Sequence[Index]) -> tuple[Index, ...]:
    """The shape that ``shapes`` broadcast to; :class:`ModelError` with the caller's line."""
    try:
        return broadcast_shapes(*map(tuple, shapes))
    except ModelError as error:
        raise ModelError(error.message, callers_line(), error.hint) from error
