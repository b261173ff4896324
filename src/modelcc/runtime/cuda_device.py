"""NVIDIA GPUs as devices, by the driver's API through ``cuda-bindings`` (the extra ``cuda``).

All work of a device goes through a stream of its own; memory comes from the driver's pool, which
keeps what is given back for the next time.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter, sleep
from types import MappingProxyType
from typing import Any

from cuda.bindings import driver as cuda_driver

from modelcc.artifact.manifest import LibrarySpec
from modelcc.runtime.cublaslt import CublasLt
from modelcc.runtime.cuda_ahead import KERNELS_WAIT, LaunchesAhead
from modelcc.runtime.cuda_calls import CudaCalls
from modelcc.runtime.cuda_clock import FLUSHED, CudaClock
from modelcc.runtime.cuda_late import LateCopies
from modelcc.runtime.cuda_order import StreamOrder
from modelcc.runtime.cuda_staging import PinnedStage
from modelcc.runtime.cudnn import Cudnn
from modelcc.runtime.device import (
    DeviceMemory,
    Groups,
    LateCopy,
    OutOfDeviceMemoryError,
    RecordingError,
    TookTooLongError,
)
from modelcc.runtime.errors import InputError, LoadError, RunError
from modelcc.runtime.libraries import function_of, open_library
from modelcc.runtime.tensor_maps import KernelMaps
from modelcc.runtime.vendor_library import VendorLibrary

_LIBRARIES: Mapping[str, Callable[[Callable[[str], int]], VendorLibrary]] = MappingProxyType(
    {"cublaslt": CublasLt, "cudnn": Cudnn}
)
"""Libraries, each made of what gives the addresses of its functions."""

_SHARED_BYTES, _MAPS = "_shared_bytes", "_maps"
"""End names of what is beside a kernel: how much shared memory to launch it with, and of which
tensors it takes maps."""

_NAP = 0.0005
"""Seconds between two looks at work that must not take too long."""


def open_device(index: int) -> CudaDevice:
    """GPU number ``index``; LoadError tells how many there are."""
    return CudaDevice(cuda_driver, index)


class CudaMemory:
    """Memory of a GPU, given back when nobody has it any more."""

    def __init__(self, device: CudaDevice, address: Any, size: int) -> None:
        self._device = device
        self.address = int(address)
        self.size = size
        self.streams: set[int] = set()

    def __del__(self) -> None:
        self._device.free(self.address, self.streams)


class ForeignMemory:
    """Memory of a GPU that is somebody else's, who keeps it for as long as it is used."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size


class CudaGraph:
    """Recorded work, ready to be run again."""

    def __init__(self, device: CudaDevice, executable: Any) -> None:
        self._device = device
        self._executable = executable

    def run(self) -> None:
        """Ask for all of it."""
        self._device.replay(self._executable)

    def __del__(self) -> None:
        self._device.drop_graph(self._executable)


