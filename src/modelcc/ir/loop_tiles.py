"""Box copies in the loop level's interpreter, which detects accesses without synchronisation.

A copy's elements are visible to a thread that has waited for its phase, and to others after a
barrier; nothing may overwrite them while others may still read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from modelcc.ir.loop_memory import undefined
from modelcc.ir.types import Array


@dataclass
class _Phase:
    """Copies of ``size`` bytes, and threads that have waited for them, since which interval."""

    size: int
    copied: int = 0
    copies: list[tuple[CopiedMemory, Array, Array]] = field(
        default_factory=list["tuple[CopiedMemory, Array, Array]"]
    )
    waiting: set[int] = field(default_factory=set[int])
    since: int | None = None


class CopiedMemory:
    """Memory ``name``, the destination of box copies."""

    def __init__(self, name: str, memory: Array) -> None:
        self.name = name
        self.memory = memory
        self._phases: list[_Phase] = []
        self._source = np.full(memory.size, -1)
        self._readers = np.full(memory.size, -1)

    def begin(self, region: Array, values: Array, phase: _Phase, interval: int) -> str:
        """Starts to copy ``values``; the reason if that is an error, else ""."""
        before: list[int] = np.unique(self._source[region]).tolist()
        others = (self._phases[number] for number in before if number >= 0)
        if any(one is not phase and one.since is None for one in others):
            return "another copy to it is still on its way"
        if (self._readers[region] >= interval).any():
            return "it may still be read: a barrier is missing"
        self._phases.append(phase)
        self._source[region] = len(self._phases) - 1
        self.memory[region] = undefined(len(region), self.memory.dtype)
        phase.copies.append((self, region, values))
        return ""

    def read(self, elements: Array, threads: range, interval: int) -> str:
        """``threads`` read; the reason if that is an error, else ""."""
        sources = self._source[elements]
        several = (sources != sources[0]).any()
        numbers: list[int] = (np.unique(sources) if several else sources[:1]).tolist()
        for number in numbers:
            if number < 0 or self._phases[number].since is None:
                return "it is read before it has come: a wait is missing"
            phase = self._phases[number]
            assert phase.since is not None
            if phase.since >= interval and not phase.waiting.issuperset(threads):
                return "it is read by threads that have not waited for it"
        self._readers[elements] = interval
        return ""


class Arrivals:
    """The phases of memory of space ``arrivals``, by its elements."""

    def __init__(self, count: int) -> None:
        self._phases: list[list[_Phase]] = [[] for _ in range(count)]

    def expect(self, slot: int, size: int) -> str:
        """Starts a phase; the reason if that is an error."""
        phases = self._phases[slot]
        if phases and phases[-1].copied != phases[-1].size:
            return "the phase before is not complete"
        phases.append(_Phase(size))
        return ""

    def copy(
        self, slot: int, tile: CopiedMemory, region: Array, values: Array, interval: int
    ) -> str:
        """Starts a copy as a part of the phase; the reason if that is an error."""
        phase = self._phases[slot][-1] if self._phases[slot] else _Phase(0)
        phase.copied += values.nbytes
        if phase.copied > phase.size:
            return f"{phase.copied} bytes come in a phase of {phase.size}"
        return tile.begin(region, values, phase, interval)

    def wait(self, slot: int, number: int, thread: int, interval: int) -> str:
        """``thread`` waits for a phase; the reason if that is an error."""
        phases = self._phases[slot]
        if number != len(phases) - 1:
            return f"phase {number} is waited for when {len(phases)} have begun"
        phase = phases[-1]
        if phase.copied != phase.size:
            return f"of {phase.size} bytes {phase.copied} are on their way"
        phase.waiting.add(thread)
        if phase.since is None:
            phase.since = interval
            for tile, region, values in phase.copies:
                tile.memory[region] = values
        return ""


def box_of(
    source: Array,
    offset: int,
    at: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
) -> Array:
    """The elements of a box, row by row: 0 outside of the tensor."""
    place = [first + np.arange(count) for first, count in zip(at, box, strict=True)]
    grid = np.meshgrid(*place, indexing="ij")
    inside = np.ones(tuple(box), bool)
    where = np.full(tuple(box), offset)
    for one, size, stride in zip(grid, sizes, strides, strict=True):
        inside &= (one >= 0) & (one < size)
        where += one * stride
    found = np.zeros(prod(box), source.dtype)
    kept = inside.reshape(-1)
    if kept.any():
        found[kept] = source[where.reshape(-1)[kept]]
    return found
