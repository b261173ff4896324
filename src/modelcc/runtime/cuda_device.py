"""NVIDIA GPUs as devices, by the driver's API through ``cuda-bindings`` (the extra ``cuda``).

All work of a device goes through one stream; memory comes from the driver's pool, which keeps what
is given back for the next time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from cuda.bindings import driver as cuda_driver

from modelcc.runtime.device import DeviceMemory, Groups, OutOfDeviceMemoryError
from modelcc.runtime.errors import LoadError, RunError
from modelcc.runtime.tensor_maps import KernelMaps

_SHARED_BYTES = "_shared_bytes"
"""Ends the name of a number beside a kernel: how much shared memory to launch it with."""

_MAPS = "_maps"
"""Ends the name of a text beside a kernel: of which tensors it takes maps."""

_INSTALL = "install NVIDIA's driver, or compile for another target"
_TOO_OLD = {
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "its driver is too old for this PTX: update it",
    "CUDA_ERROR_INVALID_PTX": "its driver does not take this PTX: update it",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the model is compiled for another architecture",
    "CUDA_ERROR_INVALID_IMAGE": "the model is compiled for another architecture",
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": "its driver has no compiler of PTX",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "parts of its driver differ in version: restart",
}


def open_device(index: int) -> CudaDevice:
    """GPU number ``index``; LoadError lists those that there are."""
    return CudaDevice(cuda_driver, index)


class CudaMemory:
    """Memory of a GPU, given back when nobody has it any more."""

    def __init__(self, device: CudaDevice, address: Any, size: int) -> None:
        self._device = device
        self.address = int(address)
        self.size = size

    def __del__(self) -> None:
        self._device.free(self.address)


class CudaDevice:
    """A GPU with a stream; ``api`` are the functions of ``cuda.bindings.driver``."""

    def __init__(self, api: Any, index: int) -> None:
        self._api = api
        self._name = f"GPU {index}"
        try:
            (status,) = api.cuInit(0)
        except Exception as error:  # what the package raises is of classes of its own
            raise LoadError(
                f"there is no driver for NVIDIA's GPUs ({error}); {_INSTALL}"
            ) from error
        if self._said(status):
            raise LoadError(f"NVIDIA's driver finds no GPU ({self._said(status)}); {_INSTALL}")
        self._device = self._chosen(index)
        self._name = self._load(api.cuDeviceGetName(256, self._device)).split(b"\0")[0].decode()
        self._context = self._load(api.cuDevicePrimaryCtxRetain(self._device))
        self._current()
        flag = api.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._stream = self._load(api.cuStreamCreate(int(flag), 0))
        self._kernels: dict[str, tuple[Any, Groups, int]] = {}
        self._maps: dict[str, KernelMaps] = {}

    def _chosen(self, index: int) -> Any:
        count = self._load(self._api.cuDeviceGetCount())
        if not 0 <= index < count:
            raise LoadError(f"there is no GPU {index}: this machine has {count}, the first is 0")
        return self._load(self._api.cuDeviceGet(index))

    @property
    def name(self) -> str:
        """What its driver calls it."""
        return self._name

    @property
    def memory(self) -> int:
        """Bytes that it has in all."""
        return int(self._run(self._api.cuDeviceTotalMem(self._device)))

    @property
    def stream(self) -> int:
        """Its stream, for those who wait for it on the device."""
        return int(self._stream)

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Load machine code, or have PTX compiled by the driver."""
        if not kernels:
            return
        self._current()
        module = self._load(self._api.cuModuleLoadData(code + b"\0"))
        self._kernels = {
            name: (self._load(self._api.cuModuleGetFunction(module, name.encode())), size,
                   self._shared(module, name))
            for name, size in kernels.items()
        }  # fmt: skip
        texts = {name: self._beside(module, name + _MAPS) for name in kernels}
        self._maps = {name: KernelMaps(text) for name, text in texts.items() if text}
        attribute = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        for function, _, shared in self._kernels.values():
            if shared:
                self._load(self._api.cuFuncSetAttribute(function, attribute, shared))

    def _shared(self, module: Any, name: str) -> int:
        """Bytes of shared memory that a kernel does not have of itself."""
        return int.from_bytes(self._beside(module, name + _SHARED_BYTES), "little")

    def _beside(self, module: Any, name: str) -> bytes:
        """What a module holds by a name, nothing if there is no such name."""
        status, place, size = self._api.cuModuleGetGlobal(module, name.encode())
        if self._said(status):
            return b""
        held = ctypes.create_string_buffer(size)
        self._load(self._api.cuMemcpyDtoH(ctypes.addressof(held), place, size))
        return held.raw

    def allocate(self, size: int) -> CudaMemory:
        """Memory of the pool."""
        self._current()
        status, address = self._api.cuMemAllocAsync(max(1, size), self._stream)
        if self._said(status) == "CUDA_ERROR_OUT_OF_MEMORY":
            raise OutOfDeviceMemoryError(self.name, size, self.memory)
        return CudaMemory(self, self._run((status, address)), size)

    def free(self, address: int) -> None:
        """Give memory back to the pool."""
        self._api.cuMemFreeAsync(address, self._stream)

    def upload(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copy from the host, which may write there again at once."""
        self._current()
        self._run(
            self._api.cuMemcpyHtoDAsync(_address(memory) + offset, address, size, self._stream)
        )

    def download(self, memory: DeviceMemory, offset: int, address: int, size: int) -> None:
        """Copy to the host, and wait for it."""
        self._current()
        self._run(
            self._api.cuMemcpyDtoHAsync(address, _address(memory) + offset, size, self._stream)
        )
        self.synchronize()

    def copy(
        self, to: DeviceMemory, to_offset: int, source: DeviceMemory, offset: int, size: int
    ) -> None:
        """Copy within the device; places that overlap by way of other memory."""
        self._current()
        target, first = _address(to) + to_offset, _address(source) + offset
        if abs(target - first) < size:
            between = self.allocate(size)
            self._run(self._api.cuMemcpyDtoDAsync(between.address, first, size, self._stream))
            first = between.address
        self._run(self._api.cuMemcpyDtoDAsync(target, first, size, self._stream))

    def launch(
        self,
        kernel: str,
        buffers: Sequence[tuple[DeviceMemory, int]],
        sizes: Sequence[int],
        grid: Groups,
    ) -> None:
        """Run a kernel."""
        self._current()
        function, threads, shared = self._kernels[kernel]
        addresses = [_address(memory) + offset for memory, offset in buffers]
        given = [*map(ctypes.c_uint64, addresses)]
        given += [ctypes.c_uint64(size & (1 << 64) - 1) for size in sizes]
        places = [*map(ctypes.addressof, given)]
        if kernel in self._maps:
            maps = self._maps[kernel].of(self._api, addresses, sizes, self._run)
            places += [one.getPtr() for one in maps]
        table = (ctypes.c_void_p * max(1, len(places)))(*places)
        where = ctypes.addressof(table)
        self._run(
            self._api.cuLaunchKernel(function, *grid, *threads, shared, self._stream, where, 0)
        )

    def synchronize(self) -> None:
        """Wait for all work."""
        self._current()
        self._run(self._api.cuStreamSynchronize(self._stream))

    # --- what the driver says

    def _current(self) -> None:
        """Calls of this thread are for this GPU."""
        self._run(self._api.cuCtxSetCurrent(self._context))

    def _said(self, status: Any) -> str:
        """The name of an error, "" of none."""
        if int(status) == 0:
            return ""
        _, name = self._api.cuGetErrorName(status)
        return name.decode() if name else f"error {int(status)}"

    def _load(self, result: tuple[Any, ...]) -> Any:
        """A result, while the model is loaded."""
        said = self._said(result[0])
        if said:
            why = _TOO_OLD.get(said, "restart the driver, or compile for another target")
            raise LoadError(f"{self._name} does not take the model ({said}): {why}")
        return result[1] if len(result) > 1 else None

    def _run(self, result: tuple[Any, ...]) -> Any:
        """A result, while the model runs."""
        said = self._said(result[0])
        if said:
            raise RunError(
                f"{self._name} did not do its work ({said}); load the model again, and if that "
                "fails, start the process anew: a GPU that has failed takes nothing more from it"
            )
        return result[1] if len(result) > 1 else None


def _address(memory: DeviceMemory) -> int:
    assert isinstance(memory, CudaMemory)
    return memory.address
