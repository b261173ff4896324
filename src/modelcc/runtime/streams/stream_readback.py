"""Asynchronous copies from a GPU to the host."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from modelcc.runtime.streams.stream_calls import StreamCalls
from modelcc.runtime.streams.stream_driver import NOT_READY
from modelcc.runtime.streams.stream_order import new_event
from modelcc.runtime.streams.stream_staging import pinned

_LEAST = 4096
"""Bytes; pinned memory is whole pages."""


@dataclass(frozen=True)
class _PinnedPlace:
    """Pinned memory, and the event after the copy to it."""

    address: int
    size: int
    event: Any


class StreamReadback:
    """Bytes that are copied to memory of their own until they are taken."""

    def __init__(self, copies: StreamReadbacks, place: _PinnedPlace, size: int) -> None:
        self._copies = copies
        self._place = place
        self._size = size

    def has_come(self) -> bool:
        """Whether they have arrived; checked before they are read."""
        return self._copies.has_come(self._place)

    def take(self) -> bytes:
        """The bytes, once they have arrived; only once."""
        found = ctypes.string_at(self._place.address, self._size)
        self._copies.give_back(self._place)
        return found

    def precede(self, stream: int) -> None:
        """Later work in ``stream`` comes after the copy."""
        self._copies.precede(self._place, stream)


class StreamReadbacks:
    """Copies in ``stream``, each to pinned memory of its own until its bytes are taken."""

    def __init__(self, calls: StreamCalls, stream: Any) -> None:
        self._calls = calls
        self._stream = stream
        self._places: list[_PinnedPlace] = []
        self._free: list[_PinnedPlace] = []

    def bring(self, address: int, size: int) -> StreamReadback:
        """Issues a copy of ``size`` bytes; memory whose copy fails is not reused."""
        place = self._place(size)
        run, driver = self._calls.run, self._calls.driver
        run(driver.download(place.address, address, size, self._stream))
        run(driver.mark(place.event, self._stream))
        return StreamReadback(self, place, size)

    def has_come(self, place: _PinnedPlace) -> bool:
        """Whether a copy is done; RunError if the GPU has failed."""
        self._calls.enter()
        (status,) = self._calls.driver.query_event(place.event)
        if int(status) == NOT_READY:
            return False
        self._calls.run((status,))
        return True

    def precede(self, place: _PinnedPlace, stream: int) -> None:
        """``stream`` waits for a copy."""
        self._calls.enter()
        self._calls.run(self._calls.driver.follow(stream, place.event))

    def give_back(self, place: _PinnedPlace) -> None:
        """Memory without a pending copy is free for reuse."""
        self._free.append(place)

    def _place(self, size: int) -> _PinnedPlace:
        for place in self._free:
            if place.size >= size:
                self._free.remove(place)
                return place
        wanted = max(_LEAST, 1 << (size - 1).bit_length())
        made = _PinnedPlace(pinned(self._calls, wanted), wanted, new_event(self._calls))
        self._places.append(made)
        return made

    def free(self) -> None:
        """Frees all, when the stream is done."""
        for place in self._places:
            self._calls.driver.unpin(place.address)
            self._calls.driver.drop_event(place.event)
