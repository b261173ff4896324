"""The processor that tests compile for: pytest's ``--cpu``, or ``MODELCC_CPU``, or this one."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from modelcc.environment import read_environment
from modelcc.options import Options
from modelcc.targets.base import TargetOptions
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.native.host import processor_of
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import host_machine


def chosen_machine() -> Machine:
    """The processor, for LLVM."""
    return _processor_of(read_environment(os.environ).cpu)[0]


def chosen_cpu() -> CpuModel:
    """The processor, as schedules see it."""
    return cpu_named(read_environment(os.environ).cpu)


def cpu_named(name: str) -> CpuModel:
    """A processor as schedules see it."""
    return _processor_of(name)[1]


# Finding out reads files, a millisecond and more each time that a test asks.
@cache
def _processor_of(cpu: str) -> tuple[Machine, CpuModel]:
    return processor_of(TargetOptions(cpu=cpu), host_machine())


def chosen_options(**others: Any) -> Options:
    """Options to compile for the processor."""
    return Options(cpu=read_environment(os.environ).cpu, **others)


def chosen_target_options() -> TargetOptions:
    """Options to make a target for the processor."""
    return TargetOptions(cpu=read_environment(os.environ).cpu)
