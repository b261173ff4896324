"""Memory of large results, recycled once the caller has released them.

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
"""Size in bytes from which alignment and recycling of a result pay off."""
_KEPT = 2  # blocks of an output: the caller often holds one result while the next is computed
ALIGNMENT = 64
"""Alignment in bytes."""

Block = NDArray[np.uint8]


class ResultMemory:
    """Successive arrays for one output of a model."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []

    def array(self, shape: tuple[int, ...], dtype: NumpyType, size: int) -> Array:
        """An exclusively owned array, of ``size`` bytes with 64-byte alignment."""
        block = self.block(size)
        return np.ndarray(shape, dtype, block, -address_of(block) % ALIGNMENT)

    def block(self, size: int) -> Block:
        """At least ``size`` bytes with 64-byte alignment, exclusively owned.

        OutOfMemoryError if the system does not have them.
        """
        size += ALIGNMENT
        blocks = self._blocks
        for position in range(len(blocks)):  # a variable for the block would hold a reference
            fits = size <= blocks[position].size <= 2 * size
            if fits and _holders(blocks, position) == _ALONE:
                return blocks[position]
        fresh = _fresh(size)
        self._blocks = [fresh, *blocks[: _KEPT - 1]]
        return fresh


def _fresh(size: int) -> Block:
    """Larger than requested if memory permits: sequences grow call by call."""
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
