"""What stands for NVIDIA's driver in tests: the functions of ``cuda.bindings.driver`` that devices
call, on the host's memory.

It is strict.  Streams do their work when somebody waits for them, not before; pointers must lie in
memory that is there, then and when they are given; what a recording may not do ends the test.
"""

# ruff: noqa: N802, N803

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import numpy as np

from modelcc.ir.types import Array

Kernel = Callable[..., None]
"""Takes grid, threads and a kernel's arguments: what buffers begin with, then sizes."""

Result = tuple[object, ...]

NAMES = {1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 100: "NO_DEVICE", 209: "NO_BINARY_FOR_GPU",
         218: "INVALID_PTX", 222: "UNSUPPORTED_PTX_VERSION", 500: "NOT_FOUND", 600: "NOT_READY",
         700: "ILLEGAL_ADDRESS", 701: "LAUNCH_OUT_OF_RESOURCES", 719: "LAUNCH_FAILED",
         801: "NOT_SUPPORTED",
         901: "STREAM_CAPTURE_INVALIDATED"}  # fmt: skip
FIRST_DEVICE, FIRST_CONTEXT = 7, 11
_HANDLES = 1 << 40
MOST_GROUPS = (1 << 31) - 1, 65535, 65535
MOST_THREADS = 1024, 1024, 64
ENCODE_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, *(ctypes.c_void_p,) * 5,
    *(ctypes.c_int,) * 4,
)  # fmt: skip
"""The driver's function that makes maps, as its header declares it."""


def is_launchable(grid: tuple[int, int, int], threads: tuple[int, int, int]) -> bool:
    """Whether GPUs run so many groups of so many threads (CUDA C++ Programming Guide, "Compute
    Capabilities", technical specifications)."""
    groups = all(0 < n <= most for n, most in zip(grid, MOST_GROUPS, strict=True))
    inside = all(0 < n <= most for n, most in zip(threads, MOST_THREADS, strict=True))
    return groups and inside and threads[0] * threads[1] * threads[2] <= MOST_THREADS[0]


class Stream:
    """Work in its order; ``recorded`` takes it while a recording goes on."""

    def __init__(self, context: int) -> None:
        self.context = context
        self.waiting: list[Callable[[], None]] = []
        self.recorded: list[Callable[[], None]] | None = None

    def ask(self, work: Callable[[], None]) -> None:
        (self.waiting if self.recorded is None else self.recorded).append(work)


