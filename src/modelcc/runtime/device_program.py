"""Runs the steps of a program for a device: the entry point that a session calls.

Host and device each have memory for the arena, inputs and outputs, laid out alike; steps bring
tensors from one to the other.  A call takes a *mirror* of the device's memory for itself, so that
several may be prepared at once, but only one runs at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from threading import Lock
from time import perf_counter_ns
from typing import TypeAlias
from weakref import ref

from modelcc.artifact.constants import block_size
from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import Manifest
from modelcc.ir.index import Index, compile_index
from modelcc.runtime.device import (
    Device,
    DeviceMemory,
    LeavableDevice,
    OutOfDeviceMemoryError,
    RecordingDevice,
    RecordingError,
    TimedDevice,
    open_device,
)
from modelcc.runtime.device_recordings import (
    MOST_RECORDED,
    FaultPlaces,
    ProgramParts,
    RecordedCall,
    fault_bytes,
    program_parts,
)
from modelcc.runtime.device_steps import (
    AllocateBoth,
    CopyMemory,
    DevicePlace,
    DeviceProgram,
    KernelCall,
    MoveTensor,
    ReadNumbers,
    RunLoop,
    Step,
    TakeSide,
    from_json,
    is_the_devices,
    kernel_calls,
    step_name,
)
from modelcc.runtime.errors import LoadError, RunError
from modelcc.runtime.libraries import addresses
from modelcc.runtime.loader import NativeCode, load_objects
from modelcc.runtime.pool import native_pool
from modelcc.runtime.profiler_ranges import profiler_ranges

STEPS, CODE = "device.json", "device.code"
"""Objects of an artifact that runs on a device: its steps and its kernels; all others are the
host's."""

ALIGNMENT = 256
"""Bytes; what devices want buffers to start at."""

FAILED = -2
"""The status of a run that a device has ended."""

OUT_OF_MEMORY = -1

_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p for _ in range(6)))
_HOSTED = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p for _ in range(7)))
_KERNEL = ctypes.CFUNCTYPE(None)
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

Values: TypeAlias = dict[str, int]


class _Ended(Exception):  # noqa: N818 - no error: the program says so itself
    """The run ends with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class DeviceCode(NativeCode):
    """The entry point of a program for a device; :attr:`failure` is what ended the last run of
    status :data:`FAILED`."""

    def __init__(
        self, artifact: Artifact, device: Device | None = None, index: int | None = None
    ) -> None:
        """Open the device that ``artifact`` is for, or number ``index`` of its kind, unless one is
        given; LoadError."""
        self.program = program = _program(artifact)
        self.device = device or open_device(program.kind, program.index if index is None else index)
        self.device.load(artifact.objects[CODE], self.program.kernels)
        self._host = _host_code(artifact)
        self._runner = _Runner(artifact.manifest, self.program, self.device, self._host)
        self._lock = Lock()
        form = _HOSTED if artifact.manifest.allocated else _CALL
        self._times = (ctypes.c_int64 * (2 * len(self.program.steps) + 2))()
        own = tuple(form(partial(_call, ref(self), profiled)) for profiled in (False, True))
        plain, profiled = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in own)
        name, times = artifact.manifest.entry, ctypes.addressof(self._times)
        known = {name: plain, f"{name}.profile": profiled, f"{name}.times": times}
        super().__init__(own, known)

    def limit(self, seconds: float | None) -> None:
        """By the device, if it can be left."""
        if not isinstance(self.device, LeavableDevice):
            return super().limit(seconds)
        self.device.timeout = seconds

    def _profile(self, given: Sequence[int]) -> None:
        """The times of steps one after the other, each as a ``struct timespec``."""
        begin = 0
        for number, taken in enumerate(self._runner.profiled(given), 1):
            begin += taken
            self._times[2 * number : 2 * number + 2] = divmod(begin, 10**9)

    def call(self, profiled: bool, given: Sequence[int]) -> int:
        """The status of the entry point's call, and that of the profiled one."""
        with self._lock:
            try:
                (self._profile if profiled else self._runner.run)(given)
            except _Ended as end:
                return end.status
            except Exception as error:  # nothing passes through a function of C
                self.failure = error
                return FAILED
        return 0


def _call(code: ref[DeviceCode], profiled: bool, *given: int | None) -> int:
    """What C calls: it does not keep the code, whose memory goes with the last session."""
    found = code()
    assert found is not None
    return found.call(profiled, [address or 0 for address in given])


