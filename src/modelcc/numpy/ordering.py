"""Sorting, searching, selection and counting under NumPy's names.

Results of data-dependent shape are computed eagerly; in traced functions they need a ``size``,
which NumPy lacks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import BOOL, F64, I64, U8
from modelcc.numpy.arrays import arange, asarray, full, ones, zeros
from modelcc.numpy.pairs import both, where
from modelcc.ops.gather_elements import GatherElements
from modelcc.ops.nonzero import NonZero
from modelcc.ops.unique import Unique
from modelcc.tensor.axes import axis_of
from modelcc.tensor.lazy import TRACED, TracingError, callers_line
from modelcc.tensor.tensor import Tensor


def sort(a: Any, axis: int | None = -1, kind: str | None = None) -> Tensor:
    """Ascending along ``axis``, None for all elements flattened; NaN last.  ``kind`` is ignored."""
    return asarray(a).sort(axis)


def argsort(a: Any, axis: int | None = -1, kind: str | None = None) -> Tensor:
    """Indices in ascending order along ``axis``, stable whatever the ``kind``."""
    return asarray(a).argsort(axis)


def take(a: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The elements at ``indices`` along ``axis``, by default of all elements flattened."""
    return asarray(a).take(indices, axis)


def take_along_axis(arr: Any, indices: Any, axis: int = -1) -> Tensor:
    """The elements along ``axis`` at each of ``indices``."""
    x, places = asarray(arr), asarray(indices)
    place = axis_of(axis, x.ndim)
    wide = [max(d, e) if isinstance(d, int) and isinstance(e, int) else d
            for d, e in zip(x.shape, places.shape, strict=True)]  # fmt: skip
    x = x.broadcast_to([x.shape[k] if k == place else e for k, e in enumerate(wide)])
    places = places.broadcast_to([places.shape[k] if k == place else e for k, e in enumerate(wide)])
    return x.result(GatherElements(place), x, places.cast(I64))


def searchsorted(a: Any, v: Any, side: str = "left") -> Tensor:
    """Insertion indices of elements of ``v`` in the ascending vector ``a``: before equal ones, or
    after.

    By bisection: as many steps as the length of ``a`` has bits.
    """
    if side not in ("left", "right"):
        raise ModelError(f"side {side!r} of searchsorted", callers_line(), "'left' or 'right'")
    x, wanted = both(a, v)
    count = x.shape[0] if x.ndim == 1 else None
    if not isinstance(count, int):
        raise ModelError(f"searchsorted in {x.type}", callers_line(), "a vector of known length")
    low = zeros(wanted.shape, I64)
    if not count:
        return low
    high = full(wanted.shape, count, I64)
    for _ in range(count.bit_length()):
        middle = (low + high) // 2
        found = x[middle.clip(0, count - 1)]
        after = (low < high) & (_below(found, wanted) if side == "left" else ~_below(wanted, found))
        low, high = where(after, middle + 1, low), where(after, high, middle.minimum(high))
    return low


def _below(a: Tensor, b: Tensor) -> Tensor:
    """Where ``a`` comes before ``b``; NaN comes last."""
    less = a < b
    return less | (b.isnan() & ~a.isnan()) if a.dtype.is_float else less


def digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    """The bin of the ascending ``bins`` that each element of ``x`` is in."""
    return searchsorted(bins, x, "left" if right else "right")


def looked_at(x: Tensor, what: str, hint: str) -> None:
    """:class:`TracingError` for tensors without known contents."""
    if x.phase == TRACED and x.held is None:
        message = f"the shape of {what} depends on values, which have no contents while traced"
        raise TracingError(message, callers_line(), hint)


