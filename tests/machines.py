"""The processor that tests compile for: pytest's ``--cpu``, or ``MODELCC_CPU``, or this one."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from modelcc.environment import read_environment
from modelcc.options import Options
from modelcc.targets.base import TargetOptions
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.native.host import cpu_model, machine_of
from modelcc.targets.native.machine import Machine


def chosen_machine() -> Machine:
    """The processor, for LLVM."""
    return _machine_of(read_environment(os.environ).cpu)


def chosen_cpu() -> CpuModel:
    """The processor, as schedules see it."""
    return _cpu_model(chosen_machine())


# Finding out reads files, a millisecond and more each time that a test asks.
@cache
def _machine_of(cpu: str) -> Machine:
    return machine_of(cpu)


@cache
def _cpu_model(machine: Machine) -> CpuModel:
    return cpu_model(machine, 1)


def chosen_options(**others: Any) -> Options:
    """Options to compile for the processor."""
    return Options(cpu=read_environment(os.environ).cpu, **others)


def chosen_target_options() -> TargetOptions:
    """Options to make a target for the processor."""
    return TargetOptions(cpu=read_environment(os.environ).cpu)
