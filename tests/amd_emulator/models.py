"""Models for AMD's GPUs on what stands for HIP, their kernels run by their LLVM text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from amd_emulator.kernels import Groups, HostKernels
from cuda_driver import FakeDriver, Kernel
from hip_stand_in import FakeHip

from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.program import Program
from modelcc.options import Options
from modelcc.pipeline import StageRun
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.session import Session
from modelcc.runtime.streams.hip_device import HipDevice
from modelcc.runtime.streams.hip_library import declare
from modelcc.targets.amdgpu.chips import CHIPS
from modelcc.targets.amdgpu.target import kernels_of
from modelcc.targets.gpu.device_program import device_functions, with_places

_MEMORY = 1 << 33


def emulated_session(model: Path, chip: str, options: Options, backwards: bool = False) -> Session:
    """A model compiled for ``chip``, on its GPU; the last groups and threads go first if
    ``backwards``."""
    seen: list[Program] = []

    def observer(run: StageRun) -> None:
        seen.extend(p for p in (run.after,) if isinstance(p, Program))

    asked = replace(options, target=f"amdgpu:{chip}")
    artifact = compile_model(model, asked, NOWHERE, observer).artifact
    functions = with_places(device_functions(seen[-1]), seen[-1])
    text = kernels_of(chip).text(functions, CHIPS[chip].limits)
    engine = FakeDriver({}, _MEMORY)
    engine.kernels |= emulated_kernels(text, CHIPS[chip].warp, engine, backwards)
    device = HipDevice(declare(FakeHip({}, chip=chip, engine=engine)), 0)
    return Session(artifact, 1, DeviceCode(artifact, device))


def emulated_kernels(
    text: str, wave: int, engine: FakeDriver, backwards: bool
) -> dict[str, tuple[Kernel, int, int]]:
    """Those of a text, which may touch what ``engine`` has given."""
    code = HostKernels(text, wave, backwards)

    def emulated(name: str) -> Kernel:
        def kernel(grid: Groups, threads: Groups, *given: int) -> None:
            assert threads == code.kernels[name].threads
            ranges = [(address, size) for address, (_, size, _) in engine.given.items()]
            code.run(name, given, grid, ranges)

        return kernel

    return {n: (emulated(n), k.buffers, k.sizes) for n, k in code.kernels.items()}
