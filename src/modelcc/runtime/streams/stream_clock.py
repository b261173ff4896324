"""Times of a GPU's commands, by its own clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from modelcc.runtime.streams.stream_calls import StreamCalls

FLUSHED = 64 << 20
"""Bytes that are cleared before a kernel is timed: the GPU is busy until all commands are issued,
and its caches are flushed."""


class Flushed(Protocol):
    """Memory of a GPU that nothing else uses."""

    @property
    def address(self) -> int:
        """Its address."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...


class StreamClock:
    """Times commands in ``stream``, while this is on."""

    def __init__(self, calls: StreamCalls, stream: Any) -> None:
        self._calls = calls
        self._stream = stream
        self._pairs: list[tuple[Any, Any]] = []
        self._flushed: Flushed | None = None

    def keep(self, flushed: Flushed | None) -> None:
        """Starts timing, with memory to clear before each command; stops with None."""
        self._flushed = flushed
        self._drop()

    def seconds(self) -> float:
        """The sum of all commands' times."""
        elapsed = self._calls.driver.elapsed
        taken = sum(self._calls.run(elapsed(*pair)) for pair in self._pairs)
        self._drop()
        return taken * 1e-3

    def _drop(self) -> None:
        for pair in self._pairs:
            for event in pair:
                self._calls.run(self._calls.driver.drop_event(event))
        self._pairs = []

    def timed(self, call: Callable[..., tuple[Any, ...]], *given: Any) -> None:
        """Issues a command, between two events if it is timed."""
        run, driver = self._calls.run, self._calls.driver
        if self._flushed is None:
            run(call(*given))
            return
        begin, end = (run(driver.event(timed=True)) for _ in "12")
        self._pairs.append((begin, end))
        run(driver.clear(self._flushed.address, self._flushed.size, self._stream))
        run(driver.mark(begin, self._stream))
        run(call(*given))
        run(driver.mark(end, self._stream))
