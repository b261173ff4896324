"""Winograd's minimal filtering algorithms F(m×m, 3×3): the three transforms.

Lavin & Gray, "Fast algorithms for convolutional neural networks" (2016): a tile of m × m outputs
is ``Aᵀ [(G w Gᵀ) ⊙ (Bᵀ d B)] A`` of a tile ``d`` of (m+2) × (m+2) inputs.  The matrices evaluate
and interpolate polynomials at m + 2 points: 0, ±1 and ∞ for m = 2; 0, ±5/8, ±3/2 and ∞ for m = 4.
Points in pairs ±p share the even and odd parts of their polynomials.  Magnitudes around 1 make
rounding errors four times smaller than the usual ±1 and ±2 do (after Barabasz et al., "Error
analysis and improving the accuracy of Winograd convolution for deep neural networks", 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np

from modelcc.ir.types import Array


class Value(Protocol):
    """What can be transformed: expressions, and bounds of their errors."""

    def __add__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __mul__(self, factor: float, /) -> Self: ...


V = TypeVar("V", bound=Value)

P, Q = 5 / 8, 3 / 2
"""The points of m = 4, exact in binary as are their products."""


def transform_filter(m: int, w: Array) -> Array:
    """``G w Gᵀ`` of filters ``[co, ci, 3, 3]`` as f32 ``[(m+2)², co, ci]``, rounded once."""
    g = np.array(filter_matrix(m), np.float64)
    points = np.kron(g, g) @ w.reshape(-1, 9).T.astype(np.float64)
    return points.astype(np.float32).reshape(-1, *w.shape[:2])


def filter_matrix(m: int) -> list[list[float]]:
    """``G``: rows ``1, a, a²`` per point ``a``, over the product of its distances to the others."""
    if m == 2:
        return [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
    rows = [[1 / (P * P * Q * Q), 0, 0]]
    for a, other in ((P, Q), (Q, P)):
        scale = 2 * a * a * (a * a - other * other)
        rows += [[1 / scale, sign * a / scale, a * a / scale] for sign in (1, -1)]
    return [*rows, [0, 0, 1]]


def transform_input(m: int, d: Sequence[V]) -> list[V]:
    """``Bᵀ d`` for one line of m + 2 inputs."""
    if m == 2:
        return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]
    values = [d[0] * (P * P * Q * Q) - d[2] * (P * P + Q * Q) + d[4]]
    for a, other in ((P, Q), (Q, P)):
        even, odd = d[4] - d[2] * (other * other), d[3] - d[1] * (other * other)
        values += [even + odd * a, even - odd * a]
    return [*values, d[1] * (P * P * Q * Q) - d[3] * (P * P + Q * Q) + d[5]]


def transform_output(m: int, v: Sequence[V]) -> list[V]:
    """``Aᵀ v`` for one line of m + 2 products."""
    if m == 2:
        return [v[0] + (v[1] + v[2]), (v[1] - v[2]) - v[3]]
    even1, even2 = v[1] + v[2], v[3] + v[4]
    odd1, odd2 = v[1] - v[2], v[3] - v[4]
    return [
        v[0] + even1 + even2,
        odd1 * P + odd2 * Q,
        even1 * P**2 + even2 * Q**2,
        odd1 * P**3 + odd2 * Q**3 + v[5],
    ]


def in_two_steps(
    lines: Sequence[Sequence[V]], apply: Callable[[Sequence[V]], Sequence[V]]
) -> list[Sequence[V]]:
    """The first of a transform's two steps: ``apply`` to every column of a square of elements."""
    columns = [apply([line[j] for line in lines]) for j in range(len(lines[0]))]
    return [[column[a] for column in columns] for a in range(len(columns[0]))]
