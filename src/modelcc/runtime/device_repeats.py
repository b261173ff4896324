"""Recorded calls that are run again at the places of their inputs and results, with nothing else
to do for the host."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from modelcc.runtime.device import DeviceMemory, PointerDevice
from modelcc.runtime.device_recordings import MOST_RECORDED, RecordedCall
from modelcc.runtime.device_results import DeviceResults
from modelcc.runtime.device_states import ALIGNMENT
from modelcc.runtime.device_steps import End
from modelcc.runtime.late_calls import LateNotes

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

Places = tuple[int, ...]
"""Addresses of inputs, then of outputs; 0 for those that are not used where they are."""


@dataclass(frozen=True)
class EndOrder:
    """The order of so many ``inputs`` and ``outputs`` in :data:`Places`."""

    inputs: int
    outputs: int

    def position(self, end: End) -> int:
        """Of one end."""
        return end[1] + (self.inputs if end[0] == "output" else 0)

    def places(self, addresses: Mapping[End, int]) -> Places:
        """Those of ``addresses``, 0 for the others."""
        found = [0] * (self.inputs + self.outputs)
        for end, address in addresses.items():
            found[self.position(end)] = address
        return tuple(found)


class SeenPlaces:
    """Which ends of a call are used where the caller has them: recorded work is worth it for those
    that have been there before, together."""

    def __init__(self) -> None:
        self._known: dict[Places, Places] = {}
        self._ends: list[dict[int, None]] = []

    def used(self, places: Places) -> Places | None:
        """What a call at these addresses uses in place; None if that is not known yet."""
        found = self._known.get(places)
        if found is not None or not self._ends:
            return found
        likely = self._likely(places)
        return likely if likely in self._known else None

    def chosen(self, places: Places) -> Places:
        """As :meth:`used`; the first time nothing is, and the next time what is here again."""
        self._ends = self._ends or [{} for _ in places]
        found = self.used(places)
        if found is None:
            _bounded(self._known, likely := self._likely(places), likely)
            found = (0,) * len(places)
        self.met(places)
        return found

    def met(self, places: Places) -> None:
        """A call has been there."""
        if places in self._known:
            return
        row = in_place(places)
        _bounded(self._known, places, row)
        for place, end in zip(row, self._ends, strict=True):
            if place:
                _bounded(end, place, None)

    def _likely(self, places: Places) -> Places:
        return tuple(
            place if place in end else 0 for place, end in zip(places, self._ends, strict=True)
        )


def in_place(places: Places) -> Places:
    """Those where kernels take them."""
    return tuple(0 if place % ALIGNMENT else place for place in places)


def _bounded(known: dict[_K, _V], key: _K, value: _V) -> None:
    """Remember something, and forget the oldest if there is much."""
    known.pop(key, None)
    if len(known) >= MOST_RECORDED:
        del known[next(iter(known))]
    known[key] = value


@dataclass(frozen=True)
class EndCopy:
    """``size`` bytes of input or output number ``position`` in :data:`Places`, between where the
    caller has them and ``offset`` bytes into ``memory``."""

    position: int
    memory: DeviceMemory
    offset: int
    size: int


@dataclass(frozen=True)
class RepeatedCall:
    """Work that has been recorded, and what is copied before and after it."""

    calls: tuple[RecordedCall, ...]
    before: Sequence[EndCopy]
    after: Sequence[EndCopy]


class Repeats:
    """What has been recorded, for as long as memory of calls stays where it is."""

    def __init__(self) -> None:
        self.places = SeenPlaces()
        self.results: DeviceResults | None = None
        """Whose spare memory goes when memory of calls is made anew."""
        self._found: dict[Hashable, RepeatedCall] = {}

    def get(self, key: Hashable) -> RepeatedCall | None:
        """That of a key."""
        return self._found.get(key)

    def keep(self, key: Hashable, repeat: RepeatedCall) -> None:
        """For calls to come."""
        if key not in self._found and len(self._found) >= MOST_RECORDED:
            self._found.clear()
        self._found[key] = repeat

    def clear(self) -> None:
        """Memory of calls comes into another place."""
        self._found.clear()
        if self.results is not None:
            self.results.clear()


def run_again(device: PointerDevice, repeat: RepeatedCall, places: Places) -> tuple[LateNotes, ...]:
    """Ask for all of a call, and for what it notes of indices; nobody waits for that."""
    for copy in repeat.before:
        theirs = device.foreign(places[copy.position], copy.size, "input")
        device.copy(copy.memory, copy.offset, theirs, 0, copy.size)
    for call in repeat.calls:
        call.work.run()
    for copy in repeat.after:
        theirs = device.foreign(places[copy.position], copy.size, "output")
        device.copy(theirs, 0, copy.memory, copy.offset, copy.size)
    return tuple(
        LateNotes(device.download_late(faults.memory, 0, faults.size), faults)
        for faults in (call.faults for call in repeat.calls)
        if faults is not None
    )
