"""NVIDIA's driver, by the functions of ``cuda.bindings.driver``."""

from __future__ import annotations

from typing import Any

from modelcc.runtime.devices.device import Groups
from modelcc.runtime.streams.stream_driver import Answer


class CudaDriver:
    """The driver for one GPU, once there is a :attr:`context`; ``api`` is the package's module,
    whose functions each return a tuple: their status, then their results."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self._device: Any = None
        self._context: Any = None
        self._pool: Any = None

    def error(self, status: Any) -> str:
        if int(status) == 0:
            return ""
        _, name = self.api.cuGetErrorName(status)
        return name.decode() if name else f"error {int(status)}"

    def enter(self) -> Answer:
        return self.api.cuCtxSetCurrent(self._context)

    def open(self, device: Any) -> Answer:
        """Retains the primary context of a device, whose handle is given."""
        status, context = self.api.cuDevicePrimaryCtxRetain(device)
        self._device, self._context = device, context
        return (status,)

    def keep_memory(self) -> Answer:
        """The pool keeps freed memory until an allocation would fail."""
        status, self._pool = self.api.cuDeviceGetDefaultMemPool(self._device)
        if int(status):
            return (status,)
        threshold = self.api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        most = self.api.cuuint64_t((1 << 64) - 1)
        return self.api.cuMemPoolSetAttribute(self._pool, threshold, most)

    def close(self) -> None:
        self.api.cuDevicePrimaryCtxRelease(self._device)

    # --- memory

    def memory(self) -> Answer:
        return self.api.cuDeviceTotalMem(self._device)

    def memory_left(self) -> Answer:
        status, free, _ = self.api.cuMemGetInfo()
        return status, free

    def allocate(self, size: int, stream: Any) -> Answer:
        return self.api.cuMemAllocAsync(size, stream)

    def release(self, address: int, stream: Any) -> Answer:
        return self.api.cuMemFreeAsync(address, stream)

    def trim(self) -> Answer:
        return self.api.cuMemPoolTrimTo(self._pool, 0)

    def pin(self, size: int) -> Answer:
        return self.api.cuMemHostAlloc(size, 0)

    def unpin(self, address: int) -> Answer:
        return self.api.cuMemFreeHost(address)

    def owner(self, address: int) -> Answer:
        kinds, get = self.api.CUpointer_attribute, self.api.cuPointerGetAttribute
        status, kind = get(kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        if int(status) or int(kind) != int(self.api.CUmemorytype.CU_MEMORYTYPE_DEVICE):
            return 0, None
        status, number = get(kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
        return status, None if int(status) else int(number)

    # --- work in a stream

    def upload(self, to: int, source: int, size: int, stream: Any) -> Answer:
        return self.api.cuMemcpyHtoDAsync(to, source, size, stream)

    def download(self, to: int, source: int, size: int, stream: Any) -> Answer:
        return self.api.cuMemcpyDtoHAsync(to, source, size, stream)

    def move(self, to: int, source: int, size: int, stream: Any) -> Answer:
        return self.api.cuMemcpyDtoDAsync(to, source, size, stream)

    def clear(self, address: int, size: int, stream: Any) -> Answer:
        return self.api.cuMemsetD8Async(address, 0, size, stream)

    def launch(
        self, function: Any, grid: Groups, threads: Groups, shared: int, stream: Any, table: int
    ) -> Answer:
        return self.api.cuLaunchKernel(function, *grid, *threads, shared, stream, table, 0)

    def begin_stream(self) -> Answer:
        return self.api.cuStreamCreate(int(self.api.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def end_stream(self, stream: Any) -> Answer:
        return self.api.cuStreamDestroy(stream)

    def wait(self, stream: Any) -> Answer:
        return self.api.cuStreamSynchronize(stream)

    def query(self, stream: Any) -> Answer:
        return self.api.cuStreamQuery(stream)

    # --- events

    def event(self, timed: bool) -> Answer:
        flags = self.api.CUevent_flags
        kind = flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING
        return self.api.cuEventCreate(int(kind))

    def drop_event(self, event: Any) -> Answer:
        return self.api.cuEventDestroy(event)

    def mark(self, event: Any, stream: Any) -> Answer:
        return self.api.cuEventRecord(event, stream)

    def query_event(self, event: Any) -> Answer:
        return self.api.cuEventQuery(event)

    def follow(self, stream: Any, event: Any) -> Answer:
        return self.api.cuStreamWaitEvent(stream, event, 0)

    def elapsed(self, begin: Any, end: Any) -> Answer:
        return self.api.cuEventElapsedTime(begin, end)

    # --- code and recordings

    def unload(self, module: Any) -> Answer:
        return self.api.cuModuleUnload(module)

    def begin_recording(self, stream: Any) -> Answer:
        mode = self.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        return self.api.cuStreamBeginCapture(stream, mode)

    def end_recording(self, stream: Any) -> Answer:
        return self.api.cuStreamEndCapture(stream)

    def executable(self, graph: Any) -> Answer:
        return self.api.cuGraphInstantiate(graph, 0)

    def drop_graph(self, graph: Any) -> Answer:
        return self.api.cuGraphDestroy(graph)

    def replay(self, executable: Any, stream: Any) -> Answer:
        return self.api.cuGraphLaunch(executable, stream)

    def drop_executable(self, executable: Any) -> Answer:
        return self.api.cuGraphExecDestroy(executable)
