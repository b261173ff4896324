"""Canonical kernels as functions of groups, or of the host's where groups have no schedule."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_traversal import checks_in, statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.targets.cpu.lower import NoScheduleError, schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import Pairs
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel
from modelcc.targets.gpu.lower import PointwiseGroups, StageLowering
from modelcc.targets.gpu.schedule import default_schedule


@dataclass(frozen=True)
class DeviceKernels:
    """Schedules kernels for groups within ``limits``: a :class:`~modelcc.targets.cpu.schedule.
    Lower`, whose machine is the host's."""

    limits: GroupLimits

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
        if len(kernel.stages) > 1:
            raise NoScheduleError
        function = self._grouped(kernel, name, source)
        if function is None:
            return schedule_kernel(kernel, name, machine, source, wanted, states)
        return ScheduledKernel(function, {}, ())

    def _grouped(
        self, kernel: CanonicalKernel, name: str, source: tuple[str, ...]
    ) -> Function | None:
        """A kernel of one stage for groups, if that is possible."""
        (stage,) = kernel.stages
        lowering = StageLowering(name, stage, dict(kernel.types), dict(kernel.dims), source)
        for schedule in (default_schedule(lowering), PointwiseGroups()):
            try:
                function = schedule.lower(lowering)
                verify_function(function, self.limits)
            except (ModelError, ScheduleError):
                continue
            if not (checks_in(function) and has_barriers(function)):
                return function
        return None


def has_barriers(function: Function) -> bool:
    """Whether the threads of a group wait for each other: none may leave before others then."""
    return any(isinstance(s, Barrier) for s in statements(function.body))
