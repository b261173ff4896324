"""Handlers of distances between rows of tensors, and of their gradients."""

from __future__ import annotations

import math

import numpy as np

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.torch.aten import Aten, overloads
from modelcc.frontends.torch.reductions import vector_norm
from modelcc.ops import comparison as cp
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.gather import Gather
from modelcc.ops.generate import Full
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.transcendental import Pow
from modelcc.ops.views import reshaped


def pairwise_distance(
    call: Aten, x: Value, y: Value, order: float, mode: int | None = None
) -> Value:
    """Distances of each row of ``x`` to each row of ``y``."""
    return vector_norm(call, _apart(x, y), order, (-1,))


def own_distances(call: Aten, x: Value, order: float = 2.0) -> Value:
    """Distances of each row to those after it."""
    first, second = np.triu_indices(number_of(x.type.shape[0], "number of rows"), 1)
    rows = (of(Gather(0), x, call.literal(i.astype(np.int64))) for i in (first, second))
    return vector_norm(call, next(rows) - next(rows), order, (-1,))


def pairwise_gradient(
    call: Aten, dy: Value, x: Value, y: Value, order: float, distances: Value
) -> Value:
    """The gradient of the rows of ``x``, batched; zeros in the shape of ``x`` if it is empty."""
    apart = _apart(x, y)
    if 0 in apart.type.shape:
        return call.made(Full(x.type.shape, 0, x.type.dtype))
    return _gradient(dy, apart, order, distances)


def own_gradient(call: Aten, dy: Value, x: Value, order: float, distances: Value) -> Value:
    """Each distance contributes to both of its rows; a row has none to itself."""
    rows = number_of(x.type.shape[0], "number of rows")
    if rows < 2:
        return call.made(Full(x.type.shape, 0, x.type.dtype))
    places = np.zeros((rows, rows), np.int64)
    places[np.triu_indices(rows, 1)] = np.arange(rows * (rows - 1) // 2)
    pairs = call.literal(places + places.T)
    square, slopes = (of(Gather(0), v, pairs) for v in (distances, dy))
    others = call.literal(~np.eye(rows, dtype=bool))
    return _gradient(cp.where(others, slopes, slopes.lift(0)), _apart(x, x), order, square)


def _apart(x: Value, y: Value) -> Value:
    *outer, rows, width = x.type.shape
    *others, columns, _ = y.type.shape
    return reshaped(x, *outer, rows, 1, width) - reshaped(y, *others, 1, columns, width)


def _gradient(dy: Value, apart: Value, order: float, distances: Value) -> Value:
    """Sums over columns of ``dy * sign(d) (|d| / distance) ** (order - 1)``, and its limits.

    ``apart`` has the coordinates' differences ``d`` in a last axis.  Where a distance, or a
    difference, is 0, the gradient is 0.
    """
    zero = apart.lift(0)
    slope, total = (reshaped(v, *v.type.shape, 1) for v in (dy, distances))
    size, sign = of(cp.Abs(), apart), of(cp.Sign(), apart)
    if order == 0:
        share = apart * zero
    elif math.isinf(order):
        share = cp.where(of(cp.Equal(), size, total), sign, zero)
    else:
        share = sign * of(Pow(), size / total, apart.lift(float(order - 1)))
    share = cp.where(of(cp.Equal(), apart, zero), zero, share)
    return of(ReduceSum((apart.type.rank - 2,), False), slope * share)


DISTANCES = overloads(
    {
        "_cdist_forward": pairwise_distance,
        "_cdist_backward": pairwise_gradient,
        "_pdist_forward": own_distances,
        "_pdist_backward": own_gradient,
    }
)
