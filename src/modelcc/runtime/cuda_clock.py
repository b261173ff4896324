"""Times of what a GPU is asked for, by its own clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from modelcc.runtime.cuda_calls import CudaCalls

FLUSHED = 64 << 20
"""Bytes that are cleared before a kernel is timed: the GPU is busy until all is asked for, and its
caches hold nothing of the kernel's."""


class Flushed(Protocol):
    """Memory of a GPU's that nobody else uses."""

    @property
    def address(self) -> int:
        """Where it begins."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...


class CudaClock:
    """Takes times of commands in ``stream``, where it is told to."""

    def __init__(self, calls: CudaCalls, stream: Any) -> None:
        self._calls = calls
        self._stream = stream
        self._pairs: list[tuple[Any, Any]] = []
        self._flushed: Flushed | None = None

    def keep(self, flushed: Flushed | None) -> None:
        """Take times from now on, clearing memory before each command; none with None."""
        self._flushed = flushed
        self._drop()

    def seconds(self) -> float:
        """From where each command began to where it ended."""
        elapsed = self._calls.api.cuEventElapsedTime
        taken = sum(self._calls.run(elapsed(*pair)) for pair in self._pairs)
        self._drop()
        return taken * 1e-3

    def _drop(self) -> None:
        for pair in self._pairs:
            for event in pair:
                self._calls.run(self._calls.api.cuEventDestroy(event))
        self._pairs = []

    def timed(self, call: Callable[..., tuple[Any, ...]], *given: Any) -> None:
        """Ask for something, between two events where times are taken."""
        run, api = self._calls.run, self._calls.api
        if self._flushed is None:
            run(call(*given))
            return
        begin, end = (run(api.cuEventCreate(int(api.CUevent_flags.CU_EVENT_DEFAULT))) for _ in "12")
        self._pairs.append((begin, end))
        run(api.cuMemsetD8Async(self._flushed.address, 0, self._flushed.size, self._stream))
        run(api.cuEventRecord(begin, self._stream))
        run(call(*given))
        run(api.cuEventRecord(end, self._stream))
