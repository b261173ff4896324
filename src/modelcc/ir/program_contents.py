"""Contents of memory between the steps of a host program, for given dimensions.

Defined tensors in the arena are disjoint *pieces* of it: writing a tensor removes every piece that
it overlaps, so a step costs no more than a search for its location.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from modelcc.ir.errors import ModelError
from modelcc.ir.index import evaluate
from modelcc.ir.program import Placement, Program

Values: TypeAlias = Mapping[str, int]
Region: TypeAlias = tuple[str, int, int]
"""Segment of the arena, with start and end in it; or ``OWN``, and numbers of separate memory."""

OWN = " "
"""Stands for separate memory of tensors outside of the arena, each one interval."""


def require_inside(
    program: Program, placement: Placement, name: str, values: Values, size: int | None = None
) -> tuple[int, int]:
    """First byte of a tensor in the arena and the one after its last; aligned and inside.

    ``size`` is that of its segment, None for the initial arena.
    """
    where = (program.name, name)
    try:
        start = placement.room.get(name)
        if start is None:
            start = evaluate(placement.bindings[name].offset, values)
        end = start + evaluate(program.types[name].bytes, values)
    except KeyError as error:
        raise ModelError(f"{error} is needed before a step has read it", where) from error
    arena = evaluate(placement.arena, values) if size is None else size
    if start % placement.alignment:
        message = f"offset {start} is no multiple of {placement.alignment}{given_values(values)}"
        raise ModelError(message, where)
    if start < 0 or end > arena:
        message = f"bytes {start} to {end} lie outside of an arena of {arena}{given_values(values)}"
        raise ModelError(message, where)
    return start, end


@dataclass
class Pieces:
    """Disjoint non-empty intervals."""

    starts: list[int] = field(default_factory=list[int])
    ends: dict[int, int] = field(default_factory=dict[int, int])

    def put(self, start: int, end: int) -> list[tuple[int, int]]:
        """Insert an interval in place of all that it overlaps; returns these."""
        first = bisect_left(self.starts, start)
        if first and self.ends[self.starts[first - 1]] > start:
            first -= 1
        last = bisect_left(self.starts, end)
        gone = [(each, self.ends.pop(each)) for each in self.starts[first:last]]
        self.starts[first:last] = [start]
        self.ends[start] = end
        return gone

    def shared(self, other: Pieces) -> Pieces:
        """The intervals that both have."""
        ends = {start: end for start, end in self.ends.items() if other.ends.get(start) == end}
        return Pieces([start for start in self.starts if start in ends], ends)


@dataclass
class Contents:
    """The regions whose written contents are intact, by segment."""

    segments: dict[str, Pieces] = field(default_factory=dict[str, Pieces])

    @property
    def regions(self) -> frozenset[Region]:
        """All regions."""
        return frozenset(
            (name, start, end)
            for name, pieces in self.segments.items()
            for start, end in pieces.ends.items()
        )

    def put(self, region: Region) -> list[tuple[int, int]]:
        """Write a region; returns the regions that it destroys."""
        name, start, end = region
        pieces = self.segments.setdefault(name, Pieces())
        return pieces.put(start, end)

    def holds(self, region: Region) -> bool:
        """Whether a region was written and not overwritten since."""
        name, start, end = region
        return name in self.segments and self.segments[name].ends.get(start) == end

    def copy(self) -> Contents:
        """A copy, for another path of execution."""
        return Contents(
            {n: Pieces(p.starts.copy(), p.ends.copy()) for n, p in self.segments.items()}
        )

    def merged(self, other: Contents) -> Contents:
        """Regions that are intact on both paths."""
        both = self.segments.keys() & other.segments.keys()
        return Contents({n: self.segments[n].shared(other.segments[n]) for n in both})


class DefinedTensors:
    """Tensors whose written contents are intact.  Tensors without elements always are."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._over = program.updated
        self._replaced = frozenset(self._over.values())
        given = {*program.inputs, *program.constants, *program.arrivals}
        self._given = given - self._replaced - program.room.keys()
        self._numbers: dict[str, int] = {}
        self.contents = Contents()
        for name in self._replaced:
            self.contents.put(self._own_region(name))
        for name in program.room.keys() & {*program.inputs}:
            self.contents.put(self._region(name, {}))
        self.sizes: dict[str, int] = {}
        self._lost: dict[Region, tuple[str, str]] = {}
        placement = program.placement
        self._overlaps = frozenset(() if placement is None else placement.overlaps)

    def keeps(self, name: str, values: Values) -> bool:
        """Whether an output is defined: a state that no step writes keeps its value."""
        return name in self._over or self.holds(name, values)

    def holds(self, name: str, values: Values) -> bool:
        """Whether the tensor's written contents are intact."""
        program = self._program
        base = program.bases.get(name, name)
        if base in self._given or evaluate(program.types[name].bytes, values) == 0:
            return True
        before = self._over.get(base)
        # A state updated in place has its old value until a step writes it.
        as_it_was = before is not None and self.contents.holds(self._own_region(before))
        return as_it_was or self.contents.holds(self._region(name, values))

    def enter(self) -> Contents | None:
        """The contents at the start of a branch or an iteration; None once memory is planned, when
        tensors made inside remain valid."""
        return self.contents.copy() if self._program.placement is None else None

    def leave(self, before: Contents | None, handed: Sequence[str], values: Values) -> None:
        """Restores the contents before a region, plus its outputs."""
        if before is not None:
            regions = [self._region(name, values) for name in handed if self.holds(name, values)]
            self.contents = before
            for region in regions:
                self.contents.put(region)

    def access(
        self,
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        values: Values,
        where: tuple[str, ...],
    ) -> None:
        """A step that reads tensors and writes others; :class:`ModelError` if a tensor that it
        reads was not written, or overwritten since."""
        for name in reads:
            self._read(name, values, where)
        for name in writes:
            self._write(name, self._region(name, values), where)

    def _read(self, name: str, values: Values, where: tuple[str, ...]) -> None:
        if self.holds(name, values):
            return
        by, of = self._lost.get(self._region(name, values), ("", ""))
        if not by:
            raise ModelError(f"'{name}' is read before any step has written it", where)
        if (by, name) not in self._overlaps:
            raise ModelError(f"'{name}' is read after '{by}' of {of} has overwritten it", where)

    def _write(self, name: str, region: Region, where: tuple[str, ...]) -> None:
        segment, start, end = region
        if start == end:
            return
        self._lost.pop(region, None)
        for gone in self.contents.put(region):
            if gone != (start, end):
                self._lost[segment, *gone] = name, ", ".join(where)

    def _region(self, name: str, values: Values) -> Region:
        program, placement = self._program, self._program.placement
        binding = None if placement is None else placement.bindings[name]
        own = binding is None or (binding.place != "arena" and name not in program.room)
        if placement is None or binding is None or own:
            return self._own_region(program.bases.get(name, name))
        size = self.sizes.get(binding.segment) if binding.segment else None
        return (binding.segment, *require_inside(program, placement, name, values, size))

    def _own_region(self, base: str) -> Region:
        """The region of a tensor, not a view, in memory of its own; a state shares that of its
        input, and what it replaces has a longer one, so that writing the state destroys it."""
        number = 2 * self._numbers.setdefault(self._over.get(base, base), len(self._numbers))
        return OWN, number, number + (2 if base in self._replaced else 1)


def given_values(values: Values) -> str:
    """The values, formatted for a message."""
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return f" (with {listed})" if listed else ""
