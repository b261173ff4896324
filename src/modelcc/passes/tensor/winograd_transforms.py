"""Winograd's minimal filtering algorithms F(m×m, 3×3): the three transforms.

Lavin & Gray, "Fast algorithms for convolutional neural networks" (2016): a tile of m × m outputs
is ``Aᵀ [(G w Gᵀ) ⊙ (Bᵀ d B)] A`` of a tile ``d`` of (m+2) × (m+2) inputs.  The interpolation
points are 0, ±1 and ∞ for m = 2, and ±2 besides for m = 4, which Barabasz et al. ("Error analysis
and improving the accuracy of Winograd convolution for deep neural networks", 2020) find among the
most accurate of that size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from modelcc.ir.compute import Element
from modelcc.ir.types import Array

Lines = Sequence[Element]
Transform = Callable[[Lines], list[Element]]

_FILTER = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}  # fmt: skip


def transform_filter(m: int, w: Array) -> Array:
    """``G w Gᵀ`` of filters ``[co, ci, 3, 3]`` as f32 ``[(m+2)², co, ci]``, rounded once."""
    g = np.array(_FILTER[m], np.float64)
    columns = np.kron(g, g) @ w.reshape(-1, 9).T.astype(np.float64)
    return columns.astype(np.float32).reshape(-1, *w.shape[:2])


def transform_input(m: int, d: Lines) -> list[Element]:
    """``Bᵀ d`` for one line of m + 2 inputs."""
    if m == 2:
        return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]
    even, odd = d[4] - d[2] * 4.0, d[3] - d[1] * 4.0
    near, far = d[4] - d[2], (d[3] - d[1]) * 2.0
    first = d[0] * 4.0 - d[2] * 5.0 + d[4]
    last = d[1] * 4.0 - d[3] * 5.0 + d[5]
    return [first, even + odd, even - odd, near + far, near - far, last]


def transform_output(m: int, p: Lines) -> list[Element]:
    """``Aᵀ p`` for one line of m + 2 products."""
    if m == 2:
        return [p[0] + (p[1] + p[2]), (p[1] - p[2]) - p[3]]
    sum1, sum2 = p[1] + p[2], p[3] + p[4]
    difference1, difference2 = p[1] - p[2], p[3] - p[4]
    return [
        p[0] + sum1 + sum2,
        difference1 + difference2 * 2.0,
        sum1 + sum2 * 4.0,
        difference1 + difference2 * 8.0 + p[5],
    ]


def in_two_steps(lines: Sequence[Lines], apply: Transform) -> list[Lines]:
    """Along the columns of a square of elements: the first of a transform's two steps."""
    columns = [apply([line[j] for line in lines]) for j in range(len(lines[0]))]
    return [[column[a] for column in columns] for a in range(len(columns[0]))]
