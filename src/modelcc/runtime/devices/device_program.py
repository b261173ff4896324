"""Runs the steps of a program for a device: the entry point that a session calls.

Host and device each have memory for the arena, inputs and outputs, with the same layout; steps
transfer tensors from one to the other.  A call takes a *mirror* of the device's memory for itself,
so that several may be prepared at once, but only one runs at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from threading import Lock, get_ident
from time import perf_counter_ns
from weakref import ref

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import Manifest
from modelcc.ir.types import Array
from modelcc.runtime.arguments import address_of
from modelcc.runtime.devices.device import (
    Device,
    DeviceMemory,
    LeavableDevice,
    LibraryDevice,
    OutOfDeviceMemoryError,
    PointerDevice,
    RecordingDevice,
    TimedDevice,
    open_device,
)
from modelcc.runtime.devices.device_calls import DeviceCalls
from modelcc.runtime.devices.device_memory import (
    DeviceMemories,
    IndexEvaluator,
    Mirror,
    Values,
    entry,
)
from modelcc.runtime.devices.device_parts import (
    CODE,
    STEPS,
    HostFunctions,
    host_code,
    read_program,
    use_library,
)
from modelcc.runtime.devices.device_recordings import (
    DescribedCalls,
    RunEnded,
    end_if,
    index_fault,
    program_parts,
)
from modelcc.runtime.devices.device_results import DeviceResults
from modelcc.runtime.devices.device_states import DeviceStates
from modelcc.runtime.devices.device_steps import (
    AllocateBoth,
    CopyMemory,
    DeviceLibraryCall,
    DevicePlace,
    DeviceProgram,
    End,
    KernelCall,
    MoveTensor,
    ReadNumbers,
    RunLoop,
    Step,
    TakeSide,
    is_the_devices,
    kernel_calls,
    library_names,
    step_name,
)
from modelcc.runtime.devices.graph_replay import (
    EndOrder,
    Places,
    Replays,
    in_place,
)
from modelcc.runtime.devices.pending_calls import FaultReadback, PendingCalls
from modelcc.runtime.devices.profiler_ranges import profiler_ranges
from modelcc.runtime.devices.recorded_calls import EndUse, RecordedCalls
from modelcc.runtime.loader import NativeCode
from modelcc.runtime.signature import Signature

FAILED = -2
"""The status of a run that a device has ended."""

OUT_OF_MEMORY = -1

_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p for _ in range(6)))
_HOSTED = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p for _ in range(7)))
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class DeviceCode(NativeCode):
    """The entry point of a program for a device; a run of status :data:`FAILED` has a failure."""

    def __init__(
        self, artifact: Artifact, device: Device | None = None, index: int | None = None
    ) -> None:
        """Opens the device that ``artifact`` is for, or number ``index`` of its kind, unless one is
        given; LoadError."""
        self.program = program = read_program(artifact)
        self.device = device or open_device(program.kind, program.index if index is None else index)
        self.device.load(artifact.objects[CODE], self.program.kernels)
        used = library_names(program.steps)
        for spec in artifact.manifest.libraries:
            if spec.name in used:
                use_library(self.device, spec)
        self._host = host_code(artifact, used)
        self._runner = _Runner(artifact.manifest, self.program, self.device, self._host)
        self._lock = Lock()
        self._late: PendingCalls | None = None
        self._failures: dict[int, BaseException] = {}
        form = _HOSTED if artifact.manifest.allocated else _CALL
        self._times = (ctypes.c_int64 * (2 * len(self.program.steps) + 2))()
        own = tuple(form(partial(_call, ref(self), profiled)) for profiled in (False, True))
        plain, profiled = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in own)
        name, times = artifact.manifest.entry, ctypes.addressof(self._times)
        known = {name: plain, f"{name}.profile": profiled, f"{name}.times": times}
        super().__init__(own, known)
        if isinstance(self.device, PointerDevice):
            made = DeviceResults(self.device, self._lock, len(artifact.manifest.outputs))
            self._runner.keep_for(made)
            self._late = made.late
            lent, steps = self._runner.foreign, program.steps
            self.calls = DeviceCalls(artifact.manifest, made, self._lock, lent, steps, self._runner)

    def take_failure(self) -> BaseException | None:
        return self._failures.pop(get_ident(), None)

    def limit(self, seconds: float | None) -> None:
        """By the device, if it has time limits."""
        if not isinstance(self.device, LeavableDevice):
            return super().limit(seconds)
        self.device.timeout = seconds

    def keep(self, inputs: Mapping[str, Array]) -> DeviceStates:
        """They stay in the device's memory."""
        kept = self._runner.memories.kept = DeviceStates(self.device, self._lock, inputs)
        return kept

    def _profile(self, given: Sequence[int]) -> None:
        """The times of steps in their order, each as a ``struct timespec``."""
        begin = 0
        for number, taken in enumerate(self._runner.profiled(given), 1):
            begin += taken
            self._times[2 * number : 2 * number + 2] = divmod(begin, 10**9)

    def call(self, profiled: bool, given: Sequence[int]) -> int:
        """The status of the entry point's call, and that of the profiled one."""
        with self._lock:
            try:
                if self._late is not None:
                    self._late.finish()
                (self._profile if profiled else self._runner.run)(given)
            except RunEnded as end:
                return end.status
            except BaseException as error:  # no exception passes through a C function
                self._failures[get_ident()] = error
                return FAILED
        return 0


