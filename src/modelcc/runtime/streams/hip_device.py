"""AMD GPUs as devices, by the HIP library of ROCm 6 and later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelcc.runtime.devices.device import Groups
from modelcc.runtime.dlpack import ROCM, ROCM_STREAM
from modelcc.runtime.errors import LoadError
from modelcc.runtime.streams.hip_driver import HipDriver
from modelcc.runtime.streams.hip_library import INSTALL, open_hip
from modelcc.runtime.streams.stream_calls import StreamCalls
from modelcc.runtime.streams.stream_device import LoadedKernel, StreamDevice

_OTHER_GPU = 98, 200, 209
"""hipErrorInvalidDeviceFunction, hipErrorInvalidImage, hipErrorNoBinaryForGpu."""

_NO_DEVICE = 100, 101
"""hipErrorNoDevice, hipErrorInvalidDevice, which hipInit returns for it."""


def open_device(index: int) -> HipDevice:
    """GPU number ``index``; LoadError tells how many there are."""
    return HipDevice(open_hip(), index)


def architecture(index: int) -> str:
    """The architecture of GPU number ``index``, such as ``gfx942``; LoadError if there is none."""
    return _chip(_opened(open_hip(), index))


class HipDevice(StreamDevice):
    """A GPU with a stream, by a declared HIP ``library``."""

    kind, dlpack, default_stream = "amdgpu", ROCM, ROCM_STREAM

    def __init__(self, library: Any, index: int) -> None:
        self._hip, calls = _opened(library, index)
        self._codes: list[bytes] = []
        calls.name = calls.load(self._hip.full_name())
        super().__init__(calls, index)
        calls.load(self._hip.keep_memory())

    def load(self, code: bytes, kernels: Mapping[str, Groups]) -> None:
        """Loads a code object."""
        if not kernels:
            return
        self._calls.enter()
        module, load = self._module(code), self._calls.load
        self._modules.append(module)
        self._codes.append(code)  # the driver may read it when kernels are looked up
        self._kernels = {
            name: LoadedKernel(load(self._hip.function(module, name)), size)
            for name, size in kernels.items()
        }

    def _module(self, code: bytes) -> Any:
        answer = self._hip.module(code)
        if answer[0] in _OTHER_GPU:
            chip = _chip((self._hip, self._calls))
            raise LoadError(
                f"{self.name} does not take the model ({self._hip.error(answer[0])}): it is "
                f"compiled for another architecture, and this GPU is {chip}: compile with "
                f"--target amdgpu:{chip}"
            )
        return self._calls.load(answer)


def _opened(library: Any, index: int) -> tuple[HipDriver, StreamCalls]:
    """The driver of a GPU that exists."""
    driver = HipDriver(library, index)
    calls = StreamCalls(driver, f"GPU {index}")
    for answer in (driver.begin(), driver.count()):
        if answer[0] in _NO_DEVICE:
            raise LoadError(f"HIP finds no GPU of AMD's ({driver.error(answer[0])}); {INSTALL}")
        count = calls.load(answer)
    if not 0 <= index < count:
        raise LoadError(f"there is no GPU {index}: HIP finds {count}, the first is 0")
    return driver, calls


def _chip(opened: tuple[HipDriver, StreamCalls]) -> str:
    driver, calls = opened
    return str(calls.load(driver.architecture())).split(":")[0]
