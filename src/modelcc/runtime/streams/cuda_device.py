"""NVIDIA GPUs as devices, by the driver's API through ``cuda-bindings`` (the extra ``cuda``)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cuda.bindings import driver as cuda_driver

from modelcc.artifact.manifest import LibrarySpec
from modelcc.runtime.devices.device import DeviceMemory, Groups
from modelcc.runtime.dlpack import CUDA, LEGACY_STREAM
from modelcc.runtime.errors import LoadError, RunError
from modelcc.runtime.linking.libraries import function_of, open_library
from modelcc.runtime.streams.cublaslt import CublasLt
from modelcc.runtime.streams.cuda_calls import CudaCalls, advice
from modelcc.runtime.streams.cudnn import Cudnn
from modelcc.runtime.streams.programmatic_launch import KERNELS_WAIT, ProgrammaticLaunches
from modelcc.runtime.streams.stream_device import (
    LoadedKernel,
    StreamDevice,
    StreamGraph,
    address_of,
)
from modelcc.runtime.streams.stream_driver import Answer
from modelcc.runtime.streams.tensor_maps import KernelMaps
from modelcc.runtime.streams.vendor_library import VendorLibrary

_LIBRARIES: Mapping[str, Callable[[Callable[[str], int]], VendorLibrary]] = MappingProxyType(
    {"cublaslt": CublasLt, "cudnn": Cudnn}
)
"""Libraries, each constructed from a function that gives the addresses of its symbols."""

_SHARED_BYTES, _MAPS = "_shared_bytes", "_maps"
"""Suffixes of a kernel's constants: dynamic shared memory to launch it with, and the list of its
tensor maps."""


def open_device(index: int) -> CudaDevice:
    """GPU number ``index``; LoadError tells how many there are."""
    return CudaDevice(cuda_driver, index)


class CudaDevice(StreamDevice):
    """A GPU with a stream; ``api`` are the functions of ``cuda.bindings.driver``."""

    kind, dlpack, default_stream = "cuda", CUDA, LEGACY_STREAM

    def __init__(self, api: Any, index: int) -> None:
        self._api = api
        self._cuda = calls = CudaCalls(api, f"GPU {index}")
        calls.begin()
        self._device = self._chosen(index)
        calls.name = calls.load(api.cuDeviceGetName(256, self._device)).split(b"\0")[0].decode()
        calls.load(calls.cuda.open(self._device))
        self._maps: dict[str, KernelMaps] = {}
        self._libraries: dict[str, VendorLibrary] = {}
        super().__init__(calls, index)
        calls.load(calls.cuda.keep_memory())
        self._ahead, self.overlap = ProgrammaticLaunches(calls), True

    def _chosen(self, index: int) -> Any:
        count = self._cuda.load(self._api.cuDeviceGetCount())
        if not 0 <= index < count:
            raise LoadError(f"there is no GPU {index}: this machine has {count}, the first is 0")
        return self._cuda.load(self._api.cuDeviceGet(index))

    def _close(self) -> None:
        for library in self._libraries.values():
            library.close()

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Loads machine code, or has PTX compiled by the driver."""
        if not kernels:
            return
        self._calls.enter()
        load = self._calls.load
        module = self._cuda.module(code, self._capability())
        self._modules.append(module)
        self._ahead.have_waiting(self._beside(module, KERNELS_WAIT))
        get = self._api.cuModuleGetFunction
        self._kernels = {
            name: LoadedKernel(load(get(module, name.encode())), size, self._shared(module, name))
            for name, size in kernels.items()
        }
        texts = {name: self._beside(module, name + _MAPS) for name in kernels}
        self._maps = {name: KernelMaps(text) for name, text in texts.items() if text}
        for name, kernel in self._kernels.items():
            if kernel.shared:
                self._let_share(name, kernel)

    def _let_share(self, name: str, kernel: LoadedKernel) -> None:
        """Give a kernel its shared memory; LoadError if there is less."""
        attribute = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        answer = self._api.cuFuncSetAttribute(kernel.function, attribute, kernel.shared)
        most = self._number("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") if int(answer[0]) else 0
        if 0 < most < kernel.shared:
            raise LoadError(
                f"{self.name} does not take the model: groups of its kernel {name} share "
                f"{kernel.shared:,} bytes, and have {most:,} here; this GPU is "
                f"{advice(*self._capability())}"
            )
        self._calls.load(answer)

    def _capability(self) -> tuple[int, int]:
        """Major and minor number of its compute capability."""
        major, minor = (self._number(f"COMPUTE_CAPABILITY_{w}") for w in ("MAJOR", "MINOR"))
        return major, minor

    def _number(self, attribute: str) -> int:
        """What the driver says of the GPU."""
        kind = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}")
        return int(self._calls.load(self._api.cuDeviceGetAttribute(kind, self._device)))

    def _shared(self, module: Any, name: str) -> int:
        """Bytes of dynamic shared memory of a kernel."""
        return int.from_bytes(self._beside(module, name + _SHARED_BYTES), "little")

    def _beside(self, module: Any, name: str) -> bytes:
        """A global of a module by its name, empty if there is no such name."""
        status, place, size = self._api.cuModuleGetGlobal(module, name.encode())
        if self._cuda.said(status):
            return b""
        held = ctypes.create_string_buffer(size)
        self._calls.load(self._api.cuMemcpyDtoH(ctypes.addressof(held), place, size))
        return held.raw

    # --- work

    def _more(self, kernel: str, addresses: Sequence[int], sizes: Sequence[int]) -> Sequence[int]:
        """Addresses of tensor maps."""
        maps = self._maps.get(kernel)
        return [] if maps is None else maps.of(self._api, addresses, sizes, self._calls.run)

    def _start(self, kernel: LoadedKernel, grid: Groups, table: int) -> None:
        how, ahead = (kernel.shared, self._stream, table), self.overlap and self._recording
        given = kernel.function, grid, kernel.threads
        if not (ahead and self._ahead.launched(*given, *how)):
            super()._start(kernel, grid, table)
        self._ahead.behind_kernel = True

    def record(self, work: Callable[[], None]) -> StreamGraph:
        self._ahead.behind_kernel = False
        return super().record(work)

    def use(self, library: LibrarySpec) -> None:
        """Opens one of NVIDIA's libraries."""
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
        addresses = [address_of(memory) + offset for memory, offset in buffers]

        def ask() -> Answer:
            found.ask(elements, addresses, numbers, self.stream)
            return (0,)

        self._timed(ask)

    def _timed(self, call: Callable[..., Answer], *given: Any) -> None:
        self._ahead.behind_kernel = False
        super()._timed(call, *given)
