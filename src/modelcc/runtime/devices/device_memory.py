"""The tensors of a call for a device: on both sides, with the same layout."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

from modelcc.artifact.constants import block_size
from modelcc.artifact.manifest import Manifest
from modelcc.ir.index import Index, compile_index
from modelcc.runtime.devices.device import Device, DeviceMemory, OutOfDeviceMemoryError
from modelcc.runtime.devices.device_recordings import FaultPlaces
from modelcc.runtime.devices.device_states import ALIGNMENT, DeviceStates, aligned
from modelcc.runtime.devices.device_steps import DevicePlace, DeviceProgram, End, kernel_calls
from modelcc.runtime.errors import RunError

Values: TypeAlias = dict[str, int]


class IndexEvaluator:
    """Values of index expressions, each of which is compiled once."""

    def __init__(self) -> None:
        self._compiled: dict[Index, Callable[[Mapping[str, int]], int]] = {}

    def __call__(self, index: Index, values: Mapping[str, int]) -> int:
        """The value of ``index`` for these ``values`` of its symbols."""
        if isinstance(index, int):
            return index
        function = self._compiled.get(index)
        if function is None:
            function = self._compiled[index] = compile_index(index)
        return function(values)


@dataclass
class Mirror:
    """Memory of both sides for one run: addresses on the host, offsets in the device's memory.

    ``foreign`` inputs and outputs are in the caller's memory on the device; ``direct`` ones are
    used there, and ``back`` says that later calls have the same addresses.
    """

    tables: Mapping[str, int]
    arena: int
    host: int
    memory: DeviceMemory
    starts: Mapping[str, Sequence[int]]
    kept: Mapping[int, tuple[DeviceMemory, int]]
    constants: Mapping[int, tuple[DeviceMemory, int]]
    arrivals: Sequence[tuple[DeviceMemory, int]]
    foreign: Mapping[End, DeviceMemory]
    direct: Mapping[End, int]
    values: Values
    sizes: int
    faults: FaultPlaces | None = None
    back: bool = True
    segments: dict[int, tuple[int, DeviceMemory]] = field(
        default_factory=dict[int, "tuple[int, DeviceMemory]"]
    )

    def address(self, place: DevicePlace, offset: int) -> int:
        """The address of a tensor on the host."""
        match place.kind:
            case "arena":
                return self.arena + offset
            case "segment":
                return self.segments[place.number][0] + offset
            case _:
                return entry(self.tables[place.kind], place.number) + offset

    def buffer(self, place: DevicePlace, offset: int) -> tuple[DeviceMemory, int]:
        """Its memory on the device."""
        match place.kind:
            case "arena":
                return self.memory, offset
            case "input" | "output" if (place.kind, place.number) in self.direct:
                return self.foreign[place.kind, place.number], offset
            case "segment":
                return self.segments[place.number][1], offset
            case "input" if place.number in self.kept:
                memory, start = self.kept[place.number]
            case "constant":
                memory, start = self.constants[place.number]
            case "arrivals":
                memory, start = self.arrivals[place.number]
            case _:
                memory, start = self.memory, self.starts[place.kind][place.number]
        return memory, start + offset


class DeviceMemories:
    """The device's memory for calls of a program, one at a time.

    ``moved`` is called before memory of calls is reallocated.
    """

    def __init__(
        self,
        manifest: Manifest,
        program: DeviceProgram,
        device: Device,
        number: IndexEvaluator,
        moved: Callable[[], None],
    ) -> None:
        self._manifest = manifest
        self._program = program
        self._device = device
        self._number = number
        self._moved = moved
        self._memory: DeviceMemory | None = None
        self._constants: dict[int, tuple[DeviceMemory, int]] | None = None
        self._arrivals: Sequence[tuple[DeviceMemory, int]] = ()
        updated = frozenset(manifest.aliases.values())
        self.states = {n: s.name for n, s in enumerate(manifest.inputs) if s.name in updated}
        """The inputs that are states, by their numbers."""
        self.kept: DeviceStates | None = None

    def of_call(
        self,
        given: Sequence[int],
        values: Values,
        foreign: Mapping[End, DeviceMemory],
        direct: Mapping[End, int],
    ) -> Mirror:
        """Both sides' memory for a call with the entry point's arguments, and those inputs and
        outputs that the caller has on the device; RunError if there is too little."""
        try:
            return self._mirror(given, values, foreign, direct)
        except OutOfDeviceMemoryError as error:
            raise self._too_large(values, error) from error

    def _mirror(
        self,
        given: Sequence[int],
        values: Values,
        foreign: Mapping[End, DeviceMemory],
        direct: Mapping[End, int],
    ) -> Mirror:
        """Both sides' memory, the device's own reallocated if it is too small."""
        constants, arrivals = self._brought_constants(given[2]), self._cleared_arrivals()
        kept = self._kept(given[0])
        starts: dict[str, list[int]] = {"input": [], "output": []}
        end = aligned(self._number(self._program.arena, values))
        for kind, sizes in (("input", self._program.inputs), ("output", self._program.outputs)):
            for number, size in enumerate(sizes):
                starts[kind].append(end)
                here = (kind, number) not in direct and (kind == "output" or number not in kept)
                end += aligned(self._number(size, values)) if here else 0
        if self._memory is None or self._memory.size < end:
            self._moved()
            self._memory = None
            self._memory = self._device.allocate(end + ALIGNMENT)
        tables = {"input": given[0], "output": given[1], "constant": given[2]}
        host = given[6] if len(given) > 6 else 0
        sides = tables, given[3], host, self._memory
        tensors = starts, kept, constants, arrivals
        return Mirror(*sides, *tensors, foreign, direct, values, given[4])

    def spoil(self) -> None:
        """A call has failed: arrival counters are cleared by the next one."""
        if self._arrivals:
            self._moved()
            self._arrivals = ()

    def _cleared_arrivals(self) -> Sequence[tuple[DeviceMemory, int]]:
        """Arrival counters, cleared before the first call: each call resets them."""
        sizes = self._program.arrivals
        if sizes and not self._arrivals:
            starts = list(accumulate(map(aligned, sizes), initial=0))
            memory = self._device.allocate(starts[-1])
            zeros = ctypes.create_string_buffer(starts[-1])
            self._device.upload(memory, 0, ctypes.addressof(zeros), starts[-1])
            self._arrivals = [(memory, start) for start in starts[:-1]]
        return self._arrivals

    def _kept(self, table: int) -> dict[int, tuple[DeviceMemory, int]]:
        """Addresses of the session's states, if these are the call's inputs."""
        kept, names = self.kept, self.states
        if kept is None or not all(kept.is_at(name, entry(table, n)) for n, name in names.items()):
            return {}
        places = kept.bring()
        return {number: places[name] for number, name in names.items()}

    def _brought_constants(self, table: int) -> dict[int, tuple[DeviceMemory, int]]:
        """Constants, uploaded with the first call, equal ones once where possible."""
        if self._constants is not None:
            return self._constants
        specs = self._manifest.constants
        offsets = {n: spec.offset for n, spec in enumerate(specs) if spec.size}
        rooms = constant_rooms(offsets, self._program)
        firsts = [n for n, room in rooms.items() if n == room]
        starts = list(accumulate((aligned(specs[n].size) for n in firsts), initial=0))
        memory = self._device.allocate(max(1, starts[-1]))
        places = dict(zip(firsts, starts, strict=False))
        for number, start in places.items():
            self._device.upload(memory, start, entry(table, number), specs[number].size)
        found = {n: places[rooms[n]] if n in rooms else 0 for n in range(len(specs))}
        self._constants = {n: (memory, start) for n, start in found.items()}
        return self._constants

    def _too_large(self, values: Values, error: OutOfDeviceMemoryError) -> RunError:
        ends = (*self._program.inputs, *self._program.outputs)
        constants = block_size(self._manifest.constants)
        arena = self._number(self._program.arena, values)
        wanted = constants + arena + sum(self._number(size, values) for size in ends)
        parts = f"{constants:,} of weights, {arena:,} between kernels"
        return error.of_model(self._manifest.name, wanted, parts, self._device.name)


def entry(table: int, number: int) -> int:
    """An entry of a table of addresses."""
    return ctypes.c_int64.from_address(table + 8 * number).value


def constant_rooms(offsets: Mapping[int, int], program: DeviceProgram) -> dict[int, int]:
    """For each constant, the first one whose memory it shares; equal ones have one offset.  No two
    of one launch share memory, as WebGPU does not allow aliased bindings."""
    beside: dict[int, set[int]] = {}
    for call in kernel_calls(program.steps):
        numbers = {place.number for place in call.arguments if place.kind == "constant"}
        for number in numbers:
            beside.setdefault(number, set()).update(numbers - {number})
    rooms: dict[int, list[set[int]]] = {}
    found: dict[int, int] = {}
    for number, offset in offsets.items():
        equal = rooms.setdefault(offset, [])
        others = beside.get(number, set[int]())
        room = next((room for room in equal if room.isdisjoint(others)), None)
        if room is None:
            equal.append(room := set())
        room.add(number)
        found[number] = min(room)
    return found
