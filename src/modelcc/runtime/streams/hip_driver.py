"""AMD's GPUs by the functions of the HIP library."""

from __future__ import annotations

import ctypes
from typing import Any

from modelcc.runtime.devices.device import Groups
from modelcc.runtime.streams.hip_library import ERROR_NAME, PROPERTIES
from modelcc.runtime.streams.stream_driver import Answer

_NON_BLOCKING = 1  # hipStreamNonBlocking
_NO_TIME = 2  # hipEventDisableTiming
_RELEASE_THRESHOLD = 4  # hipMemPoolAttrReleaseThreshold
_THREAD_LOCAL = 1  # hipStreamCaptureModeThreadLocal
_MEMORY_TYPE, _ORDINAL = 2, 9  # HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, …_DEVICE_ORDINAL
_DEVICE_MEMORY = 2  # hipMemoryTypeDevice

_PROPERTIES, _ARCH, _NAME = 1472, 1160, 256
"""Bytes of ``hipDeviceProp_tR0600``, where its ``gcnArchName`` begins, and how long names are."""

_ROOM = 4096
"""Bytes given for properties, should a later structure be larger."""


class HipDriver:
    """The driver of GPU number ``index``, by a declared ``library``."""

    def __init__(self, library: Any, index: int) -> None:
        self._hip = library
        self._index = index
        self._pool = ctypes.c_void_p()

    def error(self, status: Any) -> str:
        if not status:
            return ""
        name = getattr(self._hip, ERROR_NAME)(status)
        return name.decode() if name else f"error {status}"

    def begin(self) -> Answer:
        """Initialises it."""
        return (self._hip.hipInit(0),)

    def count(self) -> Answer:
        """The number of GPUs."""
        found = ctypes.c_int()
        return self._hip.hipGetDeviceCount(ctypes.byref(found)), found.value

    def full_name(self) -> Answer:
        """AMD's name for it."""
        held = ctypes.create_string_buffer(_NAME)
        return self._hip.hipDeviceGetName(held, _NAME, self._index), held.value.decode()

    def architecture(self) -> Answer:
        """Its name for compilers, with enabled features (``gfx942:sramecc+:xnack-``)."""
        assert _PROPERTIES <= _ROOM
        held = ctypes.create_string_buffer(_ROOM)
        status = getattr(self._hip, PROPERTIES)(held, self._index)
        return status, held.raw[_ARCH : _ARCH + _NAME].split(b"\0")[0].decode()

    def keep_memory(self) -> Answer:
        """The pool keeps freed memory until an allocation would fail."""
        status = self._hip.hipDeviceGetDefaultMemPool(ctypes.byref(self._pool), self._index)
        if status:
            return (status,)
        most = ctypes.c_uint64((1 << 64) - 1)
        threshold = _RELEASE_THRESHOLD
        return (self._hip.hipMemPoolSetAttribute(self._pool, threshold, ctypes.byref(most)),)

    def enter(self) -> Answer:
        return (self._hip.hipSetDevice(self._index),)

    def close(self) -> None:
        """HIP keeps a GPU's context as long as the process lives."""

    # --- memory

    def memory(self) -> Answer:
        found = ctypes.c_size_t()
        return self._hip.hipDeviceTotalMem(ctypes.byref(found), self._index), found.value

    def memory_left(self) -> Answer:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        return self._hip.hipMemGetInfo(ctypes.byref(free), ctypes.byref(total)), free.value

    def allocate(self, size: int, stream: Any) -> Answer:
        return self._given(self._hip.hipMallocAsync, size, stream)

    def release(self, address: int, stream: Any) -> Answer:
        return (self._hip.hipFreeAsync(address, stream),)

    def trim(self) -> Answer:
        return (self._hip.hipMemPoolTrimTo(self._pool, 0),)

    def pin(self, size: int) -> Answer:
        return self._given(self._hip.hipHostMalloc, size, 0)

    def unpin(self, address: int) -> Answer:
        return (self._hip.hipHostFree(address),)

    def owner(self, address: int) -> Answer:
        found, get = ctypes.c_int(), self._hip.hipPointerGetAttribute
        if get(ctypes.byref(found), _MEMORY_TYPE, address) or found.value != _DEVICE_MEMORY:
            return 0, None
        return get(ctypes.byref(found), _ORDINAL, address), found.value

    # --- work in a stream

    def upload(self, to: int, source: int, size: int, stream: Any) -> Answer:
        return (self._hip.hipMemcpyHtoDAsync(to, source, size, stream),)

    def download(self, to: int, source: int, size: int, stream: Any) -> Answer:
        return (self._hip.hipMemcpyDtoHAsync(to, source, size, stream),)

    def move(self, to: int, source: int, size: int, stream: Any) -> Answer:
        return (self._hip.hipMemcpyDtoDAsync(to, source, size, stream),)

    def clear(self, address: int, size: int, stream: Any) -> Answer:
        return (self._hip.hipMemsetD8Async(address, 0, size, stream),)

    def launch(
        self, function: Any, grid: Groups, threads: Groups, shared: int, stream: Any, table: int
    ) -> Answer:
        launch = self._hip.hipModuleLaunchKernel
        return (launch(function, *grid, *threads, shared, stream, table, None),)

    def begin_stream(self) -> Answer:
        return self._given(self._hip.hipStreamCreateWithFlags, _NON_BLOCKING)

    def end_stream(self, stream: Any) -> Answer:
        return (self._hip.hipStreamDestroy(stream),)

    def wait(self, stream: Any) -> Answer:
        return (self._hip.hipStreamSynchronize(stream),)

    def query(self, stream: Any) -> Answer:
        return (self._hip.hipStreamQuery(stream),)

    # --- events

    def event(self, timed: bool) -> Answer:
        return self._given(self._hip.hipEventCreateWithFlags, 0 if timed else _NO_TIME)

    def drop_event(self, event: Any) -> Answer:
        return (self._hip.hipEventDestroy(event),)

    def mark(self, event: Any, stream: Any) -> Answer:
        return (self._hip.hipEventRecord(event, stream),)

    def query_event(self, event: Any) -> Answer:
        return (self._hip.hipEventQuery(event),)

    def follow(self, stream: Any, event: Any) -> Answer:
        return (self._hip.hipStreamWaitEvent(stream, event, 0),)

    def elapsed(self, begin: Any, end: Any) -> Answer:
        found = ctypes.c_float()
        return self._hip.hipEventElapsedTime(ctypes.byref(found), begin, end), found.value

    # --- code and recordings

    def module(self, code: bytes) -> Answer:
        """A code object as a module."""
        return self._given(self._hip.hipModuleLoadData, code)

    def function(self, module: Any, name: str) -> Answer:
        """A kernel of a module."""
        return self._given(self._hip.hipModuleGetFunction, module, name.encode())

    def unload(self, module: Any) -> Answer:
        return (self._hip.hipModuleUnload(module),)

    def begin_recording(self, stream: Any) -> Answer:
        return (self._hip.hipStreamBeginCapture(stream, _THREAD_LOCAL),)

    def end_recording(self, stream: Any) -> Answer:
        graph = ctypes.c_void_p()
        return self._hip.hipStreamEndCapture(stream, ctypes.byref(graph)), graph.value or 0

    def executable(self, graph: Any) -> Answer:
        return self._given(self._hip.hipGraphInstantiateWithFlags, graph, 0)

    def drop_graph(self, graph: Any) -> Answer:
        return (self._hip.hipGraphDestroy(graph),)

    def replay(self, executable: Any, stream: Any) -> Answer:
        return (self._hip.hipGraphLaunch(executable, stream),)

    def drop_executable(self, executable: Any) -> Answer:
        return (self._hip.hipGraphExecDestroy(executable),)

    def _given(self, function: Any, *rest: Any) -> Answer:
        """The pointer that a function writes to its first parameter."""
        found = ctypes.c_void_p()
        return function(ctypes.byref(found), *rest), found.value or 0
