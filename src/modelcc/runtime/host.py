"""Callbacks of a running model: allocation of memory whose size depends on data."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from modelcc.ir.types import Array, NumpyType
from modelcc.runtime.arguments import address_of
from modelcc.runtime.errors import OutOfMemoryError
from modelcc.runtime.results import ALIGNMENT, LARGE, Block, ResultMemory

_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class _Table(ctypes.Structure):
    _fields_ = (("allocate", _ALLOCATE), ("context", ctypes.c_void_p))


class Host:
    """Allocates memory for one running call, 64-aligned; ``address`` is passed to the code."""

    def __init__(self, count: int) -> None:
        self._blocks: list[tuple[Block, int] | None] = [None] * count
        self._memory = [ResultMemory() for _ in range(count)]
        self._failed: OutOfMemoryError | None = None
        self._table = _Table(_ALLOCATE(self._allocate), None)
        self.address = ctypes.addressof(self._table)

    def _allocate(self, context: int | None, which: int, size: int) -> int:
        try:
            memory = self._memory[which]
            small = size < LARGE
            block = np.empty(size + ALIGNMENT, np.uint8) if small else memory.block(size)
        except (OutOfMemoryError, MemoryError, ValueError):
            message = f"the system has no {size:,} bytes of memory for the model"
            self._failed = OutOfMemoryError(message)
            return 0
        address = address_of(block)
        start = -address % ALIGNMENT
        self._blocks[which] = block, start
        return address + start

    def take(self, which: int, dtype: NumpyType, shape: Sequence[int]) -> Array:
        """Memory allocated during the last call, as an array."""
        given = self._blocks[which]
        if given is None:
            raise RuntimeError(f"the model has not asked for its memory {which}")
        block, start = given
        return np.ndarray(shape, dtype, block, start)

    def clear(self) -> None:
        """Releases all allocations; OutOfMemoryError if one has failed."""
        self._blocks = [None] * len(self._blocks)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
