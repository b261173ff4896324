"""The order of groups in the loop level's interpreter, and their accesses.

Groups are unordered, except that the last one to arrive at a counter comes after all that the
others did before they arrived there (a release and an acquire, in C++'s terms).  A group's work up
to an arrival is one interval, and that after it another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from modelcc.ir.errors import RunError
from modelcc.ir.types import Array


@dataclass
class GroupAccesses:
    """Intervals in which elements were accessed: the last write, and all reads since."""

    writers: dict[int, int] = field(default_factory=dict[int, int])
    readers: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])

    def conflict(
        self, elements: Iterable[int], order: GroupOrder, writes: bool
    ) -> tuple[int, int, bool] | None:
        """The first of the elements with an unordered earlier access, the interval of that, and
        whether it writes; None if there is none."""
        writers, readers = self.writers, self.readers
        now, alone, nobody = order.now, frozenset((order.now,)), frozenset[int]()
        for element in elements:
            writer = writers.get(element, now)
            if writer != now and not order.is_before(writer):
                return element, writer, True
            known = readers.get(element, nobody)
            if not writes:
                if now not in known:
                    readers[element] = known | alone if known else alone
                continue
            if known and known != alone:
                for other in known:
                    if not order.is_before(other):
                        return element, other, False
            writers[element] = now
            if known:
                del readers[element]
        return None


@dataclass
class _Round:
    """Groups, of ``count``, that have arrived at a counter since it was 0; intervals ``before``."""

    counter: str
    count: int
    arrived: int = 0
    before: set[int] = field(default_factory=set[int])


class GroupOrder:
    """Intervals by number, and which of them come before the current one."""

    def __init__(self) -> None:
        self._groups: list[str] = []
        self._before: set[int] = set()
        self._rounds: dict[tuple[int, int], _Round] = {}

    @property
    def now(self) -> int:
        """The current interval."""
        return len(self._groups) - 1

    def group(self, interval: int) -> str:
        """The group of an interval."""
        return self._groups[interval]

    def is_before(self, interval: int) -> bool:
        """Whether all writes of ``interval`` are visible now."""
        return interval == self.now or interval in self._before

    def begin(self, group: str) -> None:
        """Another group begins."""
        self._groups.append(group)
        self._before = set()

    def arrive(self, name: str, counters: Array, slot: int, count: int) -> bool:
        """Whether the current group is the last one of ``count``; :class:`RunError` if the counter
        is not the number of arrivals, or they disagree on ``count``."""
        place = f"element {slot} of %{name}"
        found = self._rounds.setdefault((id(counters), slot), _Round(place, count))
        held, group = int(counters[slot]), self._groups[-1]
        if held != found.arrived:
            raise RunError(f"group {group} arrives at {place}, which holds {held}: a counter is 0 "
                           "before groups begin")  # fmt: skip
        if count != found.count:
            raise RunError(f"group {group} arrives at {place} as one of {count}, others of "
                           f"{found.count}")  # fmt: skip
        self._before.add(self.now)
        found.before |= self._before
        self._groups.append(group)
        found.arrived += 1
        is_last = found.arrived == count
        if is_last:
            self._before |= found.before
            del self._rounds[id(counters), slot]
        counters[slot] = 0 if is_last else found.arrived
        return is_last

    def end(self) -> None:
        """:class:`RunError` if fewer groups than expected have arrived at a counter."""
        for found in self._rounds.values():
            raise RunError(f"{found.arrived} groups arrive at {found.counter}, not {found.count}")
