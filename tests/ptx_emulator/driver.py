"""A driver of CUDA's whose GPU is emulated: kernels of modules run as their PTX says."""

# ruff: noqa: N802, N803

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
from cuda_driver import FakeDriver, Result, is_launchable
from ptx_emulator.machine import run_kernel, shared_layout
from ptx_emulator.memory import DeviceMemory
from ptx_emulator.syntax import KernelCode, Module, parse_module
from ptx_emulator.threads import PARAMETERS, Box, Surroundings
from ptx_emulator.traffic import Traffic

_MEMORY = 1 << 28


class PtxDriver(FakeDriver):
    """``early`` is when copies and products that nobody waits for are done; requests for memory are
    counted in ``traffic``."""

    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6)
    CUlaunchAttribute = SimpleNamespace
    CUlaunchConfig = SimpleNamespace
    CUlaunchAttributeValue = SimpleNamespace

    def __init__(
        self, early: bool = False, memory: int = _MEMORY, traffic: Traffic | None = None
    ) -> None:
        super().__init__({}, memory)
        self._early, self._traffic = early, traffic
        self._device_memory = DeviceMemory(memory)
        self._parsed: dict[int, Module] = {}
        self._names: dict[str, tuple[int, KernelCode]] = {}
        self._data: dict[int, dict[str, int]] = {}
        self.launches: list[str] = []

    def cuModuleLoadData(self, image: bytes) -> Result:
        """Takes PTX only, as a driver does that is newer than machine code: what stands behind that
        is given next."""
        if not image.lstrip().startswith(b"//"):
            return (209, 0)
        result = super().cuModuleLoadData(image)
        handle = int(str(result[1]))
        self._parsed[handle] = module = parse_module(image.rstrip(b"\0").decode())
        self._data[handle] = {}
        for name, held in module.data.items():
            place = self._device_memory.give(len(held))
            self._device_memory.write(place, held)
            self._data[handle][name] = place
        return result

    def cuModuleGetFunction(self, hmod: int, name: bytes) -> Result:
        text = name.decode()
        self._names[text] = hmod, self._parsed[hmod].kernels[text]
        return super().cuModuleGetFunction(hmod, name)

    def cuModuleGetGlobal(self, hmod: int, name: bytes) -> Result:
        held = self._parsed[hmod].data.get(name.decode())
        if held is None:
            return 500, 0, 0
        array = np.frombuffer(held, np.uint8)
        self.numbers[array.ctypes.data] = array
        return 0, array.ctypes.data, array.nbytes

    def cuMemAllocAsync(self, bytesize: int, hStream: int) -> Result:
        self._apart("cuMemAllocAsync")
        self._stream(hStream)
        address, context = self._device_memory.give(bytesize), self._context()
        assert context is not None
        self.given[address] = np.empty(0, np.uint8), bytesize, context
        return self._told("cuMemAllocAsync", address)

    def cuMemFreeAsync(self, dptr: int, hStream: int) -> Result:
        size = self.given[dptr][1]
        result = super().cuMemFreeAsync(dptr, hStream)
        self._device_memory.take(dptr, size)
        return result

    def cuLaunchKernelEx(self, config: Any, f: str, kernelParams: int, extra: int) -> Result:
        grid = config.gridDimX, config.gridDimY, config.gridDimZ
        block = config.blockDimX, config.blockDimY, config.blockDimZ
        return self.cuLaunchKernel(f, *grid, *block, config.sharedMemBytes, config.hStream,
                                   kernelParams, extra)  # fmt: skip

    def cuLaunchKernel(
        self,
        f: str,
        gridDimX: int, gridDimY: int, gridDimZ: int,
        blockDimX: int, blockDimY: int, blockDimZ: int,
        sharedMemBytes: int, hStream: int, kernelParams: int, extra: int,
    ) -> Result:  # fmt: skip
        grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        assert extra == 0
        if not is_launchable(grid, block):
            return (1,)
        assert sharedMemBytes == self.allowed.get(f, 0)
        handle, code = self._names[f]
        parameters, maps = self._parameters(code, kernelParams)
        given = sorted(self._parsed[handle].given_shared)
        shared, size = shared_layout(code, given, sharedMemBytes)
        own = {p.name: PARAMETERS + p.offset for p in code.parameters}
        names = self._data[handle] | shared | dict.fromkeys(code.local, 0) | own
        around = Surroundings(
            self._device_memory, names, parameters, maps, size, self._early, self._traffic
        )
        self.launches.append(f)
        stream = self._stream(hStream)

        def work() -> None:
            try:
                run_kernel(code, grid, block, around)
            except BaseException:
                stream.waiting.clear()  # a GPU that has failed does nothing more
                raise

        stream.ask(work)
        return self._told("cuLaunchKernel")

    def _parameters(self, code: KernelCode, table: int) -> tuple[bytes, dict[int, Box]]:
        places = (ctypes.c_void_p * len(code.parameters)).from_address(table)
        held, maps = bytearray(), dict[int, Box]()
        for parameter, place in zip(code.parameters, places, strict=True):
            held = held.ljust(parameter.offset, b"\0")
            held += ctypes.string_at(place or 0, parameter.size)
            if parameter.is_map:
                maps[parameter.offset] = self.encoded[place or 0]  # type: ignore[assignment]
        return bytes(held), maps
