"""Canonical kernels as functions of groups, or of the host's where groups have no schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelcc.ir.errors import ModelError
from modelcc.ir.library import LibraryFunction, meaning_of
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import checks_in
from modelcc.ir.loop_verifier import verify_function
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import NoScheduleError, Schedule, ScheduleError
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.scatter import schedule_scatter
from modelcc.targets.cpu.schedule import Pairs
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel
from modelcc.targets.gpu.library_call import DeviceCall
from modelcc.targets.gpu.lower import schedule_groups_kernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.weights import with_weights
from modelcc.targets.gpu.scatter.scatter import schedule_group_scatter

OnHost: TypeAlias = Callable[[tuple[str, ...], str], None]


def _ignored(source: tuple[str, ...], why: str) -> None:
    pass


def _nothing(function: Function) -> str:
    return ""


def _unused(source: tuple[str, ...], call: DeviceCall) -> None:
    pass


def _none(kernel: CanonicalKernel, schedule: Schedule | None) -> DeviceCall | None:
    return None


@dataclass(frozen=True)
class DeviceKernels:
    """Schedules kernels for groups of ``gpu``: a :class:`~modelcc.targets.cpu.schedule.Lower`,
    whose machine is the host's.  ``on_host`` gets nodes whose kernel runs on the host, and why;
    ``lacks`` says what the device has not that a function takes; ``library`` is the call that
    may compute a kernel in place of our own schedule of it, which ``on_library`` is told of; where
    it raises :class:`ScheduleError`, ``on_refused`` is told why."""

    gpu: GpuModel
    on_host: OnHost = _ignored
    lacks: Callable[[Function], str] = _nothing
    library: Callable[[CanonicalKernel, Schedule | None], DeviceCall | None] = _none
    on_library: Callable[[tuple[str, ...], DeviceCall], None] = _unused
    on_refused: OnHost = _ignored

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
        found = self._grouped(kernel, name, source, states)
        if isinstance(found, ScheduledKernel):
            return self._by_library(kernel, name, source, found) or found
        if len(kernel.stages) > 1:
            raise NoScheduleError
        self.on_host(source, found)
        return schedule_kernel(kernel, name, machine, source, wanted, states)

    def _by_library(
        self, kernel: CanonicalKernel, name: str, source: tuple[str, ...], own: ScheduledKernel
    ) -> ScheduledKernel | None:
        """The kernel by a call, if there is one that is better than our ``own``."""
        try:
            call = self.library(kernel, own.schedule)
        except ScheduleError as error:
            self.on_refused(source, str(error))
            return None
        if call is None or checks_in(meaning_of(own.function)):
            return None
        self.on_library(source, call)
        if not call.pays:
            return None
        found: ScheduledKernel | str = own
        given = kernel
        if call.layouts != own.layouts:
            given = with_weights(kernel, call.layouts)
            given = replace(given, constants=kernel.constants - call.layouts.keys())
            found = self._grouped(given, name, source, frozenset())
        if isinstance(found, ScheduledKernel) and found.working:
            whole = replace(self, gpu=replace(self.gpu, arrivals=False))
            found = whole._grouped(given, name, source, frozenset())
        if isinstance(found, str):
            return None
        function = LibraryFunction(call.call, meaning_of(found.function))
        return replace(found, function=function, layouts=call.layouts, in_place=())

    def scatter(
        self,
        kernel: CanonicalKernel,
        initial: str,
        name: str,
        machine: CpuModel,
        source: tuple[str, ...] = (),
    ) -> tuple[ScheduledKernel, ...]:
        """Functions of updates: a :class:`~modelcc.targets.cpu.schedule.LowerScatter`."""
        found = schedule_group_scatter(kernel, initial, name, self.gpu, source)
        functions = [meaning_of(part.function) for part in found]
        try:
            for function in functions:
                verify_function(function, self.gpu.limits)
        except ModelError as error:
            why = error.message
        else:
            why = next((lack for f in functions if (lack := self.lacks(f))), "")
        if not why:
            return found
        self.on_host(source, why)
        return schedule_scatter(kernel, initial, name, machine, source)

    def _grouped(
        self, kernel: CanonicalKernel, name: str, source: tuple[str, ...], states: Pairs
    ) -> ScheduledKernel | str:
        """A kernel for groups, or why that is not possible."""
        try:
            found = schedule_groups_kernel(kernel, name, self.gpu, source, None, states)
            function = meaning_of(found.function)
            verify_function(function, self.gpu.limits)
        except ModelError as error:
            return error.message
        except ScheduleError as error:
            return str(error)
        except NoScheduleError:
            return "no schedule for groups of threads fits it"
        return self.lacks(function) or found
