"""Replays of recorded calls at the addresses of their inputs and results, without further work of
the host."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from modelcc.runtime.devices.device import DeviceMemory, PointerDevice
from modelcc.runtime.devices.device_recordings import MOST_RECORDED, RecordedCall
from modelcc.runtime.devices.device_results import DeviceResults
from modelcc.runtime.devices.device_states import ALIGNMENT
from modelcc.runtime.devices.device_steps import End
from modelcc.runtime.devices.pending_calls import FaultReadback

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

Places = tuple[int, ...]
"""Addresses of inputs, then of outputs; 0 for those that are not used in place."""


@dataclass(frozen=True)
class EndOrder:
    """The order of ``inputs`` inputs and ``outputs`` outputs in :data:`Places`."""

    inputs: int
    outputs: int

    def position(self, end: End) -> int:
        """The position of an input or output."""
        return end[1] + (self.inputs if end[0] == "output" else 0)

    def end(self, position: int) -> End:
        """The input or output at a position."""
        if position < self.inputs:
            return "input", position
        return "output", position - self.inputs

    def places(self, addresses: Mapping[End, int]) -> Places:
        """The entries of ``addresses``, 0 for the others."""
        found = [0] * (self.inputs + self.outputs)
        for end, address in addresses.items():
            found[self.position(end)] = address
        return tuple(found)


class SeenPlaces:
    """Addresses of earlier calls: recording pays for those that are used again."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self._ends: list[dict[int, None]] = []

    def times(self, sizes: Hashable, row: Places) -> int:
        """How many earlier calls of these ``sizes`` had these addresses."""
        found = self._rows.get((sizes, row), 0)
        _bounded(self._rows, (sizes, row), found + 1)
        return found

    def likely(self, places: Places) -> Places:
        """The addresses that earlier calls had, too, 0 for the others; remembers all."""
        self._ends = self._ends or [{} for _ in places]
        found = tuple(p if p in end else 0 for p, end in zip(places, self._ends, strict=True))
        for place, end in zip(places, self._ends, strict=True):
            if place:
                _bounded(end, place, None)
        return found


def in_place(places: Places) -> Places:
    """The inputs and outputs that kernels use in place."""
    return tuple(0 if place % ALIGNMENT else place for place in places)


def _bounded(known: dict[_K, _V], key: _K, value: _V) -> None:
    """Adds an entry, and evicts the least recently used one if there are many."""
    known.pop(key, None)
    if len(known) >= MOST_RECORDED:
        del known[next(iter(known))]
    known[key] = value


@dataclass(frozen=True)
class EndCopy:
    """``size`` bytes of input or output number ``position`` in :data:`Places`, copied between the
    caller's memory and ``offset`` bytes into ``memory``."""

    position: int
    memory: DeviceMemory
    offset: int
    size: int


@dataclass(frozen=True)
class ReplayedCall:
    """Recorded work, and copies before and after it."""

    calls: tuple[RecordedCall, ...]
    before: Sequence[EndCopy]
    after: Sequence[EndCopy]


class Replays:
    """Recorded calls, as long as memory of calls is not reallocated."""

    def __init__(self) -> None:
        self.places = SeenPlaces()
        self.results: DeviceResults | None = None
        """Results whose spare memory is freed when memory of calls is reallocated."""
        self._found: dict[Hashable, ReplayedCall] = {}

    def get(self, key: Hashable) -> ReplayedCall | None:
        """The recorded call of a key."""
        found = self._found.get(key)
        if found is not None:
            _bounded(self._found, key, found)
        return found

    def keep(self, key: Hashable, repeat: ReplayedCall) -> None:
        """Keeps it for later calls."""
        _bounded(self._found, key, repeat)

    def clear(self) -> None:
        """Memory of calls is reallocated."""
        self._found.clear()
        if self.results is not None:
            self.results.clear()


def replay_call(
    device: PointerDevice, repeat: ReplayedCall, places: Places, host: Places
) -> tuple[FaultReadback, ...]:
    """Issues a whole call, and the readback of its index faults, asynchronously.  Inputs without an
    address on the device are copied from the ``host``."""
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
