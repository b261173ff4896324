"""Scratch memory shared by models in turns, as large as the largest one needs."""

from __future__ import annotations

from modelcc.artifact.memory import Memory


class Arenas:
    """Memory for concurrent calls, one block each; thread-safe."""

    def __init__(self) -> None:
        self._idle: list[Memory] = []

    def taken(self, size: int) -> Memory:
        """Memory of at least ``size`` bytes, uninitialised, until it is given back;
        OutOfMemoryError if the system has not enough."""
        try:
            found = self._idle.pop()
        except IndexError:
            return Memory(size)
        if found.size >= size:
            return found
        found.release(0)  # its last user may still hold a reference
        return Memory(size)

    def given(self, memory: Memory) -> None:
        """Takes back memory that was :meth:`taken`."""
        self._idle.append(memory)
