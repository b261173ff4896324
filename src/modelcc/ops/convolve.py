"""NumPy convolution and its transpose: the meaning that :mod:`modelcc.ops.conv` refers to."""

from __future__ import annotations

import numpy as np

from modelcc.ir.types import Array
from modelcc.ops.window import Window, numbers, taps, windows


def convolve(x: Array, w: Array, window: Window, groups: int) -> Array:
    """Cross-correlation of x [N, C, *S] with w [O, C/groups, *K] by one matmul per image."""
    if w.shape[1] == 1 and groups == w.shape[0] == x.shape[1]:
        return _depthwise(x, w, window)
    batch, channels = x.shape[:2]
    outputs = numbers(window.extents(x.shape[2:]), "output extents")
    view = windows(x, window)
    rank = window.rank
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))
    rows = channels // groups * int(np.prod(w.shape[2:], dtype=np.int64))
    weights = w.reshape(groups, w.shape[0] // groups, rows)
    y = np.empty((batch, groups, w.shape[0] // groups, int(np.prod(outputs))), x.dtype)
    for n in range(batch):
        columns = view[n].transpose(order).reshape(groups, rows, -1)
        np.matmul(weights, columns, out=y[n])
    return y.reshape(batch, w.shape[0], *outputs)


def _depthwise(x: Array, w: Array, window: Window) -> Array:
    total = np.zeros((*x.shape[:2], *numbers(window.extents(x.shape[2:]), "output")), x.dtype)
    for tap, values in taps(x, window):
        total += values * w[(slice(None), 0, *tap)].reshape(-1, *(1,) * window.rank)
    return total


def scatter(x: Array, w: Array, window: Window, groups: int) -> Array:
    """Uncropped transposed convolution by adding one scaled copy of x per tap."""
    strides, dilations = numbers(window.strides, "strides"), numbers(window.dilations, "dilations")
    extents = [
        (p - 1) * s + (k - 1) * d + 1
        for p, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)
    ]
    batch, channels, per_group = x.shape[0], x.shape[1] // groups, w.shape[1]
    columns = x.reshape(batch, groups, channels, -1)
    weights = w.reshape(groups, channels, per_group, *w.shape[2:])
    y = np.zeros((batch, groups * per_group, *extents), x.dtype)
    for tap in np.ndindex(*w.shape[2:]):
        matrix = weights[(..., *tap)].transpose(0, 2, 1)
        part = np.matmul(matrix, columns).reshape(batch, groups * per_group, *x.shape[2:])
        spots = tuple(
            slice(k * d, k * d + (p - 1) * s + 1, s)
            for k, d, p, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
        )
        y[(slice(None), slice(None), *spots)] += part
    return y
