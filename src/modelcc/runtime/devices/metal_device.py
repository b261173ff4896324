"""Metal as a device, by PyObjC (the extra ``metal``), on macOS.

Memory is shared by processor and GPU, so that the processor copies bytes when the GPU has done all
earlier work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from ctypes import addressof, c_uint8, memmove
from dataclasses import dataclass
from importlib import import_module
from math import prod
from struct import pack
from typing import Any

from modelcc.runtime.devices.device import DeviceMemory, Groups, OutOfDeviceMemoryError
from modelcc.runtime.errors import LoadError, RunError

_WAITING = 64
"""Launches per command buffer."""

_ALIGNED = 4
"""Granularity of the GPU's copies in bytes (``MTLBlitCommandEncoder``, on macOS)."""


@dataclass(frozen=True)
class MetalApi:
    """PyObjC's module ``Metal``, and its pools of temporary objects (``objc.autorelease_pool``)."""

    metal: Any
    pool: Callable[[], AbstractContextManager[None]]


def metal_api(platform: str) -> MetalApi:
    """The installed API; LoadError says what to do if there is none."""
    if platform != "darwin":
        raise LoadError(
            "Metal is a part of macOS, and this is another system; compile the model for "
            "webgpu, opencl or native"
        )
    try:
        return MetalApi(import_module("Metal"), import_module("objc").autorelease_pool)
    except ImportError as error:
        raise LoadError(
            f"this model runs by metal, and that needs a package: {error}; "
            "pip install 'modelcc[metal]'"
        ) from error


def open_device(index: int) -> MetalDevice:
    """Device number ``index``, the system's own one first; LoadError lists those that there are."""
    return device_of(metal_api(sys.platform), index)


def device_of(api: MetalApi, index: int) -> MetalDevice:
    """Device number ``index`` of those that ``api`` finds; LoadError."""
    with api.pool():
        found = _devices(api.metal)
        if not found:
            raise LoadError(
                "Metal finds no GPU; virtual machines and processes without a login may have none"
            )
        if not 0 <= index < len(found):
            names = ", ".join(f"metal:{n} is {d.name()}" for n, d in enumerate(found))
            raise LoadError(f"Metal has no device {index}: {names}")
        return MetalDevice(api, found[index])


def _devices(metal: Any) -> list[Any]:
    first = metal.MTLCreateSystemDefaultDevice()
    rest = list(metal.MTLCopyAllDevices() or ())
    if first is None:
        return rest
    return [first, *(d for d in rest if d.registryID() != first.registryID())]


@dataclass(frozen=True, eq=False)
class MetalMemory:
    """A buffer of ``size`` bytes, at the processor's ``address``."""

    buffer: Any
    size: int
    address: int


