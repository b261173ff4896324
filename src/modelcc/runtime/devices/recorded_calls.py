"""The device's work of a program's calls: recorded if addresses of inputs and outputs repeat,
issued step by step if they differ each time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from modelcc.ir.index import Index
from modelcc.runtime.devices.device import (
    DeviceMemory,
    PointerDevice,
    RecordingDevice,
    RecordingError,
)
from modelcc.runtime.devices.device_memory import DeviceMemories, IndexEvaluator, Mirror, Values
from modelcc.runtime.devices.device_recordings import (
    DescribedCalls,
    FaultPlaces,
    ProgramParts,
    RecordedCall,
    end_if,
    fault_bytes,
    launches,
)
from modelcc.runtime.devices.device_steps import (
    DevicePlace,
    DeviceProgram,
    End,
    MoveTensor,
    ReadNumbers,
    Step,
)
from modelcc.runtime.devices.graph_replay import (
    EndCopy,
    EndOrder,
    Places,
    ReplayedCall,
    Replays,
    in_place,
    replay_call,
)
from modelcc.runtime.devices.pending_calls import FaultReadback

COPIED_BYTES = 4 << 20
"""Bytes copied to a recorded call's own memory that count as one more launch: an H100 copies them
in 2.6 µs, and the host issues a launch in 8 µs, of which it may wait for the GPU anyway."""

TRIED = 3
"""Calls with inputs or outputs at new addresses that are issued step by step, before a recording
with copies of these is made."""


class StepRunner(Protocol):
    """Runs steps in their order."""

    def steps(self, steps: Sequence[Step], values: Values, at: Mirror) -> None:
        """Issues them to the device, and waits where the host has a part."""

    def buffer(self, place: DevicePlace, values: Values, at: Mirror) -> tuple[DeviceMemory, int]:
        """The memory of a tensor on the device."""
        ...


@dataclass(frozen=True)
class EndUse:
    """Which inputs and outputs of a call are used in place (``row``; 0: copied), and whether later
    calls have the same addresses, so that recording pays."""

    row: Places
    back: bool


@dataclass(frozen=True)
class _Stepwise:
    """Work that is issued step by step whenever it is run."""

    ask: Callable[[], None]

    def run(self) -> None:
        self.ask()


class RecordedCalls:
    """Calls of one program, one at a time, whose caller has the device's lock."""

    def __init__(
        self,
        device: RecordingDevice,
        program: DeviceProgram,
        parts: ProgramParts,
        memories: DeviceMemories,
        repeats: Replays,
        number: IndexEvaluator,
        described: DescribedCalls,
    ) -> None:
        self._device = device
        self._program = program
        self._parts = parts
        self._memories = memories
        self._repeats = repeats
        self._number = number
        self._described = described
        self._ends = EndOrder(len(program.inputs), len(program.outputs))
        self._constants = 0
        self._names: tuple[str, ...] = ()
        self._noted: DeviceMemory | None = None
        self.refused = False
        """Whether the device has failed to record it."""

    def takes(self, values: Values) -> bool:
        """Whether calls of these sizes can be asynchronous: their conditions hold, and what the
        first call uploads and describes is there."""
        described = self._described.knows((tuple(values.values()), ()))
        return bool(self._constants) and described and not self.refused and self._holds(values)

    def _holds(self, values: Values) -> bool:
        reads = (step for step in self._parts.before if isinstance(step, ReadNumbers))
        return all(condition.holds(values) for read in reads for condition, _ in read.conditions)

    # --- synchronous calls

    def used(self, places: Places, values: Values) -> EndUse:
        """The use of a call's ``places``: all in place, if their addresses repeat; otherwise those
        that do, if copies of the others are cheaper than issuing all launches."""
        row, seen = in_place(places), self._repeats.places
        likely = seen.likely(row)
        sizes = tuple(values.values())
        if not any(row) or seen.times(sizes, row):
            return EndUse(row, True)
        moved = [n for n, place in enumerate(row) if place and not likely[n]]
        copied = sum(map(partial(self._size, values), moved))
        steps = sum(launches(part, self._numbers(values)) for part in self._parts.inside)
        if len(moved) + copied / COPIED_BYTES < steps and seen.times(sizes, likely) >= TRIED:
            return EndUse(likely, True)
        return EndUse(row, False)

    def run(self, runner: StepRunner, constants: int, values: Values, at: Mirror) -> None:
        """A synchronous call; ``constants`` is the table of their addresses."""
        self._constants, self._names = constants, tuple(values)
        runner.steps(self._parts.before, values, at)
        key = (tuple(values.values()), tuple(at.kept), self._ends.places(at.direct))
        repeat = self._repeats.get(key)
        if repeat is None and not self._described.is_first(key[:2]) and at.back:
            repeat = self._recorded(runner, values, at)
        if repeat is None:
            for steps in self._parts.inside:
                runner.steps(steps, values, at)
        else:
            self._repeats.keep(key, repeat)
            for call in repeat.calls:
                self._replay(call, at)
        runner.steps(self._parts.after, values, at)

    def _replay(self, call: RecordedCall, at: Mirror) -> None:
        call.work.run()
        if (faults := call.faults) is None or not faults.size:
            return
        noted = ctypes.create_string_buffer(faults.size)
        self._device.download(faults.memory, 0, ctypes.addressof(noted), faults.size)
        end_if(faults.fault(noted.raw), at.arena)

    # --- asynchronous calls

    def again(
        self,
        runner: StepRunner,
        device: PointerDevice,
        numbers: tuple[int, ...],
        places: Places,
        host: Places,
    ) -> tuple[FaultReadback, ...] | None:
        """Issues a call with ``numbers`` at ``places``, its other inputs on the ``host``, and the
        readback of its index faults; None if that needs waiting."""
        repeat = self._repeats.get((numbers, (), places))
        if repeat is None and not self.refused:
            repeat = self._repeat(runner, device, numbers, places)
        return None if repeat is None else replay_call(device, repeat, places, host)

    def _repeat(
        self, runner: StepRunner, device: PointerDevice, numbers: tuple[int, ...], places: Places
    ) -> ReplayedCall | None:
        values = dict(zip(self._names, numbers, strict=True))
        use = self.used(places, values)
        key = numbers, (), use.row
        if (found := self._repeats.get(key)) is not None:
            return found
        at = self._placed(device, values, places, use)
        if not use.back:
            return self._stepwise(runner, values, at)
        made = self._recorded(runner, values, at)
        if made is not None:
            self._repeats.keep(key, made)
        return made

    def _placed(self, device: PointerDevice, values: Values, places: Places, use: EndUse) -> Mirror:
        """Memory of a call with the caller's inputs and outputs on the device."""
        foreign: dict[End, DeviceMemory] = {}
        for position, place in enumerate(places):
            if place:
                size = self._size(values, position)
                foreign[self._ends.end(position)] = device.lent(place, size)
        direct = {end: use.row[self._ends.position(end)] for end in foreign}
        direct = {end: place for end, place in direct.items() if place}
        nothing = (ctypes.c_int64 * max(1, len(places)))()  # the host has none of these tensors
        given = (ctypes.addressof(nothing), ctypes.addressof(nothing), self._constants, 0, 0)
        return self._memories.of_call(given, values, foreign, direct)

    def _stepwise(self, runner: StepRunner, values: Values, at: Mirror) -> ReplayedCall:
        """A call that is issued step by step, and records all faults."""
        calls: list[RecordedCall] = []
        for steps in self._parts.inside:
            size = fault_bytes(steps, self._numbers(values))
            faults = FaultPlaces(self._notes(size)) if size else None
            work = partial(self._ask, runner, steps, values, replace(at, faults=faults), size)
            calls.append(RecordedCall(_Stepwise(work), faults))
        return ReplayedCall(tuple(calls), *self._copies(runner, values, at))

    def _notes(self, size: int) -> DeviceMemory:
        """For faults of consecutive calls, of which at most one part records any."""
        if self._noted is None or self._noted.size < size:
            self._noted = self._device.allocate(size)
        return self._noted

    # --- recordings

    def _recorded(self, runner: StepRunner, values: Values, at: Mirror) -> ReplayedCall | None:
        """The recorded call; None, from now on, if the device cannot record it."""
        if self.refused:
            return None
        try:
            calls = [self._recording(runner, part, values, at) for part in self._parts.inside]
        except RecordingError:
            self.refused = True
            return None
        return ReplayedCall(tuple(calls), *self._copies(runner, values, at))

    def _recording(
        self, runner: StepRunner, steps: Sequence[Step], values: Values, at: Mirror
    ) -> RecordedCall:
        size = fault_bytes(steps, self._numbers(values))
        faults = FaultPlaces(self._device.allocate(size)) if size else None
        given = replace(at, faults=faults)
        work = self._device.record(partial(self._ask, runner, steps, values, given, size))
        return RecordedCall(work, faults)

    def _ask(
        self, runner: StepRunner, steps: Sequence[Step], values: Values, at: Mirror, size: int
    ) -> None:
        if at.faults is not None:  # recorded by an earlier call
            self._device.clear(at.faults.memory, 0, size)
        runner.steps(steps, values, at)

    def _copies(
        self, runner: StepRunner, values: Values, at: Mirror
    ) -> tuple[tuple[EndCopy, ...], tuple[EndCopy, ...]]:
        """Copies before and after the device's work of the caller's tensors on the device that are
        not used in place, states included."""
        states = self._memories.states if not at.kept else ()
        own = [DevicePlace("input", n, 0, self._program.inputs[n]) for n in states]
        sides: list[tuple[EndCopy, ...]] = []
        for steps in (self._parts.before, self._parts.after):
            places = [step.place for step in steps if isinstance(step, MoveTensor)] + own
            ends = {(p.kind, p.number): p for p in places if (p.kind, p.number) not in at.direct}
            sides.append(
                tuple(
                    EndCopy(self._ends.position(end), *runner.buffer(p, values, at), size)
                    for end, p in ends.items()
                    if (size := self._number(p.size, values)) > 0
                )
            )
        before, after = sides
        return before, after

    def _size(self, values: Values, position: int) -> int:
        kind, number = self._ends.end(position)
        sizes = self._program.inputs if kind == "input" else self._program.outputs
        return max(0, self._number(sizes[number], values))

    def _numbers(self, values: Mapping[str, int]) -> Callable[[Index], int]:
        return lambda index: self._number(index, values)
