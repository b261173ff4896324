"""Scratch memory that models use in turns, so that there is as much as one of them takes."""

from __future__ import annotations

from modelcc.artifact.memory import Memory


class Arenas:
    """Memory for as many calls as there are at a time; safe to use from several threads."""

    def __init__(self) -> None:
        self._idle: list[Memory] = []

    def taken(self, size: int) -> Memory:
        """Memory of at least ``size`` bytes, whose contents are undefined, until it is given back;
        OutOfMemoryError if the system has not enough."""
        try:
            found = self._idle.pop()
        except IndexError:
            return Memory(size)
        if found.size >= size:
            return found
        found.release(0)  # whoever used it last may still refer to it
        return Memory(size)

    def given(self, memory: Memory) -> None:
        """Take back what was :meth:`taken`."""
        self._idle.append(memory)
