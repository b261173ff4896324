"""Launches of kernels that may begin before the one before them has ended, on GPUs from sm_90 on
(programmatic dependent launch)."""

from __future__ import annotations

from typing import Any

from modelcc.runtime.cuda_calls import CudaCalls
from modelcc.runtime.device import Groups

KERNELS_WAIT = "kernels_wait"
"""Stands in a module whose kernels all wait until the one before them has ended."""

_FIRST_DRIVER = 12030
"""CUDA 12.3 is the first one that records such launches."""

_REFUSALS = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"


class ProgrammaticLaunches:
    """Launches ahead of a kernel, if that is what was asked for last (``behind_kernel``), of
    kernels that wait, as long as the driver takes them."""

    def __init__(self, calls: CudaCalls) -> None:
        self._calls = calls
        self._taken = False
        self.behind_kernel = False

    def have_waiting(self, found: bytes) -> None:
        """Kernels wait if anything is ``found`` by the name :data:`KERNELS_WAIT`."""
        version = self._calls.load(self._calls.api.cuDriverGetVersion()) if found else 0
        self._taken = int(version) >= _FIRST_DRIVER

    def launched(
        self,
        function: Any,
        grid: Groups,
        threads: Groups,
        shared: int,
        stream: Any,
        arguments: int,
    ) -> bool:
        """Ask for a kernel; False if it has to be launched behind all that was asked for before."""
        if not (self._taken and self.behind_kernel):
            return False
        api = self._calls.api
        attribute, config = api.CUlaunchAttribute(), api.CUlaunchConfig()
        attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        value = api.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        attribute.value = value
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = threads
        config.sharedMemBytes, config.hStream = shared, stream
        config.attrs, config.numAttrs = [attribute], 1
        answer = api.cuLaunchKernelEx(config, function, arguments, 0)
        self._taken = self._calls.said(answer[0]) not in _REFUSALS
        if self._taken:
            self._calls.run(answer)
        return self._taken
