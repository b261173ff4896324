"""Memory of the host that a GPU copies to and from by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from modelcc.runtime.errors import OutOfMemoryError
from modelcc.runtime.stream_calls import StreamCalls
from modelcc.runtime.stream_driver import OUT_OF_MEMORY

MOST = 64 << 20
"""Bytes that are staged at once; larger tensors go in parts."""

_LEAST = 1 << 16


def pinned(calls: StreamCalls, size: int) -> int:
    """The address of ``size`` bytes that ``unpin`` gives back; OutOfMemoryError."""
    status, address = calls.driver.pin(size)
    if int(status) == OUT_OF_MEMORY:
        raise OutOfMemoryError(f"the system pins no {size:,} bytes for copies to and from a GPU")
    return int(calls.run((status, address)))


class PinnedStage:
    """Pinned memory, of which parts are taken one after the other until the GPU has caught up.

    It grows with what goes through it.
    """

    def __init__(self, calls: StreamCalls) -> None:
        self._calls = calls
        self._address = 0
        self._size = 0
        self._used = 0

    def parts(self, size: int) -> Iterator[tuple[int, int]]:
        """Offsets and sizes of the parts that a tensor goes through in."""
        for start in range(0, size, MOST):
            yield start, min(MOST, size - start)

    def has_room(self, size: int) -> bool:
        """Whether ``size`` bytes are free, with nothing to wait for."""
        return self._used + size <= self._size

    def take(self, size: int) -> int:
        """The address of ``size`` bytes, where :meth:`has_room` or nothing is on its way."""
        if not self.has_room(size):
            assert self._used == 0
            self._grow(size)
        address = self._address + self._used
        self._used += -(-size // 64) * 64
        return address

    def clear(self) -> None:
        """Nothing is on its way any more."""
        self._used = 0

    def _grow(self, size: int) -> None:
        self.free()
        wanted = max(_LEAST, 1 << (size - 1).bit_length())
        self._address, self._size = pinned(self._calls, wanted), wanted

    def free(self) -> None:
        """Give the memory back."""
        if self._address and not sys.is_finalizing():
            self._calls.driver.unpin(self._address)
        self._address = self._size = self._used = 0
