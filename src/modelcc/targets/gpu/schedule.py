"""Programs of kernels for groups of threads: a function for each, or for each of its stages."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.errors import ModelError
from modelcc.ir.program import Program
from modelcc.ir.tensor import Kernel, TensorProgram, View
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Schedule
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel
from modelcc.targets.gpu.lower import schedule_groups_kernel
from modelcc.targets.gpu.machine import PROCESSOR, GpuModel


def schedule_groups(
    program: TensorProgram, wanted: Schedule | None = None, machine: GpuModel = PROCESSOR
) -> Program:
    """Launches of the kernels of ``program``, scheduled as ``wanted`` or by default; stages that no
    schedule takes together have a launch each.

    :class:`ModelError` for what is no kernel or view, :class:`ScheduleError` if ``wanted`` does not
    fit a kernel.
    """
    for item in program.items:
        if not isinstance(item, Kernel | View):
            what = type(item).__name__
            raise ModelError(f"groups of threads have no schedule for {what}", item.source)

    lower = GroupLowering(machine, wanted)
    return schedule_program(program, CpuModel(), lower=lower)


@dataclass(frozen=True)
class GroupLowering:
    """Makes functions of groups for ``gpu``, as all are ``asked`` or by default."""

    gpu: GpuModel
    asked: Schedule | None = None

    def __call__(
        self,
        kernel: CanonicalKernel,
        name: str,
        machine: CpuModel,
        source: tuple[str, ...] = (),
        wanted: Schedule | None = None,
        states: frozenset[tuple[str, str]] = frozenset(),
    ) -> ScheduledKernel:
        return schedule_groups_kernel(kernel, name, self.gpu, source, wanted or self.asked, states)