def is_for_device(artifact: Artifact) -> bool:
    """Whether an artifact's steps are run by :class:`DeviceCode`."""
    return STEPS in artifact.objects


def _program(artifact: Artifact) -> DeviceProgram:
    try:
        return from_json(artifact.objects[STEPS].decode())
    except (ValueError, LookupError, TypeError) as error:
        raise LoadError(f"its steps are damaged ({error}); compile the model again") from error


def _host_code(artifact: Artifact) -> NativeCode | None:
    """The functions that run on the host."""
    names = [name for name in artifact.manifest.objects if name not in (STEPS, CODE)]
    objects = [artifact.objects[name] for name in names]
    if not objects:
        return None
    return load_objects(objects, addresses(artifact.manifest.libraries), _pool_function)


def _pool_function(name: str) -> int:
    return native_pool().address(name) if name == "mcc_parallel_for" else 0


@dataclass
class _Mirror:
    """Memory of both sides for one run: addresses on the host, offsets in the device's memory."""

    tables: Mapping[str, int]
    arena: int
    host: int
    memory: DeviceMemory
    starts: Mapping[str, Sequence[int]]
    values: Values
    sizes: int
    faults: FaultPlaces | None = None
    segments: dict[int, tuple[int, DeviceMemory]] = field(
        default_factory=dict[int, "tuple[int, DeviceMemory]"]
    )


