"""What stands for NVIDIA's driver in tests: the functions of ``cuda.bindings.driver`` that the
device calls, which work on the host's memory, in the order of the stream, and check arguments."""

# ruff: noqa: N802

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import numpy as np

from modelcc.ir.types import Array

Kernel = Callable[..., None]
"""Takes grid, threads and a kernel's arguments: what buffers begin with, then sizes."""

NAMES = {1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 100: "NO_DEVICE", 222: "UNSUPPORTED_PTX_VERSION",
         500: "NOT_FOUND", 700: "ILLEGAL_ADDRESS"}  # fmt: skip
DEVICE, CONTEXT, STREAM, MODULE = 7, 11, 13, 17


class FakeMap:
    """What the driver makes of a tensor."""

    def __init__(self, *told: object) -> None:
        self.told = told
        self._held = ctypes.create_string_buffer(128)

    def getPtr(self) -> int:
        return ctypes.addressof(self._held)


class FakeDriver:
    """``kernels`` by name, with the numbers of buffers that they take, stand for those of a module;
    ``failing`` gives functions the error that they return."""

    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUtensorMapDataType = SimpleNamespace(
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16=6, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16=9
    )
    CUtensorMapInterleave = SimpleNamespace(CU_TENSOR_MAP_INTERLEAVE_NONE=0)
    CUtensorMapSwizzle = SimpleNamespace(CU_TENSOR_MAP_SWIZZLE_128B=3)
    CUtensorMapL2promotion = SimpleNamespace(CU_TENSOR_MAP_L2_PROMOTION_L2_128B=2)
    CUtensorMapFloatOOBfill = SimpleNamespace(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE=0)
    cuuint64_t = cuuint32_t = int

    def __init__(
        self,
        kernels: Mapping[str, tuple[Kernel, int, int]],
        memory: int = 1 << 20,
        shared: Mapping[str, int] | None = None,
        maps: Mapping[str, bytes] | None = None,
    ) -> None:
        self.kernels = dict(kernels)
        self.memory = memory
        self.shared = dict(shared or {})
        self.maps = dict(maps or {})
        self.encoded: list[FakeMap] = []
        self.taken: list[FakeMap] = []
        self.failing: dict[str, int] = {}
        self.calls: list[str] = []
        self.given: dict[int, Array] = {}
        self.beside: list[Array] = []
        self.allowed: dict[str, int] = {}
        self.current = False

    def _told(self, name: str, *results: object, inside: bool = True) -> tuple[object, ...]:
        assert self.current or not inside, f"{name} before a context is current"
        self.calls.append(name)
        return (self.failing.get(name, 0), *results)

    def cuInit(self, flags: int) -> tuple[object, ...]:
        assert flags == 0
        return self._told("cuInit", inside=False)

    def cuGetErrorName(self, status: int) -> tuple[int, bytes]:
        return 0, f"CUDA_ERROR_{NAMES[status]}".encode()

    def cuDeviceGetCount(self) -> tuple[object, ...]:
        return self._told("cuDeviceGetCount", 1, inside=False)

    def cuDeviceGet(self, index: int) -> tuple[object, ...]:
        assert index == 0
        return self._told("cuDeviceGet", DEVICE, inside=False)

    def cuDeviceGetName(self, length: int, device: int) -> tuple[object, ...]:
        assert device == DEVICE
        return self._told("cuDeviceGetName", b"Test GPU".ljust(length, b"\0"), inside=False)

    def cuDeviceTotalMem(self, device: int) -> tuple[object, ...]:
        assert device == DEVICE
        return self._told("cuDeviceTotalMem", self.memory)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[object, ...]:
        assert device == DEVICE
        return self._told("cuDevicePrimaryCtxRetain", CONTEXT, inside=False)

    def cuCtxSetCurrent(self, context: int) -> tuple[object, ...]:
        assert context == CONTEXT
        self.current = True
        return (0,)

    def cuStreamCreate(self, flags: int, priority: int) -> tuple[object, ...]:
        assert (flags, priority) == (1, 0)
        return self._told("cuStreamCreate", STREAM)

    def cuStreamSynchronize(self, stream: int) -> tuple[object, ...]:
        assert stream == STREAM
        return self._told("cuStreamSynchronize")

    def cuModuleLoadData(self, code: bytes) -> tuple[object, ...]:
        assert code.endswith(b"\0")
        return self._told("cuModuleLoadData", MODULE)

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[object, ...]:
        assert module == MODULE
        return self._told("cuModuleGetFunction", name.decode())

    def cuModuleGetGlobal(self, module: int, name: bytes) -> tuple[object, ...]:
        kernel = name.decode().removesuffix("_maps").removesuffix("_shared_bytes")
        if name.endswith(b"_maps"):
            held = np.frombuffer(self.maps.get(kernel, b""), np.uint8)
            found = kernel in self.maps
        else:
            held, found = np.array([self.shared.get(kernel, 0)], np.int32), kernel in self.shared
        self.beside.append(held)
        return 0 if found else 500, held.ctypes.data, held.nbytes

    def cuTensorMapEncodeTiled(
        self,
        kind: int,
        rank: int,
        address: int,
        sizes: list[int],
        strides: list[int],
        box: list[int],
        steps: list[int],
        *ways: int,
    ) -> tuple[object, ...]:
        assert [len(sizes), len(strides) + 1, len(box), len(steps)] == [rank] * 4
        assert address % 16 == 0 == sum(stride % 16 for stride in strides)
        assert max(box) <= 256 and box[0] * 2 <= 128 and min(sizes) > 0
        assert set(steps) == {1} and ways == (0, 3, 2, 0)
        self.encoded.append(FakeMap(kind, address, tuple(sizes), tuple(strides), tuple(box)))
        return self._told("cuTensorMapEncodeTiled", self.encoded[-1])

    def cuFuncSetAttribute(self, function: str, attribute: int, value: int) -> tuple[object, ...]:
        assert attribute == 8
        self.allowed[function] = value
        return self._told("cuFuncSetAttribute")

    def cuMemAllocAsync(self, size: int, stream: int) -> tuple[object, ...]:
        assert stream == STREAM
        held = sum(array.nbytes for array in self.given.values())
        if held + size > self.memory:
            return 2, 0
        array = np.full(size + 256, 0xFF, np.uint8)
        address = array.ctypes.data + -array.ctypes.data % 256
        self.given[address] = array
        return self._told("cuMemAllocAsync", address)

    def cuMemFreeAsync(self, address: int, stream: int) -> tuple[object, ...]:
        assert stream == STREAM
        del self.given[address]
        return self._told("cuMemFreeAsync")

    def cuMemcpyDtoH(self, to: int, source: int, size: int) -> tuple[object, ...]:
        ctypes.memmove(to, source, size)
        return self._told("cuMemcpyDtoH")

    def _copied(
        self, name: str, to: int, source: int, size: int, stream: int
    ) -> tuple[object, ...]:
        assert stream == STREAM
        ctypes.memmove(to, source, size)
        return self._told(name)

    def cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> tuple[object, ...]:
        return self._copied("cuMemcpyHtoDAsync", to, source, size, stream)

    def cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> tuple[object, ...]:
        return self._copied("cuMemcpyDtoHAsync", to, source, size, stream)

    def cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> tuple[object, ...]:
        assert abs(to - source) >= size, "copies within a GPU may not overlap"
        return self._copied("cuMemcpyDtoDAsync", to, source, size, stream)

    def cuLaunchKernel(self, function: str, *rest: int) -> tuple[object, ...]:
        *extents, shared, stream, table, extra = rest
        assert (stream, extra) == (STREAM, 0)
        assert shared == self.shared.get(function, 0) == self.allowed.get(function, 0)
        kernel, buffers, sizes = self.kernels[function]
        count = self.maps.get(function, b"").count(b"f16")
        places = (ctypes.c_void_p * (buffers + sizes + count)).from_address(table)
        told = {one.getPtr(): one for one in self.encoded}
        self.taken = [told[place or 0] for place in [*places][buffers + sizes :]]
        given = [
            ctypes.c_int64.from_address(place or 0).value for place in [*places][: buffers + sizes]
        ]
        kernel(tuple(extents[:3]), tuple(extents[3:]), *given)
        return self._told("cuLaunchKernel")
