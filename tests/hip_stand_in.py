"""What stands for AMD's HIP library in tests: its functions, called as C functions of prototypes as
they are declared, on the host's memory and the streams of the stand-in for NVIDIA's driver."""

# ruff: noqa: N802

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import Any

from cuda_driver import FIRST_CONTEXT, FIRST_DEVICE, FakeDriver, Kernel

from modelcc.runtime.streams.hip_library import ERROR_NAME, PROTOTYPES

_ERRORS = {1: "InvalidValue", 2: "OutOfMemory", 9: "InvalidConfiguration", 100: "NoDevice",
           209: "NoBinaryForGpu", 500: "NotFound", 600: "NotReady", 700: "IllegalAddress",
           701: "LaunchOutOfResources", 719: "LaunchFailure", 801: "NotSupported",
           901: "StreamCaptureInvalidated"}  # fmt: skip
ERRORS = {status: f"hipError{name}" for status, name in _ERRORS.items()}

MACHINE = 224
"""EM_AMDGPU, of ELF headers."""

FLAGS = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1100": 0x41, "gfx1201": 0x4E}
"""EF_AMDGPU_MACH by architecture (LLVM's AMDGPUUsage, "ELF Header")."""

_VERSION_5 = 3
"""ELFABIVERSION_AMDGPU_HSA_V5, the latest that ROCm 6.0 takes."""

_HEADER = struct.Struct("<4s4xB7xHHIQQQIHHHHHH")


def code_object(chip: str) -> bytes:
    """A header of ELF with no code behind it."""
    size = _HEADER.size
    rest = 3, MACHINE, 1, 0, 0, size, FLAGS[chip], size, 0, 0, 64, 0, 0
    return _HEADER.pack(b"\x7fELF", _VERSION_5, *rest)


class _Function:
    """One of the library: arguments go through C on their way to ``work``."""

    def __init__(self, work: Callable[..., int], parameters: tuple[Any, ...]) -> None:
        self.argtypes: tuple[Any, ...] = ()
        self.restype: Any = None
        self._work = work
        self._fault: BaseException | None = None
        plain = [ctypes.c_void_p if _is_pointer(p) else p for p in parameters]
        self._inside = ctypes.CFUNCTYPE(ctypes.c_int, *plain)(self._run)
        self._own = parameters

    def _run(self, *given: Any) -> int:
        try:
            return self._work(*(0 if value is None else value for value in given))
        except BaseException as fault:  # which C does not pass on
            self._fault = fault
            return 1

    def __call__(self, *given: Any) -> int:
        assert (self.argtypes, self.restype) == (self._own, ctypes.c_int), "not declared"
        address = ctypes.cast(self._inside, ctypes.c_void_p).value or 0
        status = ctypes.CFUNCTYPE(ctypes.c_int, *self.argtypes)(address)(*given)
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        return status


def _is_pointer(parameter: Any) -> bool:
    return parameter is ctypes.c_char_p or hasattr(parameter, "contents")