class CudaDevice:
    """A GPU with a stream; ``api`` are the functions of ``cuda.bindings.driver``."""

    def __init__(self, api: Any, index: int) -> None:
        self._api = api
        self._calls = calls = CudaCalls(api, f"GPU {index}")
        calls.begin()
        self.index = index
        self._device = self._chosen(index)
        calls.name = calls.load(api.cuDeviceGetName(256, self._device)).split(b"\0")[0].decode()
        calls.context = calls.load(api.cuDevicePrimaryCtxRetain(self._device))
        self._calls.enter()
        aside = int(api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._stream = calls.load(api.cuStreamCreate(aside))
        self._keep_memory()
        self._kernels: dict[str, tuple[Any, Groups, int]] = {}
        self._maps: dict[str, KernelMaps] = {}
        self._modules: list[Any] = []
        self._libraries: dict[str, VendorLibrary] = {}
        self._stage = PinnedStage(calls)
        self._recording = self._closed = False
        self._given_back: list[tuple[int, set[int]]] = []
        self._order, self._late = StreamOrder(calls), LateCopies(calls, self._stream)
        self._clock = CudaClock(calls, self._stream)
        self.timeout: float | None = None
        self._ahead, self.overlap = LaunchesAhead(calls), True

    def __del__(self) -> None:
        if sys.is_finalizing() or not hasattr(self, "_stage") or self._calls.lost:
            return  # what has failed, or is still at work, is left as it is
        self._closed = True
        self._api.cuCtxSetCurrent(self._calls.context)
        self._api.cuStreamSynchronize(self._stream)  # calls may have left it at work
        self._stage.free()
        self._late.free()
        self._order.free()
        for library in self._libraries.values():
            library.close()
        for module in self._modules:
            self._api.cuModuleUnload(module)
        self._api.cuStreamDestroy(self._stream)
        self._api.cuDevicePrimaryCtxRelease(self._device)

    def _chosen(self, index: int) -> Any:
        count = self._calls.load(self._api.cuDeviceGetCount())
        if not 0 <= index < count:
            raise LoadError(f"there is no GPU {index}: this machine has {count}, the first is 0")
        return self._calls.load(self._api.cuDeviceGet(index))

    def _keep_memory(self) -> None:
        """The pool keeps what is given back, until somebody lacks memory."""
        self._pool = self._calls.load(self._api.cuDeviceGetDefaultMemPool(self._device))
        threshold = self._api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        most = self._api.cuuint64_t((1 << 64) - 1)
        self._calls.load(self._api.cuMemPoolSetAttribute(self._pool, threshold, most))

    @property
    def name(self) -> str:
        """What its driver calls it."""
        return self._calls.name

    @property
    def memory(self) -> int:
        """Bytes that it has in all."""
        return int(self._calls.run(self._api.cuDeviceTotalMem(self._device)))

    @property
    def stream(self) -> int:
        """Its stream, for those who wait for it on the device."""
        return int(self._stream)

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Load machine code, or have PTX compiled by the driver."""
        if not kernels:
            return
        self._calls.enter()
        load = self._calls.load
        module = self._calls.module(code, self._chip())
        self._modules.append(module)
        self._ahead.have_waiting(self._beside(module, KERNELS_WAIT))
        self._kernels = {
            name: (load(self._api.cuModuleGetFunction(module, name.encode())), size,
                   self._shared(module, name))
            for name, size in kernels.items()
        }  # fmt: skip
        texts = {name: self._beside(module, name + _MAPS) for name in kernels}
        self._maps = {name: KernelMaps(text) for name, text in texts.items() if text}
        attribute = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        for function, _, shared in self._kernels.values():
            if shared:
                load(self._api.cuFuncSetAttribute(function, attribute, shared))

    def _chip(self) -> str:
        """Its architecture, as targets are called."""
        kinds, get = self._api.CUdevice_attribute, self._api.cuDeviceGetAttribute
        words = ("MAJOR", "MINOR")
        found = (getattr(kinds, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{w}") for w in words)
        major, minor = (self._calls.load(get(attribute, self._device)) for attribute in found)
        return f"sm_{major}{minor}"

    def _shared(self, module: Any, name: str) -> int:
        """Bytes of shared memory that a kernel does not have of itself."""
        return int.from_bytes(self._beside(module, name + _SHARED_BYTES), "little")

    def _beside(self, module: Any, name: str) -> bytes:
        """What a module holds by a name, nothing if there is no such name."""
        status, place, size = self._api.cuModuleGetGlobal(module, name.encode())
        if self._calls.said(status):
            return b""
        held = ctypes.create_string_buffer(size)
        self._calls.load(self._api.cuMemcpyDtoH(ctypes.addressof(held), place, size))
        return held.raw

    # --- memory

    def allocate(self, size: int) -> CudaMemory:
        """Memory of the pool; what other models have given back is looked for first."""
        return CudaMemory(self, self._taken(size), size)

    def _taken(self, size: int) -> Any:
        if self._recording:
            raise RecordingError
        self._calls.enter()
        status, address = self._api.cuMemAllocAsync(max(1, size), self._stream)
        if self._lacks(status):
            self.synchronize()
            self._calls.run(self._api.cuMemPoolTrimTo(self._pool, 0))
            status, address = self._api.cuMemAllocAsync(max(1, size), self._stream)
        if self._lacks(status):
            status, free, _ = self._api.cuMemGetInfo()
            raise OutOfDeviceMemoryError(
                self.name, size, self.memory, None if int(status) else int(free)
            )
        return self._calls.run((status, address))

    def _lacks(self, status: Any) -> bool:
        return self._calls.said(status) == "CUDA_ERROR_OUT_OF_MEMORY"

    def free(self, address: int, streams: set[int]) -> None:
        """Give memory back to the pool, once these ``streams`` of others are done with it; when a
        recording ends, if there is one."""
        if sys.is_finalizing() or self._closed:
            return
        if self._recording:
            self._given_back.append((address, streams))
            return
        self._api.cuCtxSetCurrent(self._calls.context)
        with suppress(RunError):  # a GPU that has failed takes nothing, and nobody waits for this
            for stream in streams:
                self._order.follow(self._stream, stream)
        self._api.cuMemFreeAsync(address, self._stream)

    def upload(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copy from the host, which may write there again at once."""
        if self._recording:
            raise RecordingError
        self._calls.enter()
        for start, count in self._stage.parts(size):
            if not self._stage.has_room(count):
                self.synchronize()
            place = self._stage.take(count)
            ctypes.memmove(place, address + start, count)
            to = _address(memory) + offset + start
            self._timed(self._api.cuMemcpyHtoDAsync, to, place, count, self._stream)

    def download(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copy to the host, and wait for it."""
        if self._recording:
            raise RecordingError
        self._calls.enter()
        for start, count in self._stage.parts(size):
            if not self._stage.has_room(count):
                self.synchronize()
            place = self._stage.take(count)
            source = _address(memory) + offset + start
            self._timed(self._api.cuMemcpyDtoHAsync, place, source, count, self._stream)
            self.synchronize()
            ctypes.memmove(address + start, place, count)

    def download_late(self, memory: DeviceMemory, offset: int, size: int) -> LateCopy:
        """Copy to the host, with nobody waiting for it."""
        self._calls.enter()
        return self._late.bring(_address(memory) + offset, size)

    def clear(self, memory: DeviceMemory, offset: int, size: int) -> None:
        """Set bytes to 0."""
        self._calls.enter()
        self._timed(self._api.cuMemsetD8Async, _address(memory) + offset, 0, size, self._stream)

    def copy(
        self, to: DeviceMemory, to_offset: int, source: DeviceMemory, offset: int, size: int
    ) -> None:
        """Copy within the device; places that overlap by way of other memory."""
        self._calls.enter()
        target, first = _address(to) + to_offset, _address(source) + offset
        move = self._api.cuMemcpyDtoDAsync
        if abs(target - first) < size:
            between = self.allocate(size)
            self._timed(move, between.address, first, size, self._stream)
            first = between.address
        self._timed(move, target, first, size, self._stream)

    # --- memory and streams of others

    def address(self, memory: DeviceMemory) -> int:
        """Where memory begins."""
        return _address(memory)

    def foreign(self, address: int, size: int, where: str) -> ForeignMemory:
        """Memory of this GPU that somebody else has; InputError about ``where`` if it is not."""
        if not size:
            return ForeignMemory(0, 0)
        self._calls.enter()
        kinds, get = self._api.CUpointer_attribute, self._api.cuPointerGetAttribute
        status, kind = get(kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        if int(status) or int(kind) != int(self._api.CUmemorytype.CU_MEMORYTYPE_DEVICE):
            given = f"an address of other memory ({address:#x})"
            raise InputError(where, f"memory of {self.name}", given, "give a tensor of the GPU's")
        owner = int(self._calls.run(get(kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)))
        if owner != self.index:
            remedy = f"move it there, or load the model with target='cuda:{owner}'"
            raise InputError(where, f"memory of GPU {self.index}", f"GPU {owner}'s", remedy)
        return ForeignMemory(address, size)

    def wait_for(self, stream: int) -> None:
        """Work that is asked for from now on comes after what somebody else's ``stream`` does."""
        self._calls.enter()
        self._order.have_wait(self._stream, stream)

    def precede(self, stream: int) -> None:
        """What somebody else's ``stream`` is asked for from now on comes after all work so far."""
        self._calls.enter()
        self._order.have_wait(stream, self._stream)

    def users(self, memory: DeviceMemory) -> set[int]:
        """The streams that memory is shared with."""
        assert isinstance(memory, CudaMemory)
        return memory.streams

    def share(self, memory: DeviceMemory, stream: int) -> None:
        """Memory that is given back is not used again before ``stream`` is done with it."""
        self.users(memory).add(stream)

    # --- work

    def launch(
        self,
        kernel: str,
        buffers: Sequence[tuple[DeviceMemory, int]],
        sizes: Sequence[int],
        grid: Groups,
    ) -> None:
        """Run a kernel."""
        self._calls.enter()
        function, threads, shared = self._kernels[kernel]
        addresses = [_address(memory) + offset for memory, offset in buffers]
        given = [*map(ctypes.c_uint64, addresses)]
        given += [ctypes.c_uint64(size & (1 << 64) - 1) for size in sizes]
        places = [*map(ctypes.addressof, given)]
        if kernel in self._maps:
            places += self._maps[kernel].of(self._api, addresses, sizes, self._calls.run)
        table = (ctypes.c_void_p * max(1, len(places)))(*places)
        where = ctypes.addressof(table)
        how, ahead = (shared, self._stream, where), self.overlap and self._recording
        if not (ahead and self._ahead.launched(function, grid, threads, *how)):
            self._timed(self._api.cuLaunchKernel, function, *grid, *threads, *how, 0)
        self._ahead.behind_kernel = True

    def use(self, library: LibrarySpec) -> None:
        """Open a library of NVIDIA's."""
        self._calls.enter()
        if library.name not in _LIBRARIES:
            raise LoadError(f"{self.name} calls no library {library.name}: compile the model again")
        opened = open_library(library)

        def place(name: str) -> int:
            function = function_of(opened, library, name)
            return ctypes.cast(function, ctypes.c_void_p).value or 0

        self._libraries[library.name] = _LIBRARIES[library.name](place)

    def call(
        self,
        library: str,
        elements: Sequence[str],
        buffers: Sequence[tuple[DeviceMemory, int]],
        numbers: Sequence[int],
    ) -> None:
        """Products by cuBLASLt, convolutions by cuDNN."""
        self._calls.enter()
        found = self._libraries.get(library)
        if found is None:
            raise RunError(f"{self.name} has not been told to use {library}")
        addresses = [_address(memory) + offset for memory, offset in buffers]

        def ask() -> tuple[int]:
            found.ask(elements, addresses, numbers, self.stream)
            return (0,)

        self._timed(ask)

    def synchronize(self) -> None:
        """Wait for all work, but no longer than the :attr:`timeout`."""
        if self._recording:
            raise RecordingError
        self._calls.enter()
        if self.timeout is not None:
            self._wait(self.timeout)
        self._calls.run(self._api.cuStreamSynchronize(self._stream))
        self._stage.clear()

    def _wait(self, seconds: float) -> None:
        end = perf_counter() + seconds
        while True:
            (status,) = self._api.cuStreamQuery(self._stream)
            if self._calls.said(status) != "CUDA_ERROR_NOT_READY":
                self._calls.run((status,))
                return
            if perf_counter() > end:
                self._calls.lost = f"still at work after {seconds:g} s"
                raise TookTooLongError(self.name, seconds)
            sleep(_NAP)

    # --- recordings

    def record(self, work: Callable[[], None]) -> CudaGraph:
        """What ``work`` asks for, as a graph, not run yet; RecordingError if it waits for
        anything, or allocates."""
        self._calls.enter()
        mode = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._calls.run(self._api.cuStreamBeginCapture(self._stream, mode))
        self._recording, self._ahead.behind_kernel = True, False
        try:
            work()
        except BaseException as error:
            status, graph = self._end_recording()
            if not int(status):
                self._api.cuGraphDestroy(graph)
            elif isinstance(error, RunError):  # what a library asks for may be no recording's
                raise RecordingError(str(error)) from error
            raise
        graph = self._calls.run(self._end_recording())
        try:
            return CudaGraph(self, self._calls.run(self._api.cuGraphInstantiate(graph, 0)))
        finally:
            self._api.cuGraphDestroy(graph)

    def _end_recording(self) -> tuple[Any, Any]:
        """A status and what has been recorded; memory that was given back meanwhile goes."""
        self._recording = False
        result = self._api.cuStreamEndCapture(self._stream)
        waiting, self._given_back = self._given_back, []
        for address, streams in waiting:
            self.free(address, streams)
        return result

    def replay(self, executable: Any) -> None:
        """Ask for the work of a graph."""
        self._calls.enter()
        self._timed(self._api.cuGraphLaunch, executable, self._stream)

    def drop_graph(self, executable: Any) -> None:
        """A graph is not needed any more."""
        if sys.is_finalizing() or self._closed:
            return
        self._api.cuCtxSetCurrent(self._calls.context)
        if not (self._recording or self._calls.lost):  # it may still be at work
            self._api.cuStreamSynchronize(self._stream)
        self._api.cuGraphExecDestroy(executable)

    # --- times

    def keep_times(self, on: bool) -> None:
        """Take times of what is asked for."""
        self._clock.keep(self.allocate(FLUSHED) if on else None)

    def seconds(self) -> float:
        """From where each command began to where it ended."""
        return self._clock.seconds()

    def _timed(self, call: Callable[..., tuple[Any, ...]], *given: Any) -> None:
        """Ask for something, and take its time, but in a recording."""
        self._ahead.behind_kernel = False
        if not self._recording:
            self._clock.timed(call, *given)
            return
        self._calls.run(call(*given))


def _address(memory: DeviceMemory) -> int:
    assert isinstance(memory, CudaMemory | ForeignMemory)
    return memory.address
