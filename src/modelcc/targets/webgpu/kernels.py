"""Canonical kernels as functions of groups that WGSL can say, or of the host's."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.library import meaning_of
from modelcc.ir.loop_traversal import grid_loop
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import NoScheduleError, Schedule
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.scatter import schedule_scatter
from modelcc.targets.cpu.schedule import Pairs
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel
from modelcc.targets.gpu.kernels import DeviceKernels
from modelcc.targets.webgpu.emitter import TooManyBuffersError, plain_function, verified_shader


@dataclass(frozen=True)
class ShaderKernels(DeviceKernels):
    """Those that WGSL can say."""

    def __call__(
        self,
        kernel: CanonicalKernel,
        name: str,
        machine: CpuModel,
        source: tuple[str, ...] = (),
        wanted: Schedule | None = None,
        states: Pairs = frozenset(),
    ) -> ScheduledKernel:
        """The function of a kernel; :class:`NoScheduleError` if its stages run one by one."""
        found = super().__call__(kernel, name, machine, source, wanted, states)
        function = meaning_of(found.function)
        if grid_loop(function) is None:
            return found
        try:
            verified_shader(plain_function(function))
        except TooManyBuffersError as error:
            if len(kernel.stages) > 1:  # each stage takes some of them
                raise NoScheduleError from None
            self.tell(source, str(error))
        except (NotImplementedError, TypeError) as error:
            self.tell(source, str(error))
        else:
            return found
        return schedule_kernel(kernel, name, machine, source, wanted, states)

    def scatter(
        self,
        kernel: CanonicalKernel,
        initial: str,
        name: str,
        machine: CpuModel,
        source: tuple[str, ...] = (),
    ) -> tuple[ScheduledKernel, ...]:
        """Functions of updates: a :class:`~modelcc.targets.cpu.schedule.LowerScatter`."""
        found = super().scatter(kernel, initial, name, machine, source)
        functions = [meaning_of(part.function) for part in found]
        try:
            for function in functions:
                if grid_loop(function) is not None:
                    verified_shader(plain_function(function))
        except (NotImplementedError, TypeError):
            return schedule_scatter(kernel, initial, name, machine, source)
        return found