def nonzero(a: Any, size: int | None = None, fill_value: int = 0) -> tuple[Tensor, ...]:
    """Indices of the nonzero elements, for each axis.

    With ``size`` that number of them, the first ones, padded with ``fill_value``.
    """
    x = asarray(a)
    x = x.reshape((1,)) if not x.ndim else x
    if size is None:
        looked_at(x, "nonzero", "give size=, or use where")
        return tuple(Tensor(places) for places in np.nonzero(x.numpy()))
    places, count = x.results(NonZero(), x)
    have = places.shape[1]
    if isinstance(have, int) and have < size:
        places = places.pad(((0, 0), (0, size - have)))
    found = where(arange(size) < count, places[:, :size], fill_value)
    return tuple(found[k] for k in range(x.ndim))


def flatnonzero(a: Any, size: int | None = None, fill_value: int = 0) -> Tensor:
    """Indices of the nonzero elements, flattened."""
    return nonzero(asarray(a).ravel(), size, fill_value)[0]


def argwhere(a: Any, size: int | None = None, fill_value: int = 0) -> Tensor:
    """Indices of the nonzero elements, one row each."""
    found = nonzero(a, size, fill_value)
    first, *rest = [places.expand_dims(1) for places in found]
    return first.concatenated(rest, 1)


def extract(condition: Any, arr: Any) -> Tensor:
    """The elements where ``condition`` holds."""
    return asarray(arr).ravel()[asarray(condition).ravel().astype(bool)]


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """The unique elements (or slices along ``axis``), ascending.

    On request with the first index of each, the inverse indices, and the counts.
    """
    x = asarray(ar)
    looked_at(x, "unique", "compute it outside of the traced function")
    place = None if axis is None else axis_of(axis, x.ndim)
    ordered = x.cast(U8) if x.dtype == BOOL else x
    slices, firsts, likes, counts, number = ordered.results(Unique(place), ordered)
    count = number.numpy().item()
    shape = x.shape if axis is None else likes.shape
    extra = (firsts[:count], likes.reshape(shape), counts[:count])
    chosen = [e for e, yes in zip(extra, (return_index, return_inverse, return_counts), strict=True)
              if yes]  # fmt: skip
    kept = slices.cast(x.dtype)[(*(slice(None),) * (place or 0), slice(count))]
    return (kept, *chosen) if chosen else kept


def bincount(x: Any, weights: Any = None, minlength: int = 0, length: int | None = None) -> Tensor:
    """The count of each integer, or the sum of its weights.

    ``length`` is the number of bins, ``minlength`` its minimum.
    """
    places = asarray(x)
    if length is None:
        looked_at(places, "bincount", "give length=")
        most = int(places.max()) + 1 if places.shape[0] else 0
        length = max(most, minlength)
    if weights is None:
        return zeros(length, I64).at[places].add(ones(places.shape, I64))
    return zeros(length, F64).at[places].add(asarray(weights).cast(F64))


def histogram(
    a: Any, bins: Any = 10, range: tuple[float, float] | None = None, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """The number of elements in each bin, and the edges: one more than bins."""
    x = asarray(a).ravel()
    edges = _edges(x, bins, range) if isinstance(bins, int) else asarray(bins)
    count = edges.shape[0] - 1
    found = searchsorted(edges, x, "right") - 1
    found = where(x == edges[-1], count - 1, found)
    inside = (found >= 0) & (found < count) & ~x.isnan()
    w = ones(x.shape, I64) if weights is None else asarray(weights).ravel()
    made = zeros(count, w.dtype).at[found.clip(0, count - 1)].add(where(inside, w, 0))
    return made, edges


def _edges(x: Tensor, bins: int, range: tuple[float, float] | None) -> Tensor:
    """Edges of ``bins`` equal parts; for a single value half a unit to either side."""
    low, high = (x.min(), x.max()) if range is None else map(asarray, range)
    kind = x.dtype if x.dtype.is_float else F64
    low, high = low.cast(kind), high.cast(kind)
    same = low == high
    low, high = where(same, low - 0.5, low), where(same, high + 0.5, high)
    steps = arange(bins + 1).cast(kind)
    edges = low + steps * ((high - low) / bins)
    return where(arange(bins + 1) == bins, high, edges)
