"""The constant of a product in the form in which Strassen's algorithm reads it."""

from __future__ import annotations

import numpy as np

from modelcc.ir.graph import Constant
from modelcc.ir.types import Array
from modelcc.passes.tensor.made_constant import MadeConstant

QUADRANTS = 4
"""Of these four all seven factors are made: w21, w11, t2 = w22 - w12 + w11, t1 = w12 - w11."""


class QuadrantConstant(MadeConstant):
    """``source`` as ``[n / 2 / block, 4, k / 2, block]``.

    Column blocks of the left and the right half of the matrix are kept together, so that what a
    block of the result needs is one piece of memory.
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
        """Compute all elements into ``made``."""
        k, n = (extent // 2 for extent in self._matrix.shape)
        quadrants = ((r, c) for r in (slice(k), slice(k, None)) for c in (slice(n), slice(n, None)))
        w11, w12, w21, w22 = (self._blocks(self._matrix[at]) for at in quadrants)
        made[:, 0] = w21
        made[:, 1] = w11
        np.subtract(w12, w11, out=made[:, 3])
        np.subtract(w22, made[:, 3], out=made[:, 2])

    def _blocks(self, quadrant: Array) -> Array:
        """Columns in blocks: ``[n / block, k, block]``."""
        k, n = quadrant.shape
        return quadrant.reshape(k, n // self._block, self._block).swapaxes(0, 1)
