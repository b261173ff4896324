"""Errors of NVIDIA's driver when models are loaded, as messages that say what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from modelcc.runtime.errors import LoadError
from modelcc.runtime.streams.cuda_code import (
    ARCHITECTURES,
    architecture_of,
    machine_code,
    ptx_behind,
)
from modelcc.runtime.streams.cuda_driver import CudaDriver
from modelcc.runtime.streams.stream_calls import StreamCalls

INSTALL = "install NVIDIA's driver, or compile for another target"

_OLD_DRIVER, _PTX_FAILED = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_INVALID_PTX"
_PTX = _OLD_DRIVER, _PTX_FAILED
_OTHER_GPU = "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE", _PTX_FAILED
"""PTX for a newer architecture fails, too."""
_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": "its driver has no compiler of PTX",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "parts of its driver differ in version: restart",
    }
)

_VERSION = re.compile(rb"^\.version (\d+)\.(\d+)", re.MULTILINE)


def cuda_of_ptx(major: int, minor: int) -> tuple[int, int]:
    """The release of CUDA whose driver first accepts this version of PTX: 7.0 to 7.8 and 8.0 to 8.5
    came with CUDA 11.0 to 11.8 and 12.0 to 12.5, 8.6 with 12.7 (PTX ISA's release notes)."""
    if major < 8:
        return 11, minor
    return (12, minor + (minor > 5)) if major == 8 else (major + 4, minor)


class CudaCalls(StreamCalls):
    """Results of ``api``, which is ``cuda.bindings.driver``, for the GPU called ``name``."""

    def __init__(self, api: Any, name: str) -> None:
        self.api = api
        self.cuda = CudaDriver(api)
        super().__init__(self.cuda, name)

    def refusal(self, said: str) -> str:
        return _REFUSED.get(said, super().refusal(said))

    def said(self, status: Any) -> str:
        """The name of an error, or "" if there is none."""
        return self.driver.error(status)

    def begin(self) -> None:
        """Initialises the driver; LoadError without one."""
        try:
            (status,) = self.api.cuInit(0)
        except Exception as error:  # the package raises classes of its own
            raise LoadError(f"there is no driver for NVIDIA's GPUs ({error}); {INSTALL}") from error
        if self.said(status):
            raise LoadError(f"NVIDIA's driver finds no GPU ({self.said(status)}); {INSTALL}")

    def module(self, code: bytes, capability: tuple[int, int]) -> Any:
        """Machine code, or PTX, as a module for the GPU, which has this compute ``capability``;
        if it does not accept the code, the PTX after it, if there is one."""
        machine, ptx = machine_code(code), ptx_behind(code)
        result = self.api.cuModuleLoadData(machine + b"\0")
        if self.said(result[0]) and ptx:
            again = self.api.cuModuleLoadData(ptx + b"\0")
            if not self.said(again[0]) or self.said(again[0]) == _OLD_DRIVER:
                machine, result = ptx, again
        said, version = self.said(result[0]), _VERSION.search(machine)
        if said in _PTX and version:
            self._refuse_version(said, *map(int, version.groups()))
        if said in _OTHER_GPU:
            raise LoadError(
                f"{self.name} does not take the model ({said}): it is compiled for another "
                f"architecture, and this GPU is {advice(*capability)}"
            )
        return self.load(result)

    def _refuse_version(self, said: str, major: int, minor: int) -> None:
        """LoadError if the driver is too old for this version of PTX."""
        number = int(self.load(self.api.cuDriverGetVersion()))
        needed, there = cuda_of_ptx(major, minor), (number // 1000, number % 1000 // 10)
        if there < needed or said == _OLD_DRIVER:
            raise LoadError(
                f"{self.name} does not take the model ({said}): its PTX {major}.{minor} needs the "
                f"driver of CUDA {needed[0]}.{needed[1]}, and this one is of CUDA "
                f"{there[0]}.{there[1]}: update the driver"
            )


def advice(major: int, minor: int) -> str:
    """What a GPU is, and how to compile for it."""
    own, chip = f"sm_{major}{minor}", architecture_of(major, minor)
    if chip is None:
        return f"{own}, for which no code is made ({ARCHITECTURES[0]} is the oldest): take another"
    return f"{own}: compile with --target cuda:{chip}"
