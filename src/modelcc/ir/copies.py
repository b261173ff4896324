"""Statements of the loop level that copy to shared memory while threads go on, bring memory near,
or exchange what threads have in registers."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import Index


@dataclass(frozen=True)
class Barrier:
    """All threads of a group arrive before any goes on, and see what the others have written."""


@dataclass(frozen=True)
class Comment:
    """Text for the reader of emitted code."""

    text: str


@dataclass(frozen=True)
class CopyAsync:
    """Begins to copy ``lanes`` elements from global to shared memory: ``to[to_offset + l]`` becomes
    ``source[source_offset + l]``, 0 for lanes ``>= active``, at some time before the thread has
    waited for it; until then it is undefined."""

    to: str
    to_offset: Index
    source: str
    source_offset: Index
    lanes: int = 1
    active: Index | None = None


@dataclass(frozen=True)
class CommitCopies:
    """Copies that this thread has begun since the last time are a batch."""


@dataclass(frozen=True)
class WaitCopies:
    """Waits for all of this thread's batches but the last ``pending``."""

    pending: int = 0


@dataclass(frozen=True)
class Exchange:
    """Sets a register to what another thread of the warp has in it: the one whose index, in the
    innermost thread loop, differs from this one's in the bits of ``across``.  All of them do so at
    the same time; there is a power of two of them, more than ``across``."""

    name: str
    across: int


@dataclass(frozen=True)
class Prefetch:
    """Hint that ``buffer[offset]`` is needed soon; ``level`` 1 is nearest.  May be out of range."""

    buffer: str
    offset: Index
    level: int = 1
