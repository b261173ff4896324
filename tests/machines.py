"""The processor that tests compile for: pytest's ``--cpu``, or ``MODELCC_CPU``, or this one."""

from __future__ import annotations

import os

from modelcc.environment import read_environment
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.native.host import cpu_model, machine_of
from modelcc.targets.native.machine import Machine


def chosen_machine() -> Machine:
    """The processor, for LLVM."""
    return machine_of(read_environment(os.environ).cpu)


def chosen_cpu() -> CpuModel:
    """The processor, as schedules see it."""
    return cpu_model(chosen_machine(), 1)
