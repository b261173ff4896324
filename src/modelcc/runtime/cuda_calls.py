"""What NVIDIA's driver answers, as errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from modelcc.runtime.cuda_code import machine_code, ptx_behind
from modelcc.runtime.device import RecordingError
from modelcc.runtime.errors import LoadError, RunError

INSTALL = "install NVIDIA's driver, or compile for another target"

_OTHER_GPU = "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE"
_OLD_DRIVER = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
_PTX = _OLD_DRIVER, "CUDA_ERROR_INVALID_PTX"
_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": "its driver has no compiler of PTX",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "parts of its driver differ in version: restart",
    }
)
_HARMLESS = frozenset(
    f"CUDA_ERROR_{name}"
    for name in ("INVALID_VALUE", "OUT_OF_MEMORY", "LAUNCH_OUT_OF_RESOURCES", "NOT_SUPPORTED")
)
"""Errors of a call alone, after which the GPU does what it is asked for."""

_CAPTURE = "CUDA_ERROR_STREAM_CAPTURE"
"""Begins the names of errors of what a recording does not take."""

_VERSION = re.compile(rb"^\.version (\d+)\.(\d+)", re.MULTILINE)


def cuda_of_ptx(major: int, minor: int) -> str:
    """The release of CUDA whose driver is the first to take this version of PTX: 7.0 to 7.8 and 8.0
    to 8.5 came with CUDA 11.0 to 11.8 and 12.0 to 12.5, 8.6 with 12.7 (PTX ISA's release notes)."""
    if major < 8:
        return f"11.{minor}"
    return f"12.{minor + (minor > 5)}" if major == 8 else f"{major + 4}.{minor}"


class CudaCalls:
    """Results of ``api``, the functions of ``cuda.bindings.driver``, for the GPU called ``name``.

    Each function gives a tuple: its status, then what it returns.
    """

    def __init__(self, api: Any, name: str) -> None:
        self.api = api
        self.name = name
        self.context: Any = None
        self.lost = ""

    def said(self, status: Any) -> str:
        """The name of an error, "" of none."""
        if int(status) == 0:
            return ""
        _, name = self.api.cuGetErrorName(status)
        return name.decode() if name else f"error {int(status)}"

    def begin(self) -> None:
        """Before anything else; LoadError without a driver."""
        try:
            (status,) = self.api.cuInit(0)
        except Exception as error:  # what the package raises is of classes of its own
            raise LoadError(f"there is no driver for NVIDIA's GPUs ({error}); {INSTALL}") from error
        if self.said(status):
            raise LoadError(f"NVIDIA's driver finds no GPU ({self.said(status)}); {INSTALL}")

    def enter(self) -> None:
        """What this thread asks for from now on is for this GPU; RunError if it has failed."""
        if self.lost:
            raise RunError(
                f"{self.name} has failed before ({self.lost}): load the model again, and if that "
                "fails, start the process anew"
            )
        self.run(self.api.cuCtxSetCurrent(self.context))

    def load(self, result: tuple[Any, ...]) -> Any:
        """A result, while the model is loaded."""
        said = self.said(result[0])
        if said:
            why = _REFUSED.get(said, "restart the driver, or compile for another target")
            raise LoadError(f"{self.name} does not take the model ({said}): {why}")
        return result[1] if len(result) > 1 else None

    def module(self, code: bytes, chip: str) -> Any:
        """Machine code, or PTX, as a module for the GPU, whose architecture is ``chip``; where it
        does not take the code, the PTX behind it, if there is one."""
        machine, ptx = machine_code(code), ptx_behind(code)
        result = self.api.cuModuleLoadData(machine + b"\0")
        if self.said(result[0]) and ptx:
            again = self.api.cuModuleLoadData(ptx + b"\0")
            if not self.said(again[0]) or self.said(again[0]) == _OLD_DRIVER:
                machine, result = ptx, again
        said, version = self.said(result[0]), _VERSION.search(machine)
        if said in _PTX and version:
            major, minor = map(int, version.groups())
            raise LoadError(
                f"{self.name} does not take the model ({said}): its PTX {major}.{minor} needs the "
                f"driver of CUDA {cuda_of_ptx(major, minor)}, and this one is of CUDA "
                f"{self._driver()}: update the driver"
            )
        if said in _OTHER_GPU:
            raise LoadError(
                f"{self.name} does not take the model ({said}): it is compiled for another "
                f"architecture, and this GPU is {chip}: compile with --target cuda:{chip}"
            )
        return self.load(result)

    def _driver(self) -> str:
        number = int(self.load(self.api.cuDriverGetVersion()))
        return f"{number // 1000}.{number % 1000 // 10}"

    def run(self, result: tuple[Any, ...]) -> Any:
        """A result, while the model runs; an error of the GPU's is remembered as :attr:`lost`."""
        said = self.said(result[0])
        if said.startswith(_CAPTURE):
            raise RecordingError(f"{self.name} does not record this ({said})")
        if said in _HARMLESS:
            raise RunError(
                f"{self.name} did not take this call ({said}), and goes on, as do other models: "
                "smaller sizes, or less in its memory, would help"
            )
        if said:
            self.lost = said
            raise RunError(
                f"{self.name} did not do its work ({said}); load the model again, and if that "
                "fails, start the process anew: a GPU that has failed takes nothing more from it"
            )
        return result[1] if len(result) > 1 else None