class MetalDevice:
    """A device with one queue; launches are batched until their results are needed."""

    def __init__(self, api: MetalApi, device: Any) -> None:
        self._api = api
        self._device = device
        self._name = str(device.name())
        self._queue = device.newCommandQueue()
        if self._queue is None:
            raise LoadError(f"{self._name} does not start: it gives no queue; restart the system")
        self._kernels: dict[str, tuple[Any, Any]] = {}
        self._numbers: dict[int, bytes] = {}
        self._commands: Any = None
        self._encoder: Any = None
        self._bound: dict[int, tuple[MetalMemory, int]] = {}
        self._waiting = 0
        self._handed: list[Any] = []
        self._seconds: float | None = None

    @property
    def name(self) -> str:
        """Its driver's name for it."""
        return self._name

    @property
    def memory(self) -> int:
        """The recommended limit of memory in use, of memory that it shares."""
        return int(self._device.recommendedMaxWorkingSetSize())

    # --- kernels

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Compiles MSL, without fast math."""
        if not kernels:
            return
        with self._api.pool():
            options = self._options()
            text = code.decode()
            library, error = self._device.newLibraryWithSource_options_error_(text, options, None)
            if library is None:  # else an error is a warning
                raise LoadError(
                    f"the compiler of {self._name} refuses the model's kernels: {_words(error)}; "
                    "a newer macOS, or --target native, would run it"
                )
            for name, size in kernels.items():
                self._kernels[name] = self._pipeline(library, name, size)

    def _options(self) -> Any:
        """Since macOS 15 there are math modes, before that fast math or not."""
        options = self._api.metal.MTLCompileOptions.alloc().init()
        if options.respondsToSelector_("setMathMode:"):
            options.setMathMode_(self._api.metal.MTLMathModeSafe)
        else:
            options.setFastMathEnabled_(False)
        return options

    def _pipeline(self, library: Any, name: str, size: Groups) -> tuple[Any, Any]:
        """A kernel with the threads of a group; LoadError if that is too many."""
        function = library.newFunctionWithName_(name)
        if function is None:
            raise LoadError(f"its kernels lack {name}; compile it again")
        state, error = self._device.newComputePipelineStateWithFunction_error_(function, None)
        if state is None:
            raise LoadError(
                f"{self._name} does not take kernel {name}: {_words(error)}; --target native would "
                "run the model"
            )
        most = int(state.maxTotalThreadsPerThreadgroup())
        if prod(size) > most:
            raise LoadError(
                f"kernel {name} has groups of {prod(size)} threads, and {self._name} takes {most}; "
                "--target webgpu or native would run the model"
            )
        return state, self._api.metal.MTLSizeMake(*size)

    # --- memory

    def allocate(self, size: int) -> MetalMemory:
        """A buffer that the processor can access, too."""
        size = _whole(max(size, 1))
        with self._api.pool():
            self._check_room(size)
            shared = self._api.metal.MTLResourceStorageModeShared
            buffer = self._device.newBufferWithLength_options_(size, shared)
            if buffer is None:
                raise OutOfDeviceMemoryError(self._name, size, self.memory)
            view = buffer.contents().as_buffer(size)
        return MetalMemory(buffer, size, _address(view))

    def _check_room(self, size: int) -> None:
        most = int(self._device.maxBufferLength())
        if size > most:
            raise OutOfDeviceMemoryError(f"{self._name} in one piece", size, most)
        free = self.memory - int(self._device.currentAllocatedSize())
        if size > free:
            raise OutOfDeviceMemoryError(self._name, size, self.memory, max(free, 0))

    def upload(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copies from the host, which may overwrite the source at once."""
        if size:
            self.synchronize()
            memmove(_metal(memory).address + offset, address, size)

    def download(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copies to the host, after all launches."""
        if size:
            self.synchronize()
            memmove(address, _metal(memory).address + offset, size)

    def copy(
        self, to: DeviceMemory, to_offset: int, source: DeviceMemory, offset: int, size: int
    ) -> None:
        """Copies within the device; within a buffer through another one."""
        if not size:
            return
        size = _whole(size)
        with self._working():
            self._end_encoder()
            encoder = self._begun().blitCommandEncoder()
            ends = _metal(source).buffer, offset
            if to is source:
                between = self.allocate(size).buffer
                _copy(encoder, *ends, between, 0, size)
                ends = between, 0
            _copy(encoder, *ends, _metal(to).buffer, to_offset, size)
            encoder.endEncoding()
            self._hand_over_if_many()

    # --- work

    def launch(
        self,
        kernel: str,
        buffers: Sequence[tuple[DeviceMemory, int]],
        sizes: Sequence[int],
        grid: Groups,
    ) -> None:
        """Run a kernel."""
        state, threads = self._kernels[kernel]
        with self._working():
            encoder = self._computing()
            encoder.setComputePipelineState_(state)
            for number, (memory, offset) in enumerate(buffers):
                self._bind(encoder, number, _metal(memory), offset)
            for number, value in enumerate(sizes, len(buffers)):
                self._bound.pop(number, None)
                encoder.setBytes_length_atIndex_(self._number(value), 8, number)
            groups = self._api.metal.MTLSizeMake(*grid)
            encoder.dispatchThreadgroups_threadsPerThreadgroup_(groups, threads)
            self._hand_over_if_many()

    def _bind(self, encoder: Any, number: int, memory: MetalMemory, offset: int) -> None:
        """Binds an argument, unless the previous launch had it, as with most of them."""
        if self._bound.get(number) != (memory, offset):
            encoder.setBuffer_offset_atIndex_(memory.buffer, offset, number)
            self._bound[number] = memory, offset

    def _number(self, value: int) -> bytes:
        found = self._numbers.get(value)
        if found is None:
            if len(self._numbers) >= 4096:
                self._numbers.clear()
            found = self._numbers[value] = pack("<q", value)
        return found

    def synchronize(self) -> None:
        """Wait for all work."""
        if self._commands is None and not self._handed:
            return
        with self._working():
            self._hand_over()
            for commands in self._handed:
                commands.waitUntilCompleted()
                if commands.status() == self._api.metal.MTLCommandBufferStatusError:
                    raise RunError(self._failed(_words(commands.error())))
            if self._seconds is not None:
                self._seconds += sum(c.GPUEndTime() - c.GPUStartTime() for c in self._handed)
            self._handed.clear()

    def keep_times(self, on: bool) -> None:
        """Times command buffers."""
        self.synchronize()
        self._seconds = 0.0 if on else None

    def seconds(self) -> float:
        """The sum of their times."""
        taken = self._seconds or 0.0
        if self._seconds is not None:
            self._seconds = 0.0
        return taken

    @contextmanager
    def _working(self) -> Generator[None]:
        """A failure drops the failed work, and all pending work."""
        try:
            with self._api.pool():
                yield
        except BaseException:
            self._end_encoder()
            for commands in self._handed:  # their memory may be reused then
                commands.waitUntilCompleted()
            self._handed.clear()
            self._commands, self._waiting = None, 0
            raise

    def _failed(self, words: str) -> str:
        return (
            f"{self._name} did not do its work: {words}; load the model again, and if that fails, "
            "restart the system"
        )

    def _begun(self) -> Any:
        """The current command buffer."""
        if self._commands is None:
            self._commands = self._queue.commandBuffer()
            if self._commands is None:
                raise RunError(self._failed("its queue takes no commands"))
        return self._commands

    def _computing(self) -> Any:
        """An encoder whose launches run one after the other."""
        if self._encoder is None:
            self._encoder = self._begun().computeCommandEncoder()
            if self._encoder is None:
                raise RunError(self._failed("it takes no kernels"))
        return self._encoder

    def _end_encoder(self) -> None:
        if self._encoder is not None:
            self._encoder.endEncoding()
            self._encoder = None
            self._bound.clear()

    def _hand_over_if_many(self) -> None:
        self._waiting += 1
        if self._waiting >= _WAITING:
            self._hand_over()

    def _hand_over(self) -> None:
        self._end_encoder()
        if self._commands is not None:
            self._commands.commit()
            self._handed.append(self._commands)
            self._commands, self._waiting = None, 0


def _copy(encoder: Any, source: Any, offset: int, to: Any, to_offset: int, size: int) -> None:
    encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
        source, offset, to, to_offset, size
    )


def _words(error: Any) -> str:
    """The message of an ``NSError``."""
    return "it does not say why" if error is None else str(error.localizedDescription())


def _metal(memory: DeviceMemory) -> MetalMemory:
    assert isinstance(memory, MetalMemory)
    return memory


def _whole(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _address(view: memoryview) -> int:
    """The address of memory that Python sees."""
    return addressof(c_uint8.from_buffer(view))
