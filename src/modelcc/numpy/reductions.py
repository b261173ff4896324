"""Reductions and cumulative functions under NumPy's names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import product
from modelcc.numpy.arrays import asarray
from modelcc.numpy.joining import concatenate
from modelcc.numpy.pairs import where
from modelcc.tensor.axes import Axes, axes_of, axis_of
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor


def sum(a: Any, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum, of integers in 64 bits."""
    return asarray(a).sum(axis, dtype, keepdims)


def prod(a: Any, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product, of integers in 64 bits."""
    return asarray(a).prod(axis, dtype, keepdims)


def mean(a: Any, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The mean, of integers as f64."""
    return asarray(a).mean(axis, dtype, keepdims)


def average(a: Any, axis: Axes = None, weights: Any = None, keepdims: bool = False) -> Tensor:
    """The mean, weighted if ``weights`` are given."""
    x = asarray(a)
    if weights is None:
        return x.mean(axis, keepdims=keepdims)
    w = asarray(weights)
    if w.ndim == 1 and x.ndim > 1 and isinstance(axis, int):
        place = axis_of(axis, x.ndim)
        w = w.reshape(tuple(e if a == place else 1 for a, e in enumerate(x.shape)))
    total = (x * w).sum(axis, keepdims=keepdims)
    return total / w.broadcast_to(x.shape).sum(axis, keepdims=keepdims)


def var(
    a: Any, axis: Axes = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
) -> Tensor:
    """The mean squared deviation from the mean, with divisor ``n - ddof``."""
    return asarray(a).var(axis, dtype, ddof, keepdims)


def std(
    a: Any, axis: Axes = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
) -> Tensor:
    """The square root of :func:`var`."""
    return asarray(a).std(axis, dtype, ddof, keepdims)


def max(a: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The maximum, NaN if there is one."""
    return asarray(a).max(axis, keepdims)


def min(a: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The minimum, NaN if there is one."""
    return asarray(a).min(axis, keepdims)


amax, amin = max, min


def ptp(a: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The maximum minus the minimum."""
    x = asarray(a)
    return x.max(axis, keepdims) - x.min(axis, keepdims)


def any(a: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether any element is nonzero."""
    return asarray(a).any(axis, keepdims)


def all(a: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are nonzero."""
    return asarray(a).all(axis, keepdims)


def count_nonzero(a: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The number of nonzero elements."""
    return asarray(a).astype(bool).sum(axis, keepdims=keepdims)


def argmax(a: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first maximum, without ``axis`` of all elements flattened."""
    return asarray(a).argmax(axis, keepdims)


def argmin(a: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first minimum, without ``axis`` of all elements flattened."""
    return asarray(a).argmin(axis, keepdims)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Prefix sums along ``axis``, without it of all elements flattened."""
    return asarray(a).cumsum(axis, dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Prefix products along ``axis``, without it of all elements flattened."""
    return asarray(a).cumprod(axis, dtype)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Differences of neighbours along ``axis``, ``n`` times; inequality for bools."""
    x = asarray(a)
    place = axis_of(axis, x.ndim)
    ends = [_end(e, x, place) for e in (prepend, append)]
    x = concatenate([part for part in (ends[0], x, ends[1]) if part is not None], place)
    for _ in range(n):
        lead = (slice(None),) * place
        later, earlier = x[(*lead, slice(1, None))], x[(*lead, slice(None, -1))]
        x = later != earlier if x.dtype.kind == "bool" else later - earlier
    return x


def _end(value: Any, x: Tensor, axis: int) -> Tensor | None:
    if value is None:
        return None
    end = asarray(value)
    shape = tuple(1 if a == axis else e for a, e in enumerate(x.shape))
    return end if end.ndim else end.broadcast_to(shape)


def median(a: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The median: the middle element, or the mean of the two middle ones."""
    return quantile(a, 0.5, axis, keepdims)


def percentile(a: Any, q: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """As :func:`quantile`, with ``q`` in percent."""
    return quantile(a, np.asarray(q, np.float64) / 100, axis, keepdims)


def quantile(a: Any, q: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The value below which a fraction ``q`` (a number, or several) of the elements is,
    interpolated."""
    x = asarray(a)
    x = x if x.dtype.is_float else x.astype("f64")
    axes = axes_of(axis, x.ndim)
    others = tuple(k for k in range(x.ndim) if k not in axes)
    moved = x.transpose((*others, *axes)) if x.ndim else x
    line = moved.reshape((*(x.shape[k] for k in others), product(x.shape[k] for k in axes)))
    count = line.shape[-1]
    if not isinstance(count, int) or count == 0:
        raise ModelError(f"a quantile of {count} elements", callers_line(),
                         "the reduced extents must be numbers above 0")  # fmt: skip
    ordered = line.sort(-1)
    odd = line.isnan().any(-1)
    shares = np.asarray(q, np.float64)
    found = [_between(ordered, float(s) * (count - 1), odd) for s in shares.ravel()]
    shape = tuple(1 if k in axes else e for k, e in enumerate(x.shape))
    found = [f.reshape(shape) if keepdims else f for f in found]
    if not shares.ndim:
        return found[0]
    return concatenate([f.expand_dims(0) for f in found])


def _between(ordered: Tensor, place: float, odd: Tensor) -> Tensor:
    """The element at ``place``, interpolated for fractions; NaN where ``odd``."""
    low = int(place)
    a = ordered[..., low]
    b = ordered[..., low + 1] if place > low else a
    value = a + (b - a) * (place - low) if place > low else a
    return where(odd, math.nan, value)