class _Runner:
    """Runs steps, one call at a time."""

    def __init__(
        self, manifest: Manifest, program: DeviceProgram, device: Device, host: NativeCode | None
    ) -> None:
        self._manifest = manifest
        self._program = program
        self._device = device
        self._host = host
        self._functions: dict[str, Callable[..., None]] = {}
        self._compiled: dict[Index, Callable[[Mapping[str, int]], int]] = {}
        self._memory: DeviceMemory | None = None
        self._constants: DeviceMemory | None = None
        self._places: dict[int, int] = {}
        self._faults: DeviceMemory | None = None
        most = max((step.checks for step in kernel_calls(program.steps)), default=0)
        self._noted = (ctypes.c_int64 * max(1, 2 * most))()
        self._recorder = device if isinstance(device, RecordingDevice) else None
        self._parts = program_parts(program.steps) if self._recorder else None
        self._recorded: dict[tuple[int, ...], RecordedCall] = {}

    def run(self, given: Sequence[int]) -> None:
        """One call with the entry point's arguments."""
        values, at = self._begun(given)
        if self._parts is None or self._recorder is None:
            self._steps(self._program.steps, values, at)
        else:
            self._run_recorded(self._recorder, self._parts, values, at)
        self._device.synchronize()

    def _run_recorded(
        self, device: RecordingDevice, parts: ProgramParts, values: Values, at: _Mirror
    ) -> None:
        """Record the device's work with the first call of its sizes and places."""
        self._steps(parts.before, values, at)
        key = tuple(values.values())
        call = self._recorded.get(key)
        if call is None:
            call = self._record(device, parts.inside, values, at)
        if call is None:
            self._steps(parts.inside, values, at)
        else:
            self._recorded[key] = call
            self._replay(call, at)
        self._steps(parts.after, values, at)

    def _record(
        self, device: RecordingDevice, steps: Sequence[Step], values: Values, at: _Mirror
    ) -> RecordedCall | None:
        """None, now and ever, if the device cannot be told once."""
        size = fault_bytes(steps, lambda trips: self._number(trips, values))
        faults = FaultPlaces(device.allocate(size)) if size else None
        given = replace(at, faults=faults)
        try:
            work = device.record(lambda: self._steps(steps, values, given))
        except RecordingError:
            self._parts = None
            return None
        if len(self._recorded) >= MOST_RECORDED:
            self._recorded.clear()
        return RecordedCall(work, faults)

    def _replay(self, call: RecordedCall, at: _Mirror) -> None:
        if (faults := call.faults) is None:
            return call.work.run()
        noted = (ctypes.c_int64 * (faults.size // 8))()
        where = ctypes.addressof(noted)
        self._device.upload(faults.memory, 0, where, faults.size)
        call.work.run()
        self._device.download(faults.memory, 0, where, faults.size)
        for step, offset in faults.launches:
            self._end_if_noted(step, at, noted, offset // 8)

    def profiled(self, given: Sequence[int]) -> Iterator[int]:
        """The nanoseconds of each step of a call: by the device's clock, if it has one for what the
        step does there, else by the host's."""
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
                    self._steps((step,), values, mirror)
                    self._device.synchronize()
                taken = perf_counter_ns() - start
                timed = clock.seconds() if clock and is_the_devices(step) else 0.0
                yield round(timed * 1e9) or taken
        finally:
            if clock:
                clock.keep_times(False)

    def _begun(self, given: Sequence[int]) -> tuple[Values, _Mirror]:
        """Numbers and memory of a call."""
        values = self._values(given[4])
        try:
            return values, self._mirror(given, values)
        except OutOfDeviceMemoryError as error:
            raise self._too_large(values, error) from error

    def _values(self, sizes: int) -> Values:
        names = self._program.sizes
        known = (ctypes.c_int64 * max(1, len(names))).from_address(sizes) if names else ()
        values = dict(zip(names, known, strict=False))
        for name in self._manifest.sizes:
            values.pop(name, None)
        for name, value in self._program.definitions:
            values[name] = self._number(value, values)
        return values

    def _mirror(self, given: Sequence[int], values: Values) -> _Mirror:
        """Both sides' memory, the device's own made anew if it is too small."""
        self._bring_constants(given[2])
        starts: dict[str, list[int]] = {"input": [], "output": []}
        end = _aligned(self._number(self._program.arena, values))
        for kind, sizes in (("input", self._program.inputs), ("output", self._program.outputs)):
            for size in sizes:
                starts[kind].append(end)
                end += _aligned(self._number(size, values))
        if self._memory is None or self._memory.size < end:
            self._recorded.clear()
            self._memory = None
            self._memory = self._device.allocate(end + ALIGNMENT)
        tables = {"input": given[0], "output": given[1], "constant": given[2]}
        host = given[6] if len(given) > 6 else 0
        return _Mirror(tables, given[3], host, self._memory, starts, values, given[4])

    def _bring_constants(self, table: int) -> None:
        """The constants come to the device with the first call, equal ones once."""
        specs = [(n, spec) for n, spec in enumerate(self._manifest.constants) if spec.size]
        if self._constants is not None or not specs:
            return
        end = 0
        places: dict[int, int] = {}
        for _, spec in specs:
            if spec.offset not in places:
                places[spec.offset] = end
                end += _aligned(spec.size)
        constants = self._device.allocate(end)
        for number, spec in {spec.offset: (n, spec) for n, spec in specs}.values():
            self._device.upload(constants, places[spec.offset], _at(table, number), spec.size)
        self._constants, self._places = constants, places

    def _too_large(self, values: Values, error: OutOfDeviceMemoryError) -> RunError:
        ends = (*self._program.inputs, *self._program.outputs)
        constants = block_size(self._manifest.constants)
        arena = self._number(self._program.arena, values)
        wanted = constants + arena + sum(self._number(size, values) for size in ends)
        parts = f"{constants:,} of weights, {arena:,} between kernels"
        return error.of_model(self._manifest.name, wanted, parts, self._device.name)

    def _steps(self, steps: Sequence[Step], values: Values, at: _Mirror) -> None:
        for step in steps:
            match step:
                case KernelCall():
                    self._launch(step, values, at)
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
                    self._steps(step.then if held.value else step.other, dict(values), at)
                case RunLoop():
                    self._loop(step, values, at)

    def _launch(self, step: KernelCall, values: Values, at: _Mirror) -> None:
        sizes = [self._number(size, values) for size in step.sizes]
        if step.grid is None:
            self._call(step, sizes, values, at)
            return
        x, y, z = (self._number(extent, values) for extent in step.grid)
        if x <= 0 or y <= 0 or z <= 0:
            return
        buffers = [self._buffer(place, values, at) for place in step.arguments]
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
        self._end_if_noted(step, at, self._noted)

    def _call(self, step: KernelCall, sizes: Sequence[int], values: Values, at: _Mirror) -> None:
        """A function of the host's."""
        function = self._functions.get(step.kernel)
        if function is None:
            assert self._host is not None
            function = self._functions[step.kernel] = _KERNEL(self._host.address(step.kernel))
        places = (self._address(place, values, at) for place in step.arguments)
        ctypes.memset(self._noted, 0, 16 * step.checks)
        noted = [ctypes.c_void_p(ctypes.addressof(self._noted))] if step.checks else []
        given = (*map(ctypes.c_void_p, places), *map(ctypes.c_int64, sizes), *noted)
        function(*given, ctypes.c_void_p(0))  # without threads
        self._end_if_noted(step, at, self._noted)

    def _end_if_noted(
        self, step: KernelCall, at: _Mirror, noted: ctypes.Array[ctypes.c_int64], first: int = 0
    ) -> None:
        for number in range(step.checks):
            if noted[first + 2 * number]:
                ctypes.c_int64.from_address(at.arena).value = noted[first + 2 * number + 1]
                raise _Ended(step.status + number)

    def _move(self, step: MoveTensor, values: Values, at: _Mirror) -> None:
        size = self._number(step.place.size, values)
        if size <= 0:
            return
        memory, offset = self._buffer(step.place, values, at)
        move = self._device.upload if step.upload else self._device.download
        move(memory, offset, self._address(step.place, values, at), size)

    def _copy(self, step: CopyMemory, values: Values, at: _Mirror) -> None:
        size = self._number(step.target.size, values)
        if size <= 0:
            return
        target, source = (self._buffer(p, values, at) for p in (step.target, step.source))
        if target != source:
            self._device.copy(*target, *source, size)
        if step.both:
            to = self._address(step.target, values, at)
            ctypes.memmove(to, self._address(step.source, values, at), size)

    def _read(self, step: ReadNumbers, values: Values, at: _Mirror) -> None:
        address = self._address(step.place, values, at) if step.symbols else 0
        for number, name in enumerate(step.symbols):
            values[name] = _at(address, number)
            position = self._program.sizes.index(name)
            ctypes.c_int64.from_address(at.sizes + 8 * position).value = values[name]
        for condition, status in step.conditions:
            if not condition.holds(values):
                raise _Ended(status)

    def _allocate(self, step: AllocateBoth, values: Values, at: _Mirror) -> None:
        size = self._number(step.size, values)
        table = (ctypes.c_void_p * 2).from_address(at.host)
        address = _ALLOCATE(table[0] or 0)(table[1], step.number, size)
        if not address:
            raise _Ended(OUT_OF_MEMORY)
        at.segments[step.number] = address, self._device.allocate(max(1, size))

    def _loop(self, step: RunLoop, values: Values, at: _Mirror) -> None:
        trips = None if step.trips is None else self._number(step.trips, values)
        for number in count() if trips is None else range(trips):
            inside = {**values, step.counter: number}
            if step.condition is not None and not self._holds(step.condition, inside, at):
                return
            self._steps(step.body, inside, at)

    def _holds(self, place: DevicePlace, values: Values, at: _Mirror) -> bool:
        """A bool on the device."""
        found = ctypes.c_uint8()
        memory, offset = self._buffer(place, values, at)
        self._device.download(memory, offset, ctypes.addressof(found), 1)
        return bool(found.value)

    def _address(self, place: DevicePlace, values: Values, at: _Mirror) -> int:
        """Where a tensor is on the host."""
        offset = self._number(place.offset, values)
        match place.kind:
            case "arena":
                return at.arena + offset
            case "segment":
                return at.segments[place.number][0] + offset
            case _:
                return _at(at.tables[place.kind], place.number) + offset

    def _buffer(self, place: DevicePlace, values: Values, at: _Mirror) -> tuple[DeviceMemory, int]:
        """Where a tensor is on the device."""
        offset = self._number(place.offset, values)
        match place.kind:
            case "arena":
                return at.memory, offset
            case "segment":
                return at.segments[place.number][1], offset
            case "constant":
                start = self._places.get(self._manifest.constants[place.number].offset, 0)
                return self._constants or at.memory, start + offset
            case _:
                return at.memory, at.starts[place.kind][place.number] + offset

    def _number(self, index: Index, values: Mapping[str, int]) -> int:
        if isinstance(index, int):
            return index
        function = self._compiled.get(index)
        if function is None:
            function = self._compiled[index] = compile_index(index)
        return function(values)


def _aligned(size: int) -> int:
    return -(-max(size, 0) // ALIGNMENT) * ALIGNMENT


def _at(address: int, number: int) -> int:
    return ctypes.c_int64.from_address(address + 8 * number).value
