"""Statements of the loop level for asynchronous copies to shared memory, prefetches, barriers, and
warp shuffles."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import Index


@dataclass(frozen=True)
class Barrier:
    """All threads of a group arrive before any continues, and see what the others have written."""


@dataclass(frozen=True)
class Comment:
    """A comment in emitted code."""

    text: str


@dataclass(frozen=True)
class CopyAsync:
    """Starts an asynchronous copy of ``lanes`` elements from global to shared memory:
    ``to[to_offset + l]`` becomes ``source[source_offset + l]``, 0 for lanes ``>= active``; it is
    undefined until the thread has waited for the copy."""

    to: str
    to_offset: Index
    source: str
    source_offset: Index
    lanes: int = 1
    active: Index | None = None


@dataclass(frozen=True)
class CommitCopies:
    """This thread's copies since the last commit become a commit group."""


@dataclass(frozen=True)
class WaitCopies:
    """Waits for all of this thread's commit groups except the last ``pending``."""

    pending: int = 0


@dataclass(frozen=True)
class Exchange:
    """A warp shuffle: sets a register to its value in another thread of the warp, whose index in
    the innermost thread loop differs from this one's in the bits of ``across``.  All threads do so
    together; their number is a power of two, more than ``across``."""

    name: str
    across: int


@dataclass(frozen=True)
class Prefetch:
    """Hint that ``buffer[offset]`` is needed soon; ``level`` 1 is nearest.  May be out of range."""

    buffer: str
    offset: Index
    level: int = 1