def _call(code: ref[DeviceCode], profiled: bool, *given: int | None) -> int:
    """What C calls: it does not keep the code alive, which ends with the last session."""
    found = code()
    assert found is not None
    return found.call(profiled, [address or 0 for address in given])


def is_for_device(artifact: Artifact) -> bool:
    """Whether an artifact's steps are run by :class:`DeviceCode`."""
    return STEPS in artifact.objects


class _Runner:
    """Runs steps, one call at a time."""

    def __init__(
        self, manifest: Manifest, program: DeviceProgram, device: Device, host: NativeCode | None
    ) -> None:
        self._manifest = manifest
        self._program = program
        self._device = device
        self._host = HostFunctions(host)
        self._number = IndexEvaluator()
        self._faults: DeviceMemory | None = None
        most = max((step.checks for step in kernel_calls(program.steps)), default=0)
        self._noted = (ctypes.c_int64 * max(1, 2 * most))()
        self.foreign: dict[int, Mapping[End, DeviceMemory]] = {}
        """Callers' memory on the device, by the addresses of their tables of inputs."""
        self._ends = EndOrder(len(program.inputs), len(program.outputs))
        self._repeats = Replays()
        self.memories = DeviceMemories(manifest, program, device, self._number, self._repeats.clear)
        self._recorded = self._recorder(program, device)

    def _recorder(self, program: DeviceProgram, device: Device) -> RecordedCalls | None:
        """None if the device cannot record work."""
        parts = program_parts(program.steps, bool(self.memories.states))
        if parts is None or not isinstance(device, RecordingDevice):
            return None
        described = DescribedCalls(bool(library_names(program.steps)))
        shared = self.memories, self._repeats, self._number
        return RecordedCalls(device, program, parts, *shared, described)

    def run(self, given: Sequence[int]) -> None:
        """One call with the entry point's arguments."""
        values, at = self._begun(given)
        try:
            self._work(given[2], values, at)
        except (RunEnded, OutOfDeviceMemoryError):
            raise  # before states are changed
        except Exception as error:
            self.memories.spoil()
            if at.kept and self.memories.kept is not None:
                self.memories.kept.lost = str(error)
            raise

    def _work(self, constants: int, values: Values, at: Mirror) -> None:
        if self._recorded is None or self._recorded.refused:
            self.steps(self._program.steps, values, at)
        else:
            self._recorded.run(self, constants, values, at)
        self._move_states(values, at, upload=False)
        self._device.synchronize()

    def keep_for(self, results: DeviceResults) -> None:
        """Spare memory of ``results`` is kept as long as memory of calls is not reallocated."""
        self._repeats.results = results

    def numbers(self, signature: Signature) -> tuple[int, ...] | None:
        """What identifies calls of one signature; None if they have to be synchronous."""
        values = self._values(address_of(signature.sizes))
        if self._recorded is None or not self._recorded.takes(values):
            return None
        return tuple(values.values())

    def again(
        self, device: PointerDevice, numbers: tuple[int, ...], places: Places, host: Places
    ) -> tuple[FaultReadback, ...] | None:
        """Issues a call on memory at ``places``, its other inputs on the ``host``, and the readback
        of its index faults; None if it has to be synchronous."""
        if self._recorded is None:
            return None
        try:
            return self._recorded.again(self, device, numbers, places, host)
        except Exception:
            self.memories.spoil()
            raise

    def profiled(self, given: Sequence[int]) -> Iterator[int]:
        """The nanoseconds of each step of a call: by the device's clock, if it has one for the
        step's work there, else by the host's."""
        values, mirror = self._begun(given)
        self._device.synchronize()
        clock = self._device if isinstance(self._device, TimedDevice) else None
        ranges = profiler_ranges()
        try:
            if clock:
                clock.keep_times(True)
            for step in self._program.steps:
                start = perf_counter_ns()
                with ranges(step_name(step)):
                    self.steps((step,), values, mirror)
                    self._device.synchronize()
                taken = perf_counter_ns() - start
                timed = clock.seconds() if clock and is_the_devices(step) else 0.0
                yield round(timed * 1e9) or taken
        finally:
            if clock:
                clock.keep_times(False)

    def _begun(self, given: Sequence[int]) -> tuple[Values, Mirror]:
        """Numbers and memory of a call."""
        values = self._values(given[4])
        foreign = self.foreign.get(given[0], {})
        use = self._used(given, foreign, values)
        direct = {end: use.row[self._ends.position(end)] for end in foreign}
        direct = {end: place for end, place in direct.items() if place}
        at = self.memories.of_call(given, values, foreign, direct)
        at.back = use.back
        self._move_states(values, at, upload=True)
        return values, at

    def _used(
        self, given: Sequence[int], foreign: Mapping[End, DeviceMemory], values: Values
    ) -> EndUse:
        """Which of the caller's inputs and outputs on the device are used in place."""
        tables = {"input": given[0], "output": given[1]}
        places = self._ends.places({(kind, n): entry(tables[kind], n) for kind, n in foreign})
        if self._recorded is None:
            return EndUse(in_place(places), False)
        return self._recorded.used(places, values)

    def _values(self, sizes: int) -> Values:
        names = self._program.sizes
        known = (ctypes.c_int64 * max(1, len(names))).from_address(sizes) if names else ()
        values = dict(zip(names, known, strict=False))
        for name in self._manifest.sizes:
            values.pop(name, None)
        for name, value in self._program.definitions:
            values[name] = self._number(value, values)
        return values

    def _move_states(self, values: Values, at: Mirror, upload: bool) -> None:
        """Transfers states that the caller passes for this call alone."""
        for number in self.memories.states if not at.kept else ():
            place = DevicePlace("input", number, 0, self._program.inputs[number])
            self._move(MoveTensor(place, upload), values, at)

    def steps(self, steps: Sequence[Step], values: Values, at: Mirror) -> None:
        for step in steps:
            match step:
                case KernelCall():
                    self._launch(step, values, at)
                case DeviceLibraryCall():
                    self._call_library(step, values, at)
                case MoveTensor():
                    self._move(step, values, at)
                case CopyMemory():
                    self._copy(step, values, at)
                case ReadNumbers():
                    self._read(step, values, at)
                case AllocateBoth():
                    self._allocate(step, values, at)
                case TakeSide():
                    held = ctypes.c_bool.from_address(self._address(step.condition, values, at))
                    self.steps(step.then if held.value else step.other, dict(values), at)
                case RunLoop():
                    self._loop(step, values, at)

    def _launch(self, step: KernelCall, values: Values, at: Mirror) -> None:
        sizes = [self._number(size, values) for size in step.sizes]
        if step.grid is None:
            self._call(step, sizes, values, at)
            return
        x, y, z = (self._number(extent, values) for extent in step.grid)
        if x <= 0 or y <= 0 or z <= 0:
            return
        buffers = [self.buffer(place, values, at) for place in step.arguments]
        if not step.checks:
            self._device.launch(step.kernel, buffers, sizes, (x, y, z))
            return
        if at.faults is not None:
            buffers.append(at.faults.place(step))
            return self._device.launch(step.kernel, buffers, sizes, (x, y, z))
        size = 16 * step.checks
        if self._faults is None:
            self._faults = self._device.allocate(ctypes.sizeof(self._noted))
        ctypes.memset(self._noted, 0, size)
        noted = ctypes.addressof(self._noted)
        self._device.upload(self._faults, 0, noted, size)
        self._device.launch(step.kernel, [*buffers, (self._faults, 0)], sizes, (x, y, z))
        self._device.download(self._faults, 0, noted, size)
        end_if(index_fault(step, self._noted), at.arena)

    def _call_library(self, step: DeviceLibraryCall, values: Values, at: Mirror) -> None:
        device, numbers = self._device, [self._number(n, values) for n in step.numbers]
        buffers = [self.buffer(place, values, at) for place in step.arguments]
        assert isinstance(device, LibraryDevice)
        device.call(step.library, step.elements, buffers, numbers)

    def _call(self, step: KernelCall, sizes: Sequence[int], values: Values, at: Mirror) -> None:
        """Calls a function of the host."""
        places = [self._address(place, values, at) for place in step.arguments]
        ctypes.memset(self._noted, 0, 16 * step.checks)
        self._host.call(step.kernel, places, sizes, self._noted if step.checks else None)
        end_if(index_fault(step, self._noted), at.arena)

    def _move(self, step: MoveTensor, values: Values, at: Mirror) -> None:
        size = self._number(step.place.size, values)
        if size <= 0:
            return
        memory, offset = self.buffer(step.place, values, at)
        end = (step.place.kind, step.place.number)
        if end in at.foreign:
            theirs = at.foreign[end], self._number(step.place.offset, values)
            if end not in at.direct:
                pair = (memory, offset, *theirs) if step.upload else (*theirs, memory, offset)
                self._device.copy(*pair, size)
            return
        move = self._device.upload if step.upload else self._device.download
        move(memory, offset, self._address(step.place, values, at), size)

    def _copy(self, step: CopyMemory, values: Values, at: Mirror) -> None:
        size = self._number(step.target.size, values)
        if size <= 0:
            return
        target, source = (self.buffer(p, values, at) for p in (step.target, step.source))
        if target != source:
            self._device.copy(*target, *source, size)
        if step.both:
            to = self._address(step.target, values, at)
            ctypes.memmove(to, self._address(step.source, values, at), size)

    def _read(self, step: ReadNumbers, values: Values, at: Mirror) -> None:
        address = self._address(step.place, values, at) if step.symbols else 0
        for number, name in enumerate(step.symbols):
            values[name] = entry(address, number)
            position = self._program.sizes.index(name)
            ctypes.c_int64.from_address(at.sizes + 8 * position).value = values[name]
        for condition, status in step.conditions:
            if not condition.holds(values):
                raise RunEnded(status)

    def _allocate(self, step: AllocateBoth, values: Values, at: Mirror) -> None:
        size = self._number(step.size, values)
        table = (ctypes.c_void_p * 2).from_address(at.host)
        address = _ALLOCATE(table[0] or 0)(table[1], step.number, size)
        if not address:
            raise RunEnded(OUT_OF_MEMORY)
        at.segments[step.number] = address, self._device.allocate(max(1, size))

    def _loop(self, step: RunLoop, values: Values, at: Mirror) -> None:
        trips = None if step.trips is None else self._number(step.trips, values)
        for number in count() if trips is None else range(trips):
            inside = {**values, step.counter: number}
            if step.condition is not None and not self._holds(step.condition, inside, at):
                return
            self.steps(step.body, inside, at)

    def _holds(self, place: DevicePlace, values: Values, at: Mirror) -> bool:
        """Reads a bool from the device."""
        found = ctypes.c_uint8()
        memory, offset = self.buffer(place, values, at)
        self._device.download(memory, offset, ctypes.addressof(found), 1)
        return bool(found.value)

    def _address(self, place: DevicePlace, values: Values, at: Mirror) -> int:
        """The address of a tensor on the host."""
        return at.address(place, self._number(place.offset, values))

    def buffer(self, place: DevicePlace, values: Values, at: Mirror) -> tuple[DeviceMemory, int]:
        """Its memory on the device."""
        return at.buffer(place, self._number(place.offset, values))
