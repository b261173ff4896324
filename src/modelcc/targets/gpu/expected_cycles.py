"""What kernels are expected to take, as their schedules are chosen by."""

from __future__ import annotations

from math import prod

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import (
    GroupProduct,
    GroupReduction,
    GroupSchedule,
    Pointwise,
    TensorProduct,
)
from modelcc.schedule.schedule import NoScheduleError
from modelcc.targets.gpu.choice import UNIT_PRODUCTS, cost_after, product_time
from modelcc.targets.gpu.contraction import group_contraction
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.sizes import number
from modelcc.targets.gpu.tensor_choice import tensor_time
from modelcc.targets.gpu.tensor_product import matrix_type
from modelcc.targets.gpu.weights import weight_layouts, with_weights

LAUNCH_SECONDS = 2e-6
"""That a kernel takes, however little it does."""


def expected_cycles(kernel: Kernel, program: TensorProgram, machine: GpuModel) -> float | None:
    """Of a unit, for a kernel of ``program`` by default: by tiles of a product, or, for points, by
    the bytes that are moved; 0 for few rows of a product, which take the time of reading constants
    however they are cut into kernels.  None for all others."""
    own = canonical(kernel, program.types, frozenset(program.constants), program.dims)[0]
    grouped = GroupKernel(with_weights(own, weight_layouts(own)), "kernel")
    try:
        schedule = default_schedule(grouped.kernel, machine)
    except NoScheduleError:
        return None
    if isinstance(schedule, GroupReduction):
        return 0.0
    if isinstance(schedule, Pointwise) and grouped.group.anchor is None:
        moved = sum(prod(map(number, t.shape)) * t.dtype.bytes for t in grouped.types.values())
        seconds = max(machine.seconds(0, moved), LAUNCH_SECONDS)
        return seconds * _cycles_of_second(machine)
    return _of_tiles(grouped, schedule, machine)


def _cycles_of_second(machine: GpuModel) -> float:
    """By what all units multiply and add in f32."""
    return machine.flops * 1e12 / (2 * UNIT_PRODUCTS * machine.units)


def _of_tiles(kernel: GroupKernel, schedule: GroupSchedule, machine: GpuModel) -> float | None:
    if not isinstance(schedule, GroupProduct | TensorProduct):
        return None
    anchor, found = kernel.group.anchor, group_contraction(kernel.group)
    if anchor is None or found is None:
        return None
    if isinstance(schedule, GroupProduct):
        time = product_time(schedule, found, machine, cost_after(kernel.group))
        return None if time is None else time / UNIT_PRODUCTS
    dtype = matrix_type(anchor, found)
    return None if dtype is None else tensor_time(schedule, found, dtype, machine)