class FakeDriver:
    """``kernels`` by name, with the numbers of buffers and sizes that they take, stand for those of
    a module; ``failing`` gives functions the error that they return, ``sound`` how many calls of
    one come before.  GPUs that are ``lost`` answer all with an error.  Streams that are ``stuck``
    never finish."""

    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUevent_flags = SimpleNamespace(CU_EVENT_DEFAULT=0, CU_EVENT_DISABLE_TIMING=2)
    CUpointer_attribute = SimpleNamespace(
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE=2, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9
    )
    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_DEVICE=2)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
    CUmemPool_attribute = SimpleNamespace(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD=4)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUtensorMapDataType = SimpleNamespace(
        CU_TENSOR_MAP_DATA_TYPE_UINT8=0,
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16=6,
        CU_TENSOR_MAP_DATA_TYPE_BFLOAT16=9,
    )
    CUtensorMapInterleave = SimpleNamespace(CU_TENSOR_MAP_INTERLEAVE_NONE=0)
    CUtensorMapSwizzle = SimpleNamespace(CU_TENSOR_MAP_SWIZZLE_128B=3)
    CUtensorMapL2promotion = SimpleNamespace(CU_TENSOR_MAP_L2_PROMOTION_L2_128B=2)
    CUtensorMapFloatOOBfill = SimpleNamespace(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE=0)
    cuuint64_t = cuuint32_t = int
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=97,
    )

    def __init__(
        self,
        kernels: Mapping[str, tuple[Kernel, int, int]],
        memory: int = 1 << 30,
        shared: Mapping[str, int] | None = None,
        devices: int = 1,
        maps: Mapping[str, bytes] | None = None,
    ) -> None:
        self.kernels = dict(kernels)
        self.memory = memory
        self.shared = dict(shared or {})
        self.devices = devices
        self.capability: tuple[int, int] = 8, 6
        self.most_shared = 227 << 10
        self.maps = dict(maps or {})
        self.encoded: dict[int, Result] = {}
        self.taken: list[Result] = []
        self._encode = ENCODE_TYPE(self._encoded)
        self.failing: dict[str, int] = {}
        self.sound: dict[str, int] = {}
        self.lost: set[int] = set()
        self.calls: list[str] = []
        self.given: dict[int, tuple[Array, int, int]] = {}
        self.pinned: dict[int, Array] = {}
        self.numbers: dict[int, Array] = {}
        self.allowed: dict[str, int] = {}
        self.streams: dict[int, Stream] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.executables: dict[int, list[Callable[[], None]]] = {}
        self.events: dict[int, list[float]] = {}
        self.marked: dict[int, tuple[Stream, Callable[[], None]]] = {}
        self.legacy = Stream(FIRST_CONTEXT)
        self.modules: dict[int, bytes] = {}
        self.retained = dict.fromkeys(range(devices), 0)
        self.copying: set[int] = set()
        self.arriving: list[tuple[int, int]] = []
        self.trimmed = 0
        self.stuck = False
        self.clock = 0.0
        self._handles = _HANDLES
        self._thread = threading.local()

    # --- what is checked

    def _told(self, name: str, *results: object, inside: bool = True) -> Result:
        assert not inside or self._context() is not None, f"{name} before a context is current"
        self.calls.append(name)
        if inside and self._context() in {FIRST_CONTEXT + gpu for gpu in self.lost}:
            return (719, *results)
        if self.sound.get(name):
            self.sound[name] -= 1
            return (0, *results)
        return (self.failing.get(name, 0), *results)

    def _context(self) -> int | None:
        return getattr(self._thread, "current", None)

    def _handle(self) -> int:
        self._handles += 1
        return self._handles

    def _stream(self, handle: int) -> Stream:
        stream = self.legacy if handle == 1 else self.streams[handle]
        assert stream.context == self._context(), "a stream of another context"
        return stream

    def _apart(self, name: str) -> None:
        """Not while anything is recorded in this context."""
        recording = any(s.recorded is not None for s in self.streams.values())
        assert not recording, f"{name} in a recording"

    def _on_device(self, address: int, size: int) -> None:
        for start, (_, length, context) in self.given.items():
            if start <= address and address + size <= start + length:
                assert context == self._context(), "memory of another GPU"
                return
        raise AssertionError(f"{size} bytes at {address:#x} are not the GPU's, or given back")

    def _is_pinned(self, address: int, size: int) -> bool:
        return any(
            start <= address and address + size <= start + array.nbytes
            for start, array in self.pinned.items()
        )

    def _drain(self, stream: Stream) -> None:
        while stream.waiting:
            stream.waiting.pop(0)()

    def _reach(self, stream: Stream, mark: Callable[[], None]) -> None:
        """Do what was asked of a stream before ``mark``, and that."""
        while mark in stream.waiting:
            stream.waiting.pop(0)()

    # --- device, context, stream

    def cuInit(self, Flags: int) -> Result:
        assert Flags == 0
        return self._told("cuInit", inside=False)

    def cuGetErrorName(self, error: int) -> Result:
        return 0, f"CUDA_ERROR_{NAMES[error]}".encode()

    def cuDriverGetVersion(self) -> Result:
        return 0, 12040

    def cuDeviceGetCount(self) -> Result:
        return self._told("cuDeviceGetCount", self.devices, inside=False)

    def cuDeviceGet(self, ordinal: int) -> Result:
        assert 0 <= ordinal < self.devices
        return self._told("cuDeviceGet", FIRST_DEVICE + ordinal, inside=False)

    def cuDeviceGetName(self, length: int, dev: int) -> Result:
        assert dev >= FIRST_DEVICE
        return self._told("cuDeviceGetName", b"Test GPU".ljust(length, b"\0"), inside=False)

    def cuDeviceGetAttribute(self, attrib: int, dev: int) -> Result:
        assert dev >= FIRST_DEVICE
        return 0, {75: self.capability[0], 76: self.capability[1], 97: self.most_shared}[attrib]

    def cuDeviceTotalMem(self, dev: int) -> Result:
        assert dev >= FIRST_DEVICE
        return self._told("cuDeviceTotalMem", self.memory)

    def cuDeviceGetDefaultMemPool(self, dev: int) -> Result:
        return self._told("cuDeviceGetDefaultMemPool", dev + 100)

    def cuMemPoolSetAttribute(self, pool: int, attr: int, value: int) -> Result:
        assert (pool >= FIRST_DEVICE + 100, attr) == (True, 4)
        assert value == (1 << 64) - 1
        return self._told("cuMemPoolSetAttribute")

    def cuMemPoolTrimTo(self, pool: int, minBytesToKeep: int) -> Result:
        self.trimmed += 1
        return self._told("cuMemPoolTrimTo")

    def cuMemGetInfo(self) -> Result:
        held = sum(length for _, length, _ in self.given.values())
        return self._told("cuMemGetInfo", self.memory - held, self.memory)

    def cuDevicePrimaryCtxRetain(self, dev: int) -> Result:
        self.retained[dev - FIRST_DEVICE] += 1
        context = dev - FIRST_DEVICE + FIRST_CONTEXT
        return self._told("cuDevicePrimaryCtxRetain", context, inside=False)

    def cuDevicePrimaryCtxRelease(self, dev: int) -> Result:
        assert self.retained[dev - FIRST_DEVICE] > 0
        self.retained[dev - FIRST_DEVICE] -= 1
        return self._told("cuDevicePrimaryCtxRelease")

    def cuCtxSetCurrent(self, ctx: int) -> Result:
        assert self.retained[ctx - FIRST_CONTEXT] > 0, "a context that was given back"
        self._thread.current = ctx
        return (0,)

    def cuStreamCreate(self, Flags: int) -> Result:
        assert Flags == 1
        handle, context = self._handle(), self._context()
        assert context is not None
        self.streams[handle] = Stream(context)
        return self._told("cuStreamCreate", handle)

    def cuStreamDestroy(self, hStream: int) -> Result:
        self._drain(self.streams.pop(hStream))
        return self._told("cuStreamDestroy")

    def cuStreamSynchronize(self, hStream: int) -> Result:
        self._apart("cuStreamSynchronize")
        assert not self.stuck, "nobody comes back from this"
        told = self._told("cuStreamSynchronize")
        if not told[0]:
            self._drain(self._stream(hStream))
        return told

    def cuStreamQuery(self, hStream: int) -> Result:
        self._apart("cuStreamQuery")
        stream = self._stream(hStream)
        if self.stuck and stream.waiting:
            return (600,)
        self._drain(stream)
        return self._told("cuStreamQuery")

    # --- modules

    def cuModuleLoadData(self, image: bytes) -> Result:
        assert image.endswith(b"\0")
        handle = self._handle()
        self.modules[handle] = image
        return self._told("cuModuleLoadData", handle)

    def cuModuleUnload(self, hmod: int) -> Result:
        del self.modules[hmod]
        return self._told("cuModuleUnload")

    def cuModuleGetFunction(self, hmod: int, name: bytes) -> Result:
        assert hmod in self.modules
        return self._told("cuModuleGetFunction", name.decode())

    def cuModuleGetGlobal(self, hmod: int, name: bytes) -> Result:
        assert hmod in self.modules
        kernel = name.decode().removesuffix("_maps").removesuffix("_shared_bytes")
        if name.endswith(b"_maps"):
            held = np.frombuffer(self.maps.get(kernel, b""), np.uint8)
            found = kernel in self.maps
        else:
            held, found = np.array([self.shared.get(kernel, 0)], np.int32), kernel in self.shared
        self.numbers[held.ctypes.data] = held
        return 0 if found else 500, held.ctypes.data, held.nbytes

    def cuGetProcAddress(self, symbol: bytes, cudaVersion: int, flags: int) -> Result:
        assert (symbol, cudaVersion, flags) == (b"cuTensorMapEncodeTiled", 12000, 0)
        return self._told("cuGetProcAddress", ctypes.cast(self._encode, ctypes.c_void_p).value, 0)

    def _encoded(
        self, to: int, kind: int, rank: int, address: int, sizes: int, strides: int, box: int,
        steps: int, *how: int,
    ) -> int:  # fmt: skip
        """Refuses what the driver's documentation does (CUDA driver API, "Tensor Map Object
        Management"), for rows of 128 bytes."""
        self.calls.append("cuTensorMapEncodeTiled")
        extents, apart = ((ctypes.c_uint64 * rank).from_address(n) for n in (sizes, strides))
        boxes, along = ((ctypes.c_uint32 * rank).from_address(n) for n in (box, steps))
        apart = apart[: rank - 1]
        kept = (
            to % 128 == 0 == address % 16,
            kind in vars(self.CUtensorMapDataType).values() and 1 <= rank <= 5,
            all(1 <= n <= 1 << 32 for n in extents),
            all(n % 16 == 0 and n < 1 << 40 for n in apart),
            all(1 <= n <= 256 for n in boxes)
            and boxes[0] * (2 if kind else 1) in range(16, 129, 16),
            set(along) == {1} and how == (0, 3, 2, 0),
        )
        if not all(kept):
            return 1
        self._on_device(address, 1)
        self.encoded[to] = kind, address, tuple(extents), tuple(apart), tuple(boxes)
        ctypes.memset(to, 0x5A, 128)
        return 0

    def cuFuncSetAttribute(self, hfunc: str, attrib: int, value: int) -> Result:
        assert attrib == 8
        if value > self.most_shared:
            return (1,)
        self.allowed[hfunc] = value
        return self._told("cuFuncSetAttribute")

    # --- memory

    def cuMemAllocAsync(self, bytesize: int, hStream: int) -> Result:
        self._apart("cuMemAllocAsync")
        self._stream(hStream)
        held = sum(length for _, length, _ in self.given.values())
        if held + bytesize > self.memory:
            return 2, 0
        array = np.full(bytesize + 256, 0xFF, np.uint8)
        address = array.ctypes.data + -array.ctypes.data % 256
        context = self._context()
        assert context is not None
        self.given[address] = array, bytesize, context
        return self._told("cuMemAllocAsync", address)

    def cuMemFreeAsync(self, dptr: int, hStream: int) -> Result:
        self._apart("cuMemFreeAsync")
        stream = self._stream(hStream)
        if not self.stuck:
            self._drain(stream)  # what was asked for before may use it
        del self.given[dptr]
        return self._told("cuMemFreeAsync")

    def cuMemHostAlloc(self, bytesize: int, Flags: int) -> Result:
        self._apart("cuMemHostAlloc")
        assert Flags == 0
        array = np.zeros(bytesize, np.uint8)
        self.pinned[array.ctypes.data] = array
        return self._told("cuMemHostAlloc", array.ctypes.data)

    def cuMemFreeHost(self, p: int) -> Result:
        self._apart("cuMemFreeHost")
        copying = (s for handle, s in self.streams.items() if handle in self.copying)
        assert all(not stream.waiting for stream in copying), "memory on its way"
        del self.pinned[p]
        return self._told("cuMemFreeHost")

    def cuMemcpyDtoH(self, dstHost: int, srcDevice: int, ByteCount: int) -> Result:
        self._apart("cuMemcpyDtoH")
        assert srcDevice in self.numbers
        ctypes.memmove(dstHost, srcDevice, ByteCount)
        return self._told("cuMemcpyDtoH")

    def cuMemcpyHtoDAsync(
        self,
        dstDevice: int,
        srcHost: int,
        ByteCount: int,
        hStream: int,
    ) -> Result:
        assert self._is_pinned(srcHost, ByteCount), "a copy from memory that is not pinned"
        self._on_device(dstDevice, ByteCount)
        return self._copy("cuMemcpyHtoDAsync", dstDevice, srcHost, ByteCount, hStream)

    def cuMemcpyDtoHAsync(
        self,
        dstHost: int,
        srcDevice: int,
        ByteCount: int,
        hStream: int,
    ) -> Result:
        assert self._is_pinned(dstHost, ByteCount), "a copy to memory that is not pinned"
        self._on_device(srcDevice, ByteCount)
        self._arrives(dstHost, ByteCount)
        told = self._copy("cuMemcpyDtoHAsync", dstHost, srcDevice, ByteCount, hStream)
        self._stream(hStream).ask(lambda: self.arriving.remove((dstHost, ByteCount)))
        return told

    def cuMemcpyDtoDAsync(
        self,
        dstDevice: int,
        srcDevice: int,
        ByteCount: int,
        hStream: int,
    ) -> Result:
        assert abs(dstDevice - srcDevice) >= ByteCount, "copies within a GPU may not overlap"
        self._on_device(dstDevice, ByteCount)
        self._on_device(srcDevice, ByteCount)
        return self._copy("cuMemcpyDtoDAsync", dstDevice, srcDevice, ByteCount, hStream)

    def _arrives(self, place: int, size: int) -> None:
        """Until the copy is done there is anything at its place, and no other on its way there."""
        taken = (start < place + size and place < start + n for start, n in self.arriving)
        assert not any(taken), "two copies on their way to one place"
        ctypes.memset(place, 0xA5, size)
        self.arriving.append((place, size))

    def _copy(self, name: str, to: int, source: int, size: int, handle: int) -> Result:
        if name != "cuMemcpyDtoDAsync":
            self.copying.add(handle)
        self._stream(handle).ask(lambda: self._worked(ctypes.memmove, to, source, size))
        return self._told(name)

    def cuMemsetD8Async(self, dstDevice: int, uc: int, N: int, hStream: int) -> Result:
        self._on_device(dstDevice, N)
        self._stream(hStream).ask(lambda: self._worked(ctypes.memset, dstDevice, uc, N))
        return self._told("cuMemsetD8Async")

    def _worked(self, work: Callable[..., object], *given: int) -> None:
        """Each command takes a second of the GPU's clock."""
        work(*given)
        self.clock += 1.0

    # --- kernels, graphs, events

    def cuLaunchKernel(
        self,
        f: str,
        gridDimX: int, gridDimY: int, gridDimZ: int,
        blockDimX: int, blockDimY: int, blockDimZ: int,
        sharedMemBytes: int, hStream: int, kernelParams: int, extra: int,
    ) -> Result:  # fmt: skip
        grid, threads = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        assert extra == 0
        if not is_launchable(grid, threads):
            return (1,)
        assert sharedMemBytes == self.shared.get(f, 0) == self.allowed.get(f, 0)
        kernel, buffers, sizes = self.kernels[f]
        count = self.maps.get(f, b"").count(b"f16")
        table = (ctypes.c_void_p * (buffers + sizes + count)).from_address(kernelParams)
        places = [*table]
        self.taken = [self.encoded[place or 0] for place in places[buffers + sizes :]]
        plain = places[: buffers + sizes]
        given = [ctypes.c_int64.from_address(place or 0).value for place in plain]

        def work() -> None:
            for address in given[:buffers]:
                self._on_device(address, 1)
            self._worked(lambda: kernel(grid, threads, *given))

        for address in given[:buffers]:
            self._on_device(address, 1)
        self._stream(hStream).ask(work)
        return self._told("cuLaunchKernel")

    def cuStreamBeginCapture(self, hStream: int, mode: int) -> Result:
        assert mode == 1
        self._apart("cuStreamBeginCapture")
        self._stream(hStream).recorded = []
        return self._told("cuStreamBeginCapture")

    def cuStreamEndCapture(self, hStream: int) -> Result:
        stream, handle = self._stream(hStream), self._handle()
        assert stream.recorded is not None
        self.graphs[handle], stream.recorded = stream.recorded, None
        return self._told("cuStreamEndCapture", handle)

    def cuGraphInstantiate(self, hGraph: int, flags: int) -> Result:
        assert flags == 0
        handle = self._handle()
        self.executables[handle] = list(self.graphs[hGraph])
        return self._told("cuGraphInstantiate", handle)

    def cuGraphDestroy(self, hGraph: int) -> Result:
        del self.graphs[hGraph]
        return self._told("cuGraphDestroy")

    def cuGraphLaunch(self, hGraphExec: int, hStream: int) -> Result:
        stream = self._stream(hStream)
        assert stream.recorded is None
        for work in self.executables[hGraphExec]:
            stream.ask(work)
        return self._told("cuGraphLaunch")

    def cuGraphExecDestroy(self, hGraphExec: int) -> Result:
        del self.executables[hGraphExec]
        return self._told("cuGraphExecDestroy")

    def cuEventCreate(self, Flags: int) -> Result:
        assert Flags in (0, 2)
        handle = self._handle()
        self.events[handle] = []
        return self._told("cuEventCreate", handle)

    def cuEventRecord(self, hEvent: int, hStream: int) -> Result:
        self._apart("cuEventRecord")
        times = self.events[hEvent]
        stream = self._stream(hStream)

        def mark() -> None:
            times.append(self.clock)

        self.marked[hEvent] = stream, mark
        stream.ask(mark)
        return self._told("cuEventRecord")

    def cuEventQuery(self, hEvent: int) -> Result:
        """Streams do nothing because somebody asks."""
        stream, mark = self.marked[hEvent]
        assert stream.context == self._context(), "an event of another context"
        told = self._told("cuEventQuery")
        return (600,) if not told[0] and mark in stream.waiting else told

    def cuStreamWaitEvent(self, hStream: int, hEvent: int, Flags: int) -> Result:
        assert Flags == 0
        self._apart("cuStreamWaitEvent")
        other, mark = self.marked[hEvent]
        self._stream(hStream).ask(lambda: self._reach(other, mark))
        return self._told("cuStreamWaitEvent")

    def cuPointerGetAttribute(self, attribute: int, ptr: int) -> Result:
        for start, (_, length, context) in self.given.items():
            if start <= ptr < start + length:
                return 0, {2: 2, 9: context - FIRST_CONTEXT}[attribute]
        return 1, None

    def cuEventElapsedTime(self, hStart: int, hEnd: int) -> Result:
        (begin,), (end,) = self.events[hStart], self.events[hEnd]
        return self._told("cuEventElapsedTime", (end - begin) * 1e3)

    def cuEventDestroy(self, hEvent: int) -> Result:
        del self.events[hEvent]
        return self._told("cuEventDestroy")
