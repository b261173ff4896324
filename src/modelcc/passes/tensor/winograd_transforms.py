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

from modelcc.ir.compute import Matrix
from modelcc.ir.scalar_tree import summands
from modelcc.ir.types import Array


class Transformable(Protocol):
    """What can be transformed: numbers, and bounds of their errors."""

    def __add__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __mul__(self, factor: float, /) -> Self: ...


V = TypeVar("V", bound=Transformable)

P, Q = 5 / 8, 3 / 2
"""The points of m = 4, exact in binary as are their products."""


def transform_filter(m: int, w: Array) -> Array:
    """``G w Gᵀ`` of filters ``[co, ci, 3, 3]`` as f32 ``[(m+2)², co, ci]``, rounded once."""
    return exact_filter(m, w).astype(np.float32)


def exact_filter(m: int, w: Array) -> Array:
    """The same in f64."""
    g = np.array(filter_matrix(m), np.float64)
    points = np.kron(g, g) @ w.reshape(-1, 9).T.astype(np.float64)
    return points.reshape(-1, *w.shape[:2])


def filter_matrix(m: int) -> list[list[float]]:
    """``G``: rows ``1, a, a²`` per point ``a``, over the product of its distances to the others."""
    if m == 2:
        return [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
    rows = [[1 / (P * P * Q * Q), 0, 0]]
    for a, other in ((P, Q), (Q, P)):
        scale = 2 * a * a * (a * a - other * other)
        rows += [[1 / scale, sign * a / scale, a * a / scale] for sign in (1, -1)]
    return [*rows, [0, 0, 1]]


def input_factors(m: int) -> tuple[Matrix, ...]:
    """``Bᵀ`` of a line of m + 2 inputs, as a product of sparse matrices: the first one comes first.

    The first makes what the points of a pair share: even and odd parts.
    """
    if m == 2:
        return (((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),)
    p, q = P * P, Q * Q
    parts = (
        (p * q, 0, -(p + q), 0, 1, 0),
        (0, 0, -q, 0, 1, 0),
        (0, -q, 0, 1, 0, 0),
        (0, 0, -p, 0, 1, 0),
        (0, -p, 0, 1, 0, 0),
        (0, p * q, 0, -(p + q), 0, 1),
    )
    points = (
        (1, 0, 0, 0, 0, 0),
        (0, 1, P, 0, 0, 0),
        (0, 1, -P, 0, 0, 0),
        (0, 0, 0, 1, Q, 0),
        (0, 0, 0, 1, -Q, 0),
        (0, 0, 0, 0, 0, 1),
    )
    return (parts, points)


def output_factors(m: int, outputs: int | None = None) -> tuple[Matrix, ...]:
    """``Aᵀ`` of a line of m + 2 products, likewise; of the first ``outputs`` only, if given."""
    if m == 2:
        sums = ((1, 0, 0, 0), (0, 1, 1, 0), (0, 1, -1, 0), (0, 0, 0, 1))
        return _leading((sums, ((1, 1, 0, 0), (0, 0, 1, -1))), outputs)
    sums = (
        (1, 0, 0, 0, 0, 0),
        (0, 1, 1, 0, 0, 0),
        (0, 1, -1, 0, 0, 0),
        (0, 0, 0, 1, 1, 0),
        (0, 0, 0, 1, -1, 0),
        (0, 0, 0, 0, 0, 1),
    )
    powers = (
        (1, 1, 0, 1, 0, 0),
        (0, 0, P, 0, Q, 0),
        (0, P**2, 0, Q**2, 0, 0),
        (0, 0, P**3, 0, Q**3, 1),
    )
    return _leading((sums, powers), outputs)


def _leading(factors: tuple[Matrix, ...], count: int | None) -> tuple[Matrix, ...]:
    """Factors of the first ``count`` rows of a product, without rows that these do not need."""
    *before, last = factors
    rows = last[:count]
    if not before:
        return (rows,)
    used = [n for n in range(len(last[0])) if any(row[n] for row in rows)]
    kept = tuple(tuple(row[n] for n in used) for row in rows)
    first = tuple(before[-1][n] for n in used)
    return (*_leading((*before[:-1], first), None), kept)


def filter_factors(m: int) -> tuple[Matrix, ...]:
    """``G`` of a line of three weights."""
    return (tuple(map(tuple, filter_matrix(m))),)


def transform_taps(m: int, w: Sequence[V]) -> Sequence[V]:
    """``G w`` for one line of three weights."""
    return _product(filter_factors(m), w)


def transform_input(m: int, d: Sequence[V]) -> Sequence[V]:
    """``Bᵀ d`` for one line of m + 2 inputs."""
    return _product(input_factors(m), d)


def transform_output(m: int, v: Sequence[V]) -> Sequence[V]:
    """``Aᵀ v`` for one line of m + 2 products."""
    return _product(output_factors(m), v)


def _product(factors: Sequence[Matrix], line: Sequence[V]) -> Sequence[V]:
    for matrix in factors:
        line = [_combination(row, line) for row in matrix]
    return line


def _combination(row: Sequence[float], values: Sequence[V]) -> V:
    """As :class:`~modelcc.ir.tensor.Linear` is computed."""
    (n, c), *rest = summands(row)
    total = values[n] if c == 1 else values[n] * c
    for n, c in rest:
        term = values[n] if abs(c) == 1 else values[n] * abs(c)
        total = total + term if c > 0 else total - term
    return total


def in_two_steps(
    lines: Sequence[Sequence[V]], apply: Callable[[Sequence[V]], Sequence[V]]
) -> list[Sequence[V]]:
    """The first of a transform's two steps: ``apply`` to every column of a square of elements."""
    columns = [apply([line[j] for line in lines]) for j in range(len(lines[0]))]
    return [[column[a] for column in columns] for a in range(len(columns[0]))]
