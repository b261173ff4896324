"""OpenCL as a device, by ``pyopencl`` (the extra ``opencl``) and the installed drivers."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl

from modelcc.runtime.devices.device import DeviceMemory, Groups, OutOfDeviceMemoryError
from modelcc.runtime.devices.opencl_facts import OpenclFacts
from modelcc.runtime.errors import LoadError, RunError

STANDARD = "-cl-std=CL1.2"
SPIRV = (0x07230203).to_bytes(4, "little")
"""The magic number of SPIR-V modules."""

TAKES_SPIRV = "cl_khr_il_program"
_OUT_OF_MEMORY = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "INVALID_BUFFER_SIZE")
_REMEMBERED = 4096
"""Sub-buffers that are kept."""


def find_devices() -> list[cl.Device]:
    """Devices of all platforms, in the order of the drivers; LoadError if there is none."""
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise LoadError(f"OpenCL finds no platform ({error}); {_INSTALL}") from error
    if not found:
        raise LoadError(f"no platform of OpenCL has a device; {_INSTALL}")
    return found


_INSTALL = "install a driver: the one of your GPU, or pocl-opencl-icd for the processor"


def find_device(index: int) -> cl.Device:
    """Device number ``index``; LoadError lists those that there are."""
    found = find_devices()
    if not 0 <= index < len(found):
        names = ", ".join(f"opencl:{n} is {d.name.strip()}" for n, d in enumerate(found))
        raise LoadError(f"OpenCL has no device {index}: {names}")
    return found[index]


def open_device(index: int) -> OpenclDevice:
    """Device number ``index``; LoadError lists those that there are."""
    return OpenclDevice(find_device(index))


def device_facts(index: int) -> OpenclFacts:
    """Of device number ``index``; LoadError if there is none."""
    device = find_device(index)
    return OpenclFacts(
        str(device.vendor),
        frozenset(str(device.extensions).split()),
        bool(device.type & cl.device_type.GPU),
        bool(device.host_unified_memory),
        int(device.max_compute_units),
        int(device.global_mem_size),
        int(device.max_work_group_size),
        int(device.local_mem_size),
    )


def build_program(context: cl.Context, code: bytes) -> cl.Program:
    """The program of OpenCL C or SPIR-V; ``cl.Error`` with the message of the driver's compiler.

    Some compilers report success for each kernel; that is no warning.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        if code.startswith(SPIRV):
            return cl.Program(context, code).build()
        return cl.Program(context, code.decode()).build([STANDARD])


@dataclass(frozen=True, eq=False)
class OpenclBuffer:
    """An OpenCL buffer with its bytes, and its sub-buffers."""

    own: cl.Buffer
    size: int
    parts: dict[int, cl.Buffer] = field(default_factory=dict[int, cl.Buffer])

    def part(self, offset: int) -> cl.Buffer:
        """The sub-buffer at an offset; the whole buffer for empty tensors at its end."""
        if not 0 < offset < self.size:
            return self.own
        found = self.parts.get(offset)
        if found is None:
            if len(self.parts) >= _REMEMBERED:
                self.parts.clear()
            found = self.parts[offset] = self.own.get_sub_region(offset, self.size - offset)
        return found


