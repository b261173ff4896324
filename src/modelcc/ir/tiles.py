"""Statements of the loop level that copy boxes of tensors to shared memory in one go, beside what
threads do, and wait for them.

Memory of space ``tile`` is shared by a group in an order of the machine's own: such copies write
it, routines read it.  Memory of space ``arrivals`` counts, for each of its elements, the phases of
copies that have come.
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
    """Begins to copy a box of the tensor of :attr:`map` that begins ``at`` a place, row by row, to
    ``to[to_offset]`` and on.  It is a part of the phase of ``arrivals[slot]`` that has been begun,
    and undefined for those who have not waited for that."""

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
        """What does not change from copy to copy."""
        return TileMap(self.source, self.offset, self.sizes, self.strides, self.box)

    @property
    def lanes(self) -> int:
        """Elements of a box."""
        return prod(self.box)

    @property
    def last(self) -> Index:
        """Where the tensor's last element is in ``source``."""
        axes = zip(self.sizes, self.strides, strict=True)
        return self.offset + sum((size - 1) * stride for size, stride in axes)


@dataclass(frozen=True)
class ExpectBytes:
    """Begins a phase of ``arrivals[slot]``, which is complete when so many bytes have come."""

    arrivals: str
    slot: Index
    size: int


@dataclass(frozen=True)
class WaitArrival:
    """Waits until phase number ``phase`` of ``arrivals[slot]``, the last one begun, is complete."""

    arrivals: str
    slot: Index
    phase: Index


@dataclass(frozen=True)
class WaitRoutines:
    """All threads of a warp wait for what it runs beside, but for the last ``pending`` routines."""

    pending: int = 0


Copying: TypeAlias = (
    CopyAsync | CommitCopies | WaitCopies | CopyTile | ExpectBytes | WaitArrival | WaitRoutines
)
"""Statements of what goes on beside threads."""
