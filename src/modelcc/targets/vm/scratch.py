"""Own memory of kernels, in unused parts of the arena."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import Range
from modelcc.ir.index_bounds import bounds_of
from modelcc.ir.program import Launch, Program, Step, inner_steps, leaves, step_tensors
from modelcc.ir.region import Repeat

ALIGNMENT = 8

Extent = tuple[int, int]


class Scratch:
    """Offsets of kernels' own memory; ``arena`` grows if there is no room."""

    def __init__(self, program: Program) -> None:
        arena = program.placed.arena
        assert isinstance(arena, int)
        self.arena = arena
        self._program = program
        self._lives = _lives(program)
        self._extents = {name: _extent(program, name) for name in self._lives}

    def places(self, step: Launch, sizes: Sequence[int]) -> list[int]:
        """Offsets of memory of ``sizes`` bytes during ``step``."""
        at = [n for n, one in enumerate(self._program.steps) if _has(one, step)]
        busy = [
            self._extents[name]
            for name, (first, last) in self._lives.items()
            if first <= at[0] <= last
        ]
        found: list[int] = []
        for size in sizes:
            place = _first_fit(sorted(busy), size)
            busy.append((place, place + size))
            found.append(place)
            self.arena = max(self.arena, -(-(place + size) // ALIGNMENT) * ALIGNMENT)
        return found


def _has(step: Step, launch: Launch) -> bool:
    return any(one is launch for one in leaves((step,)))


def _lives(program: Program) -> dict[str, tuple[int, int]]:
    """First and last outermost step at which each tensor in the arena is live."""
    found: dict[str, tuple[int, int]] = {}
    placed = program.placed
    last = len(program.steps)
    for number, step in enumerate(program.steps):
        for name in step_tensors(step):
            if placed.bindings[name].place == "arena" or name in placed.room:
                first, _ = found.get(name, (number, number))
                found[name] = first, number
    for name, (first, end) in found.items():
        if name in program.inputs:
            found[name] = 0, end
        elif name in program.outputs:
            found[name] = first, last
    return found


def _extent(program: Program, name: str) -> Extent:
    placed, size = program.placed, program.types[name].bytes
    offset = placed.room[name] if name in placed.room else placed.bindings[name].offset
    assert isinstance(size, int)
    if isinstance(offset, int):
        return offset, offset + size
    found = bounds_of(offset, _counters(program.steps))
    assert found.lo is not None and found.hi is not None
    return found.lo, found.hi + size


def _counters(steps: Sequence[Step]) -> dict[str, Range]:
    """The ranges of all loops' counters."""
    found: dict[str, Range] = {}
    for step in steps:
        found |= step.inside({}) if isinstance(step, Repeat) else {}
        found |= _counters(inner_steps(step))
    return found


def _first_fit(busy: Sequence[Extent], size: int) -> int:
    """The first offset of ``size`` bytes that overlaps nothing."""
    place = 0
    for start, end in busy:
        if place + size <= start:
            break
        place = max(place, -(-end // ALIGNMENT) * ALIGNMENT)
    return place