class OpenclDevice:
    """A device with one in-order queue."""

    def __init__(self, device: cl.Device) -> None:
        self._device = device
        try:
            self._context = cl.Context([device])
            self._queue = cl.CommandQueue(self._context)
        except cl.Error as error:
            raise LoadError(f"{self.name} does not start: {error}") from error
        self._kernels: dict[str, tuple[cl.Kernel, Groups]] = {}
        self._timed: list[cl.Event] | None = None

    @property
    def name(self) -> str:
        """Its driver's name for it."""
        return str(self._device.name).strip()

    @property
    def memory(self) -> int:
        """Bytes that it has in all."""
        return int(self._device.global_mem_size)

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Compile OpenCL C or SPIR-V."""
        most = int(self._device.max_work_group_size)
        for name, (x, y, z) in kernels.items():
            if x * y * z > most:
                raise LoadError(
                    f"kernel {name} has groups of {x * y * z} threads, and {self.name} takes "
                    f"{most}; compile the model on the machine that has this device"
                )
        if not kernels:
            return
        if code.startswith(SPIRV) and TAKES_SPIRV not in str(self._device.extensions).split():
            raise LoadError(
                f"the model's kernels are SPIR-V, which {self.name} does not take; compile it for "
                "opencl:c, or on the machine that has this device"
            )
        try:
            program = build_program(self._context, code)
            self._kernels = {n: (cl.Kernel(program, n), size) for n, size in kernels.items()}
        except cl.Error as error:
            raise LoadError(
                f"the compiler of {self.name} refuses the model's kernels: {error}; "
                "another driver, or --target native, would run it"
            ) from error

    def allocate(self, size: int) -> OpenclBuffer:
        """A buffer."""
        if size > self.memory:
            raise OutOfDeviceMemoryError(self.name, size, self.memory)
        try:
            buffer = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(1, size))
        except cl.Error as error:
            if any(word in str(error) for word in _OUT_OF_MEMORY):
                raise OutOfDeviceMemoryError(self.name, size, self.memory) from error
            raise self._lost(error) from error
        return OpenclBuffer(buffer, size)

    def upload(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copies from the host, which may overwrite the source at once."""
        try:
            host, to = _host(address, size), _buffer(memory)
            self._note(cl.enqueue_copy(self._queue, to, host, dst_offset=offset))
        except cl.Error as error:
            raise self._lost(error) from error

    def download(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copy to the host."""
        try:
            host, source = _host(address, size), _buffer(memory)
            self._note(cl.enqueue_copy(self._queue, host, source, src_offset=offset))
        except cl.Error as error:
            raise self._lost(error) from error

    def copy(
        self, to: DeviceMemory, to_offset: int, source: DeviceMemory, offset: int, size: int
    ) -> None:
        """Copies within the device; overlapping ranges through another buffer."""
        ends = _buffer(to), _buffer(source)
        try:
            if ends[0] is ends[1] and abs(to_offset - offset) < size:
                between = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size)
                self._note(
                    cl.enqueue_copy(
                        self._queue, between, ends[1], src_offset=offset, byte_count=size
                    )
                )
                ends, offset = (ends[0], between), 0
            copied = cl.enqueue_copy(
                self._queue, *ends, dst_offset=to_offset, src_offset=offset, byte_count=size
            )
            self._note(copied)
        except cl.Error as error:
            raise self._lost(error) from error

    def launch(
        self,
        kernel: str,
        buffers: Sequence[tuple[DeviceMemory, int]],
        sizes: Sequence[int],
        grid: Groups,
    ) -> None:
        """Run a kernel."""
        found, size = self._kernels[kernel]
        total = tuple(groups * threads for groups, threads in zip(grid, size, strict=True))
        try:
            places = (_opencl(memory).part(offset) for memory, offset in buffers)
            found.set_args(*places, *map(np.int64, sizes))
            self._note(cl.enqueue_nd_range_kernel(self._queue, found, total, size))
        except cl.Error as error:
            raise self._lost(error) from error

    def synchronize(self) -> None:
        """Wait for all work."""
        try:
            self._queue.finish()
        except cl.Error as error:
            raise self._lost(error) from error

    def keep_times(self, on: bool) -> None:
        """Times commands."""
        timing = cl.command_queue_properties.PROFILING_ENABLE
        self.synchronize()
        self._queue = (
            cl.CommandQueue(self._context, properties=timing)
            if on
            else cl.CommandQueue(self._context)
        )
        self._timed = [] if on else None

    def seconds(self) -> float:
        """The sum of their times."""
        done, self._timed = self._timed or [], []
        return sum(event.profile.end - event.profile.start for event in done) * 1e-9

    def _note(self, event: cl.Event) -> None:
        if self._timed is not None:
            self._timed.append(event)

    def _lost(self, error: cl.Error) -> RunError:
        return RunError(
            f"{self.name} did not do its work: {error}; load the model again, and if that fails, "
            "restart the driver"
        )


def _opencl(memory: DeviceMemory) -> OpenclBuffer:
    assert isinstance(memory, OpenclBuffer)
    return memory


def _buffer(memory: DeviceMemory) -> cl.Buffer:
    return _opencl(memory).own


def _host(address: int, size: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
