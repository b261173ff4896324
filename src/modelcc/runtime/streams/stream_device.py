"""GPUs whose drivers have streams: what CUDA's and HIP's devices share.

All work of a device is in a stream of its own; memory comes from the driver's pool, which keeps
freed memory for reuse.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

from modelcc.runtime.devices.device import (
    DeviceMemory,
    Groups,
    LateCopy,
    OutOfDeviceMemoryError,
    RecordingError,
    TookTooLongError,
)
from modelcc.runtime.errors import InputError, RunError
from modelcc.runtime.streams.stream_calls import StreamCalls
from modelcc.runtime.streams.stream_clock import FLUSHED, StreamClock
from modelcc.runtime.streams.stream_driver import NOT_READY, OUT_OF_MEMORY, Answer, StreamDriver
from modelcc.runtime.streams.stream_order import StreamOrder
from modelcc.runtime.streams.stream_readback import StreamReadbacks
from modelcc.runtime.streams.stream_staging import PinnedStage

_NAP = 0.0005
"""Seconds between two polls of work with a time limit."""


class StreamMemory:
    """Memory of a GPU, freed with the object."""

    def __init__(self, device: StreamDevice, address: Any, size: int) -> None:
        self._device = device
        self.address = int(address)
        self.size = size
        self.streams: set[int] = set()

    def __del__(self) -> None:
        self._device.free(self.address, self.streams)


class ForeignMemory:
    """Memory of a GPU that somebody else owns, and keeps as long as it is used."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size


