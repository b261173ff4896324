"""The constant of a product in the form that Strassen's algorithm reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.mapped import release_pages
from modelcc.ir.types import Array
from modelcc.passes.tensor.made_constant import MadeConstant

SLAB = 8 << 20
"""Bytes made at a time: pages of a mapped file are released in between."""

QUADRANTS = 4
"""All seven factors are computed from these four: w21, w11, t2 = w22 - w12 + w11, t1 = w12 -
w11."""


class QuadrantConstant(MadeConstant):
    """``source`` as ``[n / 2 / block, 4, k / 2, block]``.

    Column blocks of the left and the right half of the matrix are adjacent, so that a block of the
    result reads one contiguous range.
    """

    def __init__(self, source: Constant, block: int, transposed: bool) -> None:
        super().__init__(source)
        self._block = block
        self._transposed = transposed

    @property
    def shape(self) -> tuple[int, ...]:
        """``[n / 2 / block, 4, k / 2, block]``."""
        k, n = self._matrix.shape
        return n // 2 // self._block, QUADRANTS, k // 2, self._block

    @property
    def _matrix(self) -> Array:
        return self._data.T if self._transposed else self._data

    def fill(self, made: Array) -> None:
        """Compute all elements into ``made``, some rows of ``source`` at a time."""
        k, n = (extent // 2 for extent in self._matrix.shape)
        quadrants = ((r, c) for r in (slice(k), slice(k, None)) for c in (slice(n), slice(n, None)))
        w11, w12, w21, w22 = (self._blocks(self._matrix[at]) for at in quadrants)
        for blocks, rows in self._pieces(made):
            at, out = (blocks, rows), made[blocks, :, rows]
            out[:, 0] = w21[at]
            out[:, 1] = w11[at]
            np.subtract(w12[at], w11[at], out=out[:, 3])
            np.subtract(w22[at], out[:, 3], out=out[:, 2])
            release_pages(self._data)

    def _pieces(self, made: Array) -> Iterator[tuple[slice, slice]]:
        """Ranges of blocks and of rows of the matrix whose quadrants are computed together."""
        extent = made.shape[0 if self._transposed else 2]
        step = max(1, SLAB * extent // max(1, made.nbytes))
        for start in range(0, extent, step):
            part = slice(start, start + step)
            yield (part, slice(None)) if self._transposed else (slice(None), part)

    def _blocks(self, quadrant: Array) -> Array:
        """Columns in blocks: ``[n / block, k, block]``."""
        k, n = quadrant.shape
        return quadrant.reshape(k, n // self._block, self._block).swapaxes(0, 1)
