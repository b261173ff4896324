"""Programmatic dependent launch: kernels that may start before the previous one has ended, on GPUs
from sm_90 on."""

from __future__ import annotations

from typing import Any

from modelcc.runtime.devices.device import Groups
from modelcc.runtime.streams.cuda_calls import CudaCalls

KERNELS_WAIT = "kernels_wait"
"""A global of modules whose kernels all wait until the previous one has ended."""

_FIRST_DRIVER = 12030
"""CUDA 12.3 is the first one that captures such launches."""

_REFUSALS = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"


class ProgrammaticLaunches:
    """Launches that overlap with the previous kernel, if a kernel was issued last
    (``behind_kernel``), for kernels that wait, as long as the driver accepts such launches."""

    def __init__(self, calls: CudaCalls) -> None:
        self._calls = calls
        self._taken = False
        self.behind_kernel = False

    def have_waiting(self, found: bytes) -> None:
        """Kernels wait if a global called :data:`KERNELS_WAIT` is ``found``."""
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
        """Launches a kernel; False if it has to be launched after all earlier work."""
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
