"""Replays of recorded calls at the places of their inputs and results, with nothing else to do for
the host."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from modelcc.runtime.device import DeviceMemory, PointerDevice
from modelcc.runtime.device_recordings import MOST_RECORDED, RecordedCall
from modelcc.runtime.device_results import DeviceResults
from modelcc.runtime.device_states import ALIGNMENT
from modelcc.runtime.device_steps import End
from modelcc.runtime.pending_calls import FaultReadback

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

    def end(self, position: int) -> End:
        """The end at a position."""
        if position < self.inputs:
            return "input", position
        return "output", position - self.inputs

    def places(self, addresses: Mapping[End, int]) -> Places:
        """Those of ``addresses``, 0 for the others."""
        found = [0] * (self.inputs + self.outputs)
        for end, address in addresses.items():
            found[self.position(end)] = address
        return tuple(found)


class SeenPlaces:
    """Where the ends of calls have been: recorded work is worth it for what comes back."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self._ends: list[dict[int, None]] = []

    def times(self, sizes: Hashable, row: Places) -> int:
        """How many calls of these ``sizes`` have been at these addresses before this one."""
        found = self._rows.get((sizes, row), 0)
        _bounded(self._rows, (sizes, row), found + 1)
        return found

    def likely(self, places: Places) -> Places:
        """Those that have been where they are, 0 for the others; this call is there now."""
        self._ends = self._ends or [{} for _ in places]
        found = tuple(p if p in end else 0 for p, end in zip(places, self._ends, strict=True))
        for place, end in zip(places, self._ends, strict=True):
            if place:
                _bounded(end, place, None)
        return found


def in_place(places: Places) -> Places:
    """Those where kernels take them."""
    return tuple(0 if place % ALIGNMENT else place for place in places)


def _bounded(known: dict[_K, _V], key: _K, value: _V) -> None:
    """Remember something, and forget what nobody has asked for longest if there is much."""
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
class ReplayedCall:
    """Work that has been recorded, and what is copied before and after it."""

    calls: tuple[RecordedCall, ...]
    before: Sequence[EndCopy]
    after: Sequence[EndCopy]


class Replays:
    """What has been recorded, for as long as memory of calls stays where it is."""

    def __init__(self) -> None:
        self.places = SeenPlaces()
        self.results: DeviceResults | None = None
        """Whose spare memory goes when memory of calls is made anew."""
        self._found: dict[Hashable, ReplayedCall] = {}

    def get(self, key: Hashable) -> ReplayedCall | None:
        """That of a key."""
        found = self._found.get(key)
        if found is not None:
            _bounded(self._found, key, found)
        return found

    def keep(self, key: Hashable, repeat: ReplayedCall) -> None:
        """For calls to come."""
        _bounded(self._found, key, repeat)

    def clear(self) -> None:
        """Memory of calls comes into another place."""
        self._found.clear()
        if self.results is not None:
            self.results.clear()


def replay_call(
    device: PointerDevice, repeat: ReplayedCall, places: Places, host: Places
) -> tuple[FaultReadback, ...]:
    """Ask for all of a call, and for what it notes of indices; nobody waits for that.  Inputs that
    have no place on the device come from where they are on the ``host``."""
    for copy in repeat.before:
        if place := places[copy.position]:
            device.copy(copy.memory, copy.offset, device.lent(place, copy.size), 0, copy.size)
        else:
            device.upload(copy.memory, copy.offset, host[copy.position], copy.size)
    for call in repeat.calls:
        call.work.run()
    for copy in repeat.after:
        theirs = device.lent(places[copy.position], copy.size)
        device.copy(theirs, 0, copy.memory, copy.offset, copy.size)
    return tuple(
        FaultReadback(device.download_late(faults.memory, 0, faults.size), faults)
        for faults in (call.faults for call in repeat.calls)
        if faults is not None and faults.size
    )