class StreamGraph:
    """Recorded work, ready to be replayed."""

    def __init__(self, device: StreamDevice, executable: Any) -> None:
        self._device = device
        self._executable = executable

    def run(self) -> None:
        """Issues all of it."""
        self._device.replay(self._executable)

    def __del__(self) -> None:
        self._device.drop_graph(self._executable)


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel of a module, the threads of its groups, and bytes of dynamic shared memory."""

    function: Any
    threads: Groups
    shared: int = 0


class StreamDevice:
    """GPU number ``index`` with a stream, by the driver of ``calls``, which is initialised.

    The target of its ``kind`` compiles for it; ``dlpack`` is its device type in DLPack,
    ``default_stream`` the stream of work that names none.
    """

    kind: str
    dlpack: int
    default_stream: int

    def __init__(self, calls: StreamCalls, index: int) -> None:
        self._calls = calls
        self._driver: StreamDriver = calls.driver
        self.index = index
        calls.enter()
        self._stream = calls.load(self._driver.begin_stream())
        self._kernels: Mapping[str, LoadedKernel] = {}
        self._modules: list[Any] = []
        self._stage = PinnedStage(calls)
        self._recording = self._closed = False
        self._given_back: list[tuple[int, set[int]]] = []
        self._order, self._late = StreamOrder(calls), StreamReadbacks(calls, self._stream)
        self._clock = StreamClock(calls, self._stream)
        self.timeout: float | None = None

    def __del__(self) -> None:
        if sys.is_finalizing() or not hasattr(self, "timeout") or self._calls.lost:
            return  # after a failure, or while busy, it is left as it is
        self._closed = True
        self._driver.enter()
        self._driver.wait(self._stream)  # asynchronous calls may be pending
        self._stage.free()
        self._late.free()
        self._order.free()
        self._close()
        for module in self._modules:
            self._driver.unload(module)
        self._driver.end_stream(self._stream)
        self._driver.close()

    def _close(self) -> None:
        """Frees what a vendor's device has besides."""

    @property
    def name(self) -> str:
        """Its driver's name for it."""
        return self._calls.name

    @property
    def memory(self) -> int:
        """Bytes that it has in all."""
        return int(self._calls.run(self._driver.memory()))

    @property
    def stream(self) -> int:
        """Its stream, for others that wait for it on the device."""
        return int(self._stream)

    # --- memory

    def allocate(self, size: int) -> StreamMemory:
        """Memory of the pool, which releases its unused memory if there is too little."""
        return StreamMemory(self, self._taken(size), size)

    def _taken(self, size: int) -> Any:
        if self._recording:
            raise RecordingError
        self._calls.enter()
        status, address = self._driver.allocate(max(1, size), self._stream)
        if int(status) == OUT_OF_MEMORY:
            self.synchronize()
            self._calls.run(self._driver.trim())
            status, address = self._driver.allocate(max(1, size), self._stream)
        if int(status) == OUT_OF_MEMORY:
            failed, free = self._driver.memory_left()
            raise OutOfDeviceMemoryError(
                self.name, size, self.memory, None if int(failed) else int(free)
            )
        return self._calls.run((status, address))

    def free(self, address: int, streams: set[int]) -> None:
        """Returns memory to the pool, once these ``streams`` of others are done with it; during a
        recording, at its end."""
        if sys.is_finalizing() or self._closed:
            return
        if self._recording:
            self._given_back.append((address, streams))
            return
        self._driver.enter()
        with suppress(RunError):  # a GPU that has failed accepts nothing, and this is not awaited
            for stream in streams:
                self._order.follow(self._stream, stream)
        self._driver.release(address, self._stream)

    def upload(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copies from the host, which may overwrite the source at once."""
        if self._recording:
            raise RecordingError
        self._calls.enter()
        for start, count in self._stage.parts(size):
            if not self._stage.has_room(count):
                self.synchronize()
            place = self._stage.take(count)
            ctypes.memmove(place, address + start, count)
            to = address_of(memory) + offset + start
            self._timed(self._driver.upload, to, place, count, self._stream)

    def download(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copies to the host, and waits for it."""
        if self._recording:
            raise RecordingError
        self._calls.enter()
        for start, count in self._stage.parts(size):
            if not self._stage.has_room(count):
                self.synchronize()
            place = self._stage.take(count)
            source = address_of(memory) + offset + start
            self._timed(self._driver.download, place, source, count, self._stream)
            self.synchronize()
            ctypes.memmove(address + start, place, count)

    def download_late(self, memory: DeviceMemory, offset: int, size: int) -> LateCopy:
        """Copies to the host, asynchronously."""
        self._calls.enter()
        return self._late.bring(address_of(memory) + offset, size)

    def clear(self, memory: DeviceMemory, offset: int, size: int) -> None:
        """Set bytes to 0."""
        self._calls.enter()
        self._timed(self._driver.clear, address_of(memory) + offset, size, self._stream)

    def copy(
        self, to: DeviceMemory, to_offset: int, source: DeviceMemory, offset: int, size: int
    ) -> None:
        """Copies within the device; overlapping ranges through other memory."""
        self._calls.enter()
        target, first = address_of(to) + to_offset, address_of(source) + offset
        move = self._driver.move
        if abs(target - first) < size:
            between = self.allocate(size)
            self._timed(move, between.address, first, size, self._stream)
            first = between.address
        self._timed(move, target, first, size, self._stream)

    # --- memory and streams of others

    def address(self, memory: DeviceMemory) -> int:
        """The address of memory."""
        return address_of(memory)

    def foreign(self, address: int, size: int, where: str) -> ForeignMemory:
        """Memory of this GPU that somebody else owns; InputError about ``where`` if it is not."""
        if not size:
            return ForeignMemory(0, 0)
        self._calls.enter()
        owner = self._calls.run(self._driver.owner(address))
        if owner is None:
            given = f"an address of other memory ({address:#x})"
            raise InputError(where, f"memory of {self.name}", given, "give a tensor of the GPU's")
        if owner != self.index:
            remedy = f"move it there, or load the model with target='{self.kind}:{owner}'"
            raise InputError(where, f"memory of GPU {self.index}", f"GPU {owner}'s", remedy)
        return self.lent(address, size)

    def lent(self, address: int, size: int) -> ForeignMemory:
        """As :meth:`foreign`, where the caller guarantees it."""
        return ForeignMemory(address, size)

    def wait_for(self, stream: int) -> None:
        """Work that is issued from now on comes after another library's ``stream``."""
        self._calls.enter()
        self._order.have_wait(self._stream, stream)

    def precede(self, stream: int) -> None:
        """Work issued to another library's ``stream`` from now on comes after all work so far."""
        self._calls.enter()
        self._order.have_wait(stream, self._stream)

    def users(self, memory: DeviceMemory) -> set[int]:
        """The streams that memory is shared with."""
        assert isinstance(memory, StreamMemory)
        return memory.streams

    def share(self, memory: DeviceMemory, stream: int) -> None:
        """Freed memory is not reused before ``stream`` is done with it."""
        self.users(memory).add(stream)

    # --- work

    def launch(
        self,
        kernel: str,
        buffers: Sequence[tuple[DeviceMemory, int]],
        sizes: Sequence[int],
        grid: Groups,
    ) -> None:
        """Runs a kernel."""
        self._calls.enter()
        addresses = [address_of(memory) + offset for memory, offset in buffers]
        given = [*map(ctypes.c_uint64, addresses)]
        given += [ctypes.c_uint64(size & (1 << 64) - 1) for size in sizes]
        places = [*map(ctypes.addressof, given), *self._more(kernel, addresses, sizes)]
        table = (ctypes.c_void_p * max(1, len(places)))(*places)
        self._start(self._kernels[kernel], grid, ctypes.addressof(table))

    def _more(self, kernel: str, addresses: Sequence[int], sizes: Sequence[int]) -> Sequence[int]:
        """Addresses of further arguments of a vendor's kernels, after addresses and sizes."""
        del kernel, addresses, sizes
        return ()

    def _start(self, kernel: LoadedKernel, grid: Groups, table: int) -> None:
        how = kernel.threads, kernel.shared, self._stream, table
        self._timed(self._driver.launch, kernel.function, grid, *how)

    def synchronize(self) -> None:
        """Waits for all work, but at most until the :attr:`timeout`."""
        if self._recording:
            raise RecordingError
        self._calls.enter()
        if self.timeout is not None:
            self._wait(self.timeout)
        self._calls.run(self._driver.wait(self._stream))
        self._stage.clear()

    def _wait(self, seconds: float) -> None:
        end = perf_counter() + seconds
        while True:
            (status,) = self._driver.query(self._stream)
            if int(status) != NOT_READY:
                self._calls.run((status,))
                return
            if perf_counter() > end:
                self._calls.lost = f"still at work after {seconds:g} s"
                raise TookTooLongError(self.name, seconds)
            sleep(_NAP)

    # --- recordings

    def record(self, work: Callable[[], None]) -> StreamGraph:
        """The commands of ``work``, as a graph, not run yet; RecordingError if it waits for
        anything, or allocates."""
        self._calls.enter()
        self._calls.run(self._driver.begin_recording(self._stream))
        self._recording = True
        try:
            work()
        except BaseException as error:
            status, graph = self._end_recording()
            if not int(status):
                self._driver.drop_graph(graph)
            elif isinstance(error, RunError):  # a library's commands may not be recordable
                raise RecordingError(str(error)) from error
            raise
        graph = self._calls.run(self._end_recording())
        try:
            return StreamGraph(self, self._calls.run(self._driver.executable(graph)))
        finally:
            self._driver.drop_graph(graph)

    def _end_recording(self) -> tuple[Any, Any]:
        """A status and the recorded graph; memory that was freed meanwhile is returned."""
        self._recording = False
        status, graph = self._driver.end_recording(self._stream)
        waiting, self._given_back = self._given_back, []
        for address, streams in waiting:
            self.free(address, streams)
        return status, graph

    def replay(self, executable: Any) -> None:
        """Issues the work of a graph."""
        self._calls.enter()
        self._timed(self._driver.replay, executable, self._stream)

    def drop_graph(self, executable: Any) -> None:
        """Frees a graph."""
        if sys.is_finalizing() or self._closed:
            return
        self._driver.enter()
        if not (self._recording or self._calls.lost):  # it may still be running
            self._driver.wait(self._stream)
        self._driver.drop_executable(executable)

    # --- times

    def keep_times(self, on: bool) -> None:
        """Times commands."""
        self._clock.keep(self.allocate(FLUSHED) if on else None)

    def seconds(self) -> float:
        """The sum of all commands' times."""
        return self._clock.seconds()

    def _timed(self, call: Callable[..., Answer], *given: Any) -> None:
        """Issues a command, and times it except in a recording."""
        if not self._recording:
            self._clock.timed(call, *given)
            return
        self._calls.run(call(*given))


def address_of(memory: DeviceMemory) -> int:
    """The address of a GPU's memory."""
    assert isinstance(memory, StreamMemory | ForeignMemory)
    return memory.address
