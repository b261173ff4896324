"""The runtime's interface to accelerators, and the devices that it knows.

A device is a plug-in: a function ``(index) -> Device`` in one file.  Third parties add devices by
the entry point group ``modelcc.devices``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Protocol, cast, runtime_checkable

from modelcc.artifact.manifest import LibrarySpec
from modelcc.runtime.errors import LoadError, RunError

GROUP = "modelcc.devices"

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        "opencl": "modelcc.runtime.devices.opencl_device:open_device",
        "cuda": "modelcc.runtime.streams.cuda_device:open_device",
        "amdgpu": "modelcc.runtime.streams.hip_device:open_device",
        "webgpu": "modelcc.runtime.devices.webgpu_device:open_device",
        "metal": "modelcc.runtime.devices.metal_device:open_device",
    }
)
"""Imported on demand, as each needs a package of its own."""

Groups = tuple[int, int, int]
"""Extents in three dimensions, the first one varying fastest."""


class DeviceMemory(Protocol):
    """Memory of a device, for as long as this object lives."""

    @property
    def size(self) -> int:
        """Its bytes."""
        ...


class Device(Protocol):
    """One accelerator, with the code of one model.  Work is done in the order in which it is
    issued; data of :meth:`download` have arrived when it returns."""

    @property
    def name(self) -> str:
        """Its driver's name for it."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that it has in all."""
        ...

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Loads ``kernels``, with the threads of a group of each; LoadError with the message of its
        compiler if it rejects them."""

    def allocate(self, size: int) -> DeviceMemory:
        """Memory of at least ``size`` bytes, aligned to 256; OutOfDeviceMemoryError."""
        ...

    def upload(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copy ``size`` bytes from the host's ``address``."""

    def download(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copy ``size`` bytes to the host's ``address``."""

    def copy(
        self, to: DeviceMemory, to_offset: int, source: DeviceMemory, offset: int, size: int
    ) -> None:
        """Copy ``size`` bytes within the device."""

    def launch(
        self,
        kernel: str,
        buffers: Sequence[tuple[DeviceMemory, int]],
        sizes: Sequence[int],
        grid: Groups,
    ) -> None:
        """Run ``kernel`` by ``grid`` groups on memory at offsets; none of these extents is 0."""

    def synchronize(self) -> None:
        """Waits for all issued work; RunError if the device has failed."""


@runtime_checkable
class TimedDevice(Device, Protocol):
    """A device that times its work by its own clock."""

    def keep_times(self, on: bool) -> None:
        """Starts or stops timing."""

    def seconds(self) -> float:
        """Busy time since the last call of this function, all work being done; 0 without timing."""
        ...


class LateCopy(Protocol):
    """An asynchronous copy from a device to the host."""

    def has_come(self) -> bool:
        """Whether it has arrived, without waiting; RunError if the device has failed."""
        ...

    def take(self) -> bytes:
        """The bytes, once they have arrived; only once."""
        ...

    def precede(self, stream: int) -> None:
        """Work issued to another library's ``stream`` from now on comes after the copy, and all
        earlier work of the device."""


@runtime_checkable
class PointerDevice(Device, Protocol):
    """A device whose memory has addresses, which it shares with other libraries; these number
    devices and streams as it does."""

    @property
    def index(self) -> int:
        """Its number."""
        ...

    @property
    def dlpack(self) -> int:
        """Its device type in DLPack."""
        ...

    @property
    def stream(self) -> int:
        """Its stream, for others that make it wait for their work."""
        ...

    @property
    def default_stream(self) -> int:
        """The stream of work that names none."""
        ...

    def address(self, memory: DeviceMemory) -> int:
        """The address of memory."""
        ...

    def foreign(self, address: int, size: int, where: str) -> DeviceMemory:
        """Memory that the caller owns, and keeps; InputError about ``where`` if it is not this
        device's."""
        ...

    def lent(self, address: int, size: int) -> DeviceMemory:
        """As :meth:`foreign`, where the caller guarantees it."""
        ...

    def wait_for(self, stream: int) -> None:
        """Work that is issued from now on comes after what is in another library's ``stream``."""

    def precede(self, stream: int) -> None:
        """Work issued to another library's ``stream`` from now on comes after all work so far."""

    def download_late(self, memory: DeviceMemory, offset: int, size: int) -> LateCopy:
        """Copies to the host after all work so far, asynchronously."""
        ...

    def users(self, memory: DeviceMemory) -> set[int]:
        """The streams that memory is shared with, to be cleared by whoever waits for them."""
        ...

    def share(self, memory: DeviceMemory, stream: int) -> None:
        """Freed memory is not reused before ``stream`` is done with it."""


@runtime_checkable
class LibraryDevice(Device, Protocol):
    """A device whose vendor's libraries can be called on its memory."""

    def use(self, library: LibrarySpec) -> None:
        """Opens a library and initialises it; LoadError, OutOfDeviceMemoryError."""

    def call(
        self,
        library: str,
        elements: Sequence[str],
        buffers: Sequence[tuple[DeviceMemory, int]],
        numbers: Sequence[int],
    ) -> None:
        """Issues a library's computation on elements of these types at offsets of memory."""


class Recording(Protocol):
    """Recorded work of a device (a graph), to be replayed."""

    def run(self) -> None:
        """Issues all of it."""


@runtime_checkable
class RecordingDevice(Device, Protocol):
    """A device that can record work, as CUDA graphs do."""

    def record(self, work: Callable[[], None]) -> Recording:
        """The launches, copies and clearing that ``work`` issues, none of which is done yet;
        RecordingError if it issues anything else."""
        ...

    def clear(self, memory: DeviceMemory, offset: int, size: int) -> None:
        """Set ``size`` bytes to 0."""


@runtime_checkable
class LeavableDevice(Device, Protocol):
    """A device that need not be waited for: after ``timeout`` seconds, TookTooLongError."""

    timeout: float | None


@runtime_checkable
class OverlappingDevice(Device, Protocol):
    """A device whose kernels may start before the previous one has ended, if ``overlap`` is set
    when they are recorded."""

    overlap: bool


class RecordingError(RunError):
    """Work that cannot be recorded."""


class TookTooLongError(RunError):
    """A device has not finished in the time that it was given."""

    def __init__(self, device: str, seconds: float) -> None:
        super().__init__(
            f"{device} has not finished within {seconds:g} s, and goes on: what this call computes "
            "is lost, and the model has to be loaded again; a greater timeout would help"
        )


class OutOfDeviceMemoryError(RunError):
    """A device does not have the requested bytes; ``free`` are left (None: unknown)."""

    def __init__(self, device: str, size: int, memory: int, free: int | None = None) -> None:
        left = "" if free is None else f", of which {free:,} are free"
        super().__init__(f"{device} gives no {size:,} bytes: it has {memory:,} in all{left}")
        self.size = size
        self.memory = memory
        self.free = free

    def of_model(self, name: str, wanted: int, parts: str, device: str) -> RunError:
        """The error for the model ``name``, which needs ``wanted`` bytes in all, by ``parts``."""
        there, lacking = self.memory, wanted
        if self.free is not None:
            there, lacking = self.free, self.size
        left = "" if self.free is None else f", of which {self.free:,} are free"
        short = (
            f"{lacking - there:,} are missing" if lacking > there else "others hold some of them"
        )
        return RunError(
            f"{name} needs {wanted:,} bytes of {device} ({parts}), which has {self.memory:,}{left}"
            f": {short}; a smaller batch, 16-bit weights or another device would help"
        )


def open_device(kind: str, index: int) -> Device:
    """Device number ``index`` of a ``kind``; LoadError says what to install."""
    make = KNOWN.get(kind)
    if make is None:
        point = next(iter(entry_points(group=GROUP, name=kind)), None)
        if point is None:
            raise LoadError(
                f"this model runs on a device of the kind {kind!r}, and nothing that is installed "
                f"runs it: modelcc itself has {', '.join(KNOWN)}, packages add others by entry "
                f"points {GROUP!r}"
            )
        return cast("Callable[[int], Device]", point.load())(index)
    module, function = make.split(":")
    try:
        loaded = import_module(module)
    except ImportError as error:
        raise LoadError(
            f"this model runs by {kind}, and that needs a package: {error}; "
            f"pip install 'modelcc[{kind}]'"
        ) from error
    return cast("Callable[[int], Device]", getattr(loaded, function))(index)