class FakeHip:
    """GPUs of architecture ``chip`` whose modules have these ``kernels``; ``engine`` does the
    work, and is told what is to fail."""

    def __init__(
        self,
        kernels: Mapping[str, tuple[Kernel, int, int]],
        memory: int = 1 << 30,
        devices: int = 1,
        chip: str = "gfx942",
        engine: FakeDriver | None = None,
    ) -> None:
        self.engine = engine or FakeDriver(kernels, memory, devices=devices)
        self.engine.retained = dict.fromkeys(range(devices), 1)
        self.chip = chip
        self._functions: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == ERROR_NAME:
            found: Any = self._error_name
        elif name in PROTOTYPES:
            found = _Function(getattr(self, f"_{name}"), PROTOTYPES[name])
        else:
            raise AttributeError(name)
        self.__dict__[name] = found
        return found

    class _ErrorName:
        """``hipGetErrorName``, which needs no memory."""

        def __call__(self, status: int) -> bytes:
            return ERRORS[status].encode()

    _error_name = _ErrorName()

    # --- devices

    def _hipInit(self, flags: int) -> int:
        return _status(self.engine.cuInit(flags))

    def _hipGetDeviceCount(self, count: int) -> int:
        _put(ctypes.c_int, count, self.engine.devices)
        return _status(self.engine.cuDeviceGetCount()) or (0 if self.engine.devices else 100)

    def _hipSetDevice(self, device: int) -> int:
        return _status(self.engine.cuCtxSetCurrent(FIRST_CONTEXT + device))

    def _hipDeviceGetName(self, name: int, length: int, device: int) -> int:
        status, text = self.engine.cuDeviceGetName(length, FIRST_DEVICE + device)
        assert isinstance(text, bytes)
        ctypes.memmove(name, text, length)
        return int(str(status))

    def _hipDeviceTotalMem(self, size: int, device: int) -> int:
        return self._put_last(
            ctypes.c_size_t, size, self.engine.cuDeviceTotalMem(FIRST_DEVICE + device)
        )

    def _hipGetDevicePropertiesR0600(self, properties: int, device: int) -> int:
        assert 0 <= device < self.engine.devices
        name = f"{self.chip}:sramecc+:xnack-".encode() + b"\0"
        ctypes.memset(properties, 0x5A, 1472)
        ctypes.memmove(properties + 1160, name, len(name))
        return 0

    def _hipDeviceGetDefaultMemPool(self, pool: int, device: int) -> int:
        answer = self.engine.cuDeviceGetDefaultMemPool(FIRST_DEVICE + device)
        return self._put_last(ctypes.c_void_p, pool, answer)

    def _hipMemPoolSetAttribute(self, pool: int, attribute: int, value: int) -> int:
        most = ctypes.c_uint64.from_address(value).value
        return _status(self.engine.cuMemPoolSetAttribute(pool, attribute, most))

    def _hipMemPoolTrimTo(self, pool: int, least: int) -> int:
        return _status(self.engine.cuMemPoolTrimTo(pool, least))

    def _hipMemGetInfo(self, free: int, total: int) -> int:
        status, left, whole = self.engine.cuMemGetInfo()
        _put(ctypes.c_size_t, free, left)
        _put(ctypes.c_size_t, total, whole)
        return int(str(status))

    # --- memory

    def _hipMallocAsync(self, address: int, size: int, stream: int) -> int:
        answer = self.engine.cuMemAllocAsync(size, _stream(stream))
        return self._put_last(ctypes.c_void_p, address, answer)

    def _hipFreeAsync(self, address: int, stream: int) -> int:
        return _status(self.engine.cuMemFreeAsync(address, _stream(stream)))

    def _hipHostMalloc(self, address: int, size: int, flags: int) -> int:
        return self._put_last(ctypes.c_void_p, address, self.engine.cuMemHostAlloc(size, flags))

    def _hipHostFree(self, address: int) -> int:
        return _status(self.engine.cuMemFreeHost(address))

    def _hipPointerGetAttribute(self, data: int, attribute: int, address: int) -> int:
        answer = self.engine.cuPointerGetAttribute(attribute, address)
        return self._put_last(ctypes.c_int, data, answer)

    def _hipMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> int:
        return _status(self.engine.cuMemcpyHtoDAsync(to, source, size, _stream(stream)))

    def _hipMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> int:
        return _status(self.engine.cuMemcpyDtoHAsync(to, source, size, _stream(stream)))

    def _hipMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> int:
        return _status(self.engine.cuMemcpyDtoDAsync(to, source, size, _stream(stream)))

    def _hipMemsetD8Async(self, to: int, value: int, count: int, stream: int) -> int:
        return _status(self.engine.cuMemsetD8Async(to, value, count, _stream(stream)))

    # --- modules

    def _hipModuleLoadData(self, module: int, image: int) -> int:
        """Looks at the header, as the library does."""
        magic, version, _, machine, _, _, _, sections, flags, *rest = _HEADER.unpack(
            ctypes.string_at(image, _HEADER.size)
        )
        assert (magic, machine) == (b"\x7fELF", MACHINE), "no code object"
        assert version <= _VERSION_5, "a code object of a later version"
        if flags & 0xFF != FLAGS[self.chip]:
            return 209
        size = sections + rest[3] * rest[4]
        answer = self.engine.cuModuleLoadData(ctypes.string_at(image, size) + b"\0")
        return self._put_last(ctypes.c_void_p, module, answer)

    def _hipModuleUnload(self, module: int) -> int:
        return _status(self.engine.cuModuleUnload(module))

    def _hipModuleGetFunction(self, function: int, module: int, name: int) -> int:
        status, found = self.engine.cuModuleGetFunction(module, ctypes.string_at(name))
        self._functions.append(str(found))
        _put(ctypes.c_void_p, function, len(self._functions))
        return int(str(status))

    def _hipModuleLaunchKernel(self, function: int, *given: int) -> int:
        """Threads along an axis are less than 2^32 in all ("hipModuleLaunchKernel" in HIP's
        reference)."""
        *extents, shared, stream, table, extra = given
        if any(n * m >= 1 << 32 for n, m in zip(extents[:3], extents[3:], strict=True)):
            return 9
        gx, gy, gz, x, y, z = extents
        where = _stream(stream), table, extra
        name = self._functions[function - 1]
        return _status(self.engine.cuLaunchKernel(name, gx, gy, gz, x, y, z, shared, *where))

    # --- streams and events

    def _hipStreamCreateWithFlags(self, stream: int, flags: int) -> int:
        return self._put_last(ctypes.c_void_p, stream, self.engine.cuStreamCreate(flags))

    def _hipStreamDestroy(self, stream: int) -> int:
        return _status(self.engine.cuStreamDestroy(_stream(stream)))

    def _hipStreamSynchronize(self, stream: int) -> int:
        return _status(self.engine.cuStreamSynchronize(_stream(stream)))

    def _hipStreamQuery(self, stream: int) -> int:
        return _status(self.engine.cuStreamQuery(_stream(stream)))

    def _hipStreamWaitEvent(self, stream: int, event: int, flags: int) -> int:
        return _status(self.engine.cuStreamWaitEvent(_stream(stream), event, flags))

    def _hipEventCreateWithFlags(self, event: int, flags: int) -> int:
        return self._put_last(ctypes.c_void_p, event, self.engine.cuEventCreate(flags))

    def _hipEventDestroy(self, event: int) -> int:
        return _status(self.engine.cuEventDestroy(event))

    def _hipEventRecord(self, event: int, stream: int) -> int:
        return _status(self.engine.cuEventRecord(event, _stream(stream)))

    def _hipEventQuery(self, event: int) -> int:
        return _status(self.engine.cuEventQuery(event))

    def _hipEventElapsedTime(self, time: int, begin: int, end: int) -> int:
        return self._put_last(ctypes.c_float, time, self.engine.cuEventElapsedTime(begin, end))

    # --- recordings

    def _hipStreamBeginCapture(self, stream: int, mode: int) -> int:
        return _status(self.engine.cuStreamBeginCapture(_stream(stream), mode))

    def _hipStreamEndCapture(self, stream: int, graph: int) -> int:
        answer = self.engine.cuStreamEndCapture(_stream(stream))
        return self._put_last(ctypes.c_void_p, graph, answer)

    def _hipGraphInstantiateWithFlags(self, executable: int, graph: int, flags: int) -> int:
        answer = self.engine.cuGraphInstantiate(graph, flags)
        return self._put_last(ctypes.c_void_p, executable, answer)

    def _hipGraphDestroy(self, graph: int) -> int:
        return _status(self.engine.cuGraphDestroy(graph))

    def _hipGraphLaunch(self, executable: int, stream: int) -> int:
        return _status(self.engine.cuGraphLaunch(executable, _stream(stream)))

    def _hipGraphExecDestroy(self, executable: int) -> int:
        return _status(self.engine.cuGraphExecDestroy(executable))

    def _put_last(self, kind: Any, place: int, answer: tuple[object, ...]) -> int:
        _put(kind, place, answer[1])
        return _status(answer)


def _status(answer: tuple[object, ...]) -> int:
    return int(str(answer[0]))


def _put(kind: Any, place: int, value: object) -> None:
    if value is not None:
        kind.from_address(place).value = value


def _stream(stream: int) -> int:
    """The default one is number 0 in HIP, and 1 in the stand-in's engine."""
    assert stream != 1, "a stream by CUDA's number"
    return stream or 1
