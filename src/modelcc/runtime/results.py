"""Memory of large results, used again once the caller has let go of them.

Fresh pages cost the system about as much as a small model spends on filling them.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.types import Array, NumpyType
from modelcc.runtime.arguments import address_of
from modelcc.runtime.errors import OutOfMemoryError

LARGE = 16 << 10
"""Bytes of a result from which alignment and keeping its memory are worth it."""
_KEPT = 2  # blocks of an output: the caller often holds one result while the next is computed
ALIGNMENT = 64
"""Bytes."""

Block = NDArray[np.uint8]


class ResultMemory:
    """Arrays for one output of a model, one after the other."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []

    def array(self, shape: tuple[int, ...], dtype: NumpyType, size: int) -> Array:
        """An array that nobody else has, of ``size`` bytes from a multiple of 64."""
        block = self.block(size)
        return np.ndarray(shape, dtype, block, -address_of(block) % ALIGNMENT)

    def block(self, size: int) -> Block:
        """``size`` bytes from a multiple of 64 on, or a few more, that nobody else has.

        OutOfMemoryError if the system does not have them.
        """
        size += ALIGNMENT
        blocks = self._blocks
        for position in range(len(blocks)):  # a variable for the block would be a holder
            fits = size <= blocks[position].size <= 2 * size
            if fits and _holders(blocks, position) == _ALONE:
                return blocks[position]
        fresh = _fresh(size)
        self._blocks = [fresh, *blocks[: _KEPT - 1]]
        return fresh


def _fresh(size: int) -> Block:
    """More than asked for where there is memory for that: sequences grow call by call."""
    for spare in (size // 4, 0):
        try:
            return np.empty(size + spare, np.uint8)
        except (MemoryError, ValueError):
            continue
    raise OutOfMemoryError(f"the system has no {size:,} bytes of memory for a result of the model")


def _holders(blocks: Sequence[Block], position: int) -> int:
    """References to a block: one from ``blocks``, one from this call, one from each array in it."""
    return getrefcount(blocks[position])


_ALONE = _holders([np.empty(0, np.uint8)], 0)
