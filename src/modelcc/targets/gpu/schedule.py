"""Programs of kernels for groups of threads: a function for each, or for each of its stages."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.errors import ModelError
from modelcc.ir.program import Program
from modelcc.ir.tensor import Item, Kernel, ReadSize, Scatter, TensorProgram, View
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.group_schedule import GroupScatter, ListedScatter
from modelcc.schedule.schedule import Schedule
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel
from modelcc.targets.gpu.lower import schedule_groups_kernel
from modelcc.targets.gpu.machine import PROCESSOR, GpuModel
from modelcc.targets.gpu.scatter.scatter import schedule_group_scatter
from modelcc.targets.gpu.working_memory import with_working_memory


def schedule_groups(
    program: TensorProgram, wanted: Schedule | None = None, machine: GpuModel = PROCESSOR
) -> Program:
    """Launches of the kernels of ``program``, scheduled as ``wanted`` or by default; stages that no
    schedule takes together have a launch each.

    :class:`ModelError` for what is no kernel, scatter or view, :class:`ScheduleError` if ``wanted``
    does not fit a kernel.
    """
    for item in program.items:
        if not isinstance(item, Kernel | Scatter | View):
            raise refused(item)

    lower = GroupLowering(machine, wanted)
    found = schedule_program(program, CpuModel(), lower=lower, scatter=lower.scatter)
    return with_working_memory(found)


def refused(item: Item) -> ModelError:
    """The error for what no kernel computes."""
    what = f"groups of threads have no schedule for {type(item).__name__}"
    if not isinstance(item, ReadSize) or item.symbols:
        return ModelError(what, item.source, "compile for a target with a host: modelcc targets")
    demands = " and ".join(map(str, item.requires))
    what = f"{what}: the model runs only with {demands}, which kernels do not check"
    return ModelError(what, item.source, "fix these dimensions when compiling (--dim NAME=SIZE)")


@dataclass(frozen=True)
class GroupLowering:
    """Makes functions of groups for ``gpu``, with the ``asked`` schedule or by default."""

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
        asked = None if isinstance(self.asked, GroupScatter | ListedScatter) else self.asked
        return schedule_groups_kernel(kernel, name, self.gpu, source, wanted or asked, states)

    def scatter(
        self,
        kernel: CanonicalKernel,
        initial: str,
        name: str,
        machine: CpuModel,
        source: tuple[str, ...] = (),
    ) -> tuple[ScheduledKernel, ...]:
        """Functions of updates: a :class:`~modelcc.targets.cpu.schedule.LowerScatter`."""
        wanted = self.asked if isinstance(self.asked, GroupScatter | ListedScatter) else None
        return schedule_group_scatter(kernel, initial, name, self.gpu, source, wanted)
