"""What the runtime asks of an accelerator, whoever makes it, and which ones it knows.

A device is a plug: a function ``(index) -> Device`` in one file.  Third parties add devices by the
entry point group ``modelcc.devices``.
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
        "opencl": "modelcc.runtime.opencl_device:open_device",
        "cuda": "modelcc.runtime.cuda_device:open_device",
        "amdgpu": "modelcc.runtime.hip_device:open_device",
        "webgpu": "modelcc.runtime.webgpu_device:open_device",
        "metal": "modelcc.runtime.metal_device:open_device",
    }
)
"""Imported when they are asked for, since each needs a package of its own."""

Groups = tuple[int, int, int]
"""How many there are in each of three dimensions, the first one varying fastest."""


class DeviceMemory(Protocol):
    """Memory of a device, for as long as this object lives."""

    @property
    def size(self) -> int:
        """Its bytes."""
        ...


class Device(Protocol):
    """One accelerator, with the code of one model.  Work is done in the order in which it is asked
    for; what :meth:`download` has brought is there when it returns."""

    @property
    def name(self) -> str:
        """What its driver calls it."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that it has in all."""
        ...

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Make ``kernels``, with the threads of a group of each, ready; LoadError with the words
        of its compiler if it refuses them."""

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
        """Wait for all that was asked for; RunError if the device did not do it."""


@runtime_checkable
class TimedDevice(Device, Protocol):
    """A device that takes the time of what it does by its own clock."""

    def keep_times(self, on: bool) -> None:
        """Take times from now on, or no more."""

    def seconds(self) -> float:
        """What it has worked since it was asked last, all of which is done; 0 if it took no
        times."""
        ...


class LateCopy(Protocol):
    """Bytes on their way from a device to the host."""

    def has_come(self) -> bool:
        """Whether they are there, without waiting; RunError if the device has failed."""
        ...

    def take(self) -> bytes:
        """Those that have come, once."""
        ...

    def precede(self, stream: int) -> None:
        """What somebody else's ``stream`` is asked for from now on comes after them, and all that
        the device was asked for before."""


@runtime_checkable
class PointerDevice(Device, Protocol):
    """A device whose memory has addresses, by which other libraries use it and it theirs; they
    count devices and streams as it does."""

    @property
    def index(self) -> int:
        """Its number."""
        ...

    @property
    def dlpack(self) -> int:
        """The kind of its memory, as DLPack counts them."""
        ...

    @property
    def stream(self) -> int:
        """What it works in, for those who make it wait for their work."""
        ...

    @property
    def default_stream(self) -> int:
        """What work of those that name no stream is in."""
        ...

    def address(self, memory: DeviceMemory) -> int:
        """Where memory begins."""
        ...

    def foreign(self, address: int, size: int, where: str) -> DeviceMemory:
        """Memory that somebody else has, and keeps; InputError about ``where`` if it is not this
        device's."""
        ...

    def lent(self, address: int, size: int) -> DeviceMemory:
        """As :meth:`foreign`, where the caller vouches for it."""
        ...

    def wait_for(self, stream: int) -> None:
        """Work that is asked for from now on comes after what is in somebody else's ``stream``."""

    def precede(self, stream: int) -> None:
        """What somebody else's ``stream`` is asked for from now on comes after all work so far."""

    def download_late(self, memory: DeviceMemory, offset: int, size: int) -> LateCopy:
        """Copy to the host behind all work so far, with nobody waiting for it."""
        ...

    def users(self, memory: DeviceMemory) -> set[int]:
        """The streams that memory is shared with, to be cleared by whoever waits for them."""
        ...

    def share(self, memory: DeviceMemory, stream: int) -> None:
        """Memory that is given back is not used again before ``stream`` is done with it."""


@runtime_checkable
class LibraryDevice(Device, Protocol):
    """A device whose vendor's libraries can be called on its memory."""

    def use(self, library: LibrarySpec) -> None:
        """Open a library and make it ready; LoadError, OutOfDeviceMemoryError."""

    def call(
        self,
        library: str,
        elements: Sequence[str],
        buffers: Sequence[tuple[DeviceMemory, int]],
        numbers: Sequence[int],
    ) -> None:
        """Ask for what a library does with elements of these types at offsets of memory."""


class Recording(Protocol):
    """Work that a device does again and again."""

    def run(self) -> None:
        """Ask for all of it."""


@runtime_checkable
class RecordingDevice(Device, Protocol):
    """A device that is told once what to do each time."""

    def record(self, work: Callable[[], None]) -> Recording:
        """The launches, copies and clearing that ``work`` asks for, none of which is done yet;
        RecordingError if it asks for more."""
        ...

    def clear(self, memory: DeviceMemory, offset: int, size: int) -> None:
        """Set ``size`` bytes to 0."""


@runtime_checkable
class LeavableDevice(Device, Protocol):
    """A device that need not be waited for: after ``timeout`` seconds TookTooLongError."""

    timeout: float | None


@runtime_checkable
class OverlappingDevice(Device, Protocol):
    """A device whose kernels may begin before the one before has ended, if ``overlap`` says so
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
    """A device has not as many bytes as are asked for; so many are ``free`` (None: not known)."""

    def __init__(self, device: str, size: int, memory: int, free: int | None = None) -> None:
        left = "" if free is None else f", of which {free:,} are free"
        super().__init__(f"{device} gives no {size:,} bytes: it has {memory:,} in all{left}")
        self.size = size
        self.memory = memory
        self.free = free

    def of_model(self, name: str, wanted: int, parts: str, device: str) -> RunError:
        """The error for the model ``name``, which needs so many bytes in all, by ``parts``."""
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
