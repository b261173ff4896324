"""Memory for a model's constants, made ready by a thread while the model is still compiled.

A system gives and clears memory when it is first written, which takes a second for 1 to 10 GB
(virtual machines being slow at it), and is not the interpreter's work.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Thread

import numpy as np

from modelcc.artifact.memory import HUGE_PAGE, Memory

WORTH_A_THREAD = 64 << 20
"""Bytes: less is there in no time."""

SPARE = 4
"""A block may be larger than expected by one part in so many; what is not used costs nothing."""

_STEP = 8 * HUGE_PAGE
_PAGE = 4096


class Preallocation:
    """One block of memory, of about the size that is going to be asked for."""

    def __init__(self) -> None:
        """No memory yet."""
        self._block: Memory | None = None
        self._thread: Thread | None = None
        self._enough = Event()

    def expect(self, size: int) -> None:
        """Begin to make ``size`` bytes ready, if that is worth it."""
        if size < WORTH_A_THREAD or self._thread is not None:
            return
        with suppress(MemoryError):  # who needs it will say so
            self._block = Memory(size + size // SPARE)
            self._thread = Thread(target=self._touch, args=(self._block, size), daemon=True)
            self._thread.start()

    def take(self, size: int) -> Memory:
        """At least ``size`` bytes, all zero, which are the caller's from now on."""
        self.close()
        block, self._block = self._block, None
        if block is None or block.size < size:
            return Memory(size)
        block.release(size)
        return block

    def close(self) -> None:
        """End the thread."""
        self._enough.set()
        if self._thread is not None:
            self._thread.join()

    def _touch(self, block: Memory, size: int) -> None:
        pages = np.frombuffer(block.view, np.uint8)[:size:_PAGE]
        step = _STEP // _PAGE
        for start in range(0, len(pages), step):
            if self._enough.is_set():
                return
            pages[start : start + step] = 0
