"""Pinned memory of the host, which a GPU copies asynchronously."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from modelcc.runtime.errors import OutOfMemoryError
from modelcc.runtime.streams.stream_calls import StreamCalls
from modelcc.runtime.streams.stream_driver import OUT_OF_MEMORY

MOST = 64 << 20
"""Bytes that are staged at once; larger tensors are split."""

_LEAST = 1 << 16


def pinned(calls: StreamCalls, size: int) -> int:
    """The address of ``size`` bytes that ``unpin`` frees; OutOfMemoryError."""
    status, address = calls.driver.pin(size)
    if int(status) == OUT_OF_MEMORY:
        raise OutOfMemoryError(f"the system pins no {size:,} bytes for copies to and from a GPU")
    return int(calls.run((status, address)))


class PinnedStage:
    """Pinned memory, of which parts are taken one after the other until the GPU has caught up.

    It grows with the sizes of transfers.
    """

    def __init__(self, calls: StreamCalls) -> None:
        self._calls = calls
        self._address = 0
        self._size = 0
        self._used = 0

    def parts(self, size: int) -> Iterator[tuple[int, int]]:
        """Offsets and sizes of the parts into which a tensor is split."""
        for start in range(0, size, MOST):
            yield start, min(MOST, size - start)

    def has_room(self, size: int) -> bool:
        """Whether ``size`` bytes are free without waiting."""
        return self._used + size <= self._size

    def take(self, size: int) -> int:
        """The address of ``size`` bytes, if :meth:`has_room` or no copy is pending."""
        if not self.has_room(size):
            assert self._used == 0
            self._grow(size)
        address = self._address + self._used
        self._used += -(-size // 64) * 64
        return address

    def clear(self) -> None:
        """No copy is pending any more."""
        self._used = 0

    def _grow(self, size: int) -> None:
        self.free()
        wanted = max(_LEAST, 1 << (size - 1).bit_length())
        self._address, self._size = pinned(self._calls, wanted), wanted

    def free(self) -> None:
        """Frees the memory."""
        if self._address and not sys.is_finalizing():
            self._calls.driver.unpin(self._address)
        self._address = self._size = self._used = 0
