"""Statements of the loop level that copy boxes of tensors to shared memory asynchronously (TMA),
and wait for them.

Memory of space ``tile`` is shared by a group in a layout of the machine's own: such copies write
it, routines read it.  Each element of memory of space ``arrivals`` is an arrival barrier, which
counts completed phases of copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from modelcc.ir.copies import CommitCopies, CopyAsync, WaitCopies
from modelcc.ir.index import Index


@dataclass(frozen=True)
class TileMap:
    """A tensor in the buffer ``source``, an input: element ``place`` is ``source[offset + sum of
    strides * place]`` where ``0 <= place < sizes``, 0 elsewhere; the last stride is 1.  Boxes of it
    are copied."""

    source: str
    offset: Index
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    box: tuple[int, ...]


@dataclass(frozen=True)
class CopyTile:
    """Starts the copy of a box of the tensor of :attr:`map` from the index ``at``, row by row, to
    ``to[to_offset]`` and on.  It belongs to the current phase of ``arrivals[slot]``; the
    destination is undefined for threads that have not waited for that."""

    to: str
    to_offset: Index
    source: str
    at: tuple[Index, ...]
    offset: Index
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    box: tuple[int, ...]
    arrivals: str
    slot: Index

    @property
    def map(self) -> TileMap:
        """The tensor, which is the same for all copies."""
        return TileMap(self.source, self.offset, self.sizes, self.strides, self.box)

    @property
    def lanes(self) -> int:
        """Elements of a box."""
        return prod(self.box)

    @property
    def last(self) -> Index:
        """The index of the tensor's last element in ``source``."""
        axes = zip(self.sizes, self.strides, strict=True)
        return self.offset + sum((size - 1) * stride for size, stride in axes)


@dataclass(frozen=True)
class ExpectBytes:
    """Starts a phase of ``arrivals[slot]``, which is complete when ``size`` bytes have arrived."""

    arrivals: str
    slot: Index
    size: int


@dataclass(frozen=True)
class WaitArrival:
    """Waits until phase number ``phase`` of ``arrivals[slot]``, the last started, is complete."""

    arrivals: str
    slot: Index
    phase: Index


@dataclass(frozen=True)
class WaitRoutines:
    """All threads of a warp wait for its asynchronous routines except the last ``pending``."""

    pending: int = 0


Copying: TypeAlias = (
    CopyAsync | CommitCopies | WaitCopies | CopyTile | ExpectBytes | WaitArrival | WaitRoutines
)
"""Asynchronous statements."""
