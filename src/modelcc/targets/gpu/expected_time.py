"""Seconds that kernels are expected to take, as their schedules are chosen by."""

from __future__ import annotations

from math import prod

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import (
    GroupProduct,
    GroupReduction,
    GroupRowProduct,
    GroupTranspose,
    Pointwise,
    TensorProduct,
)
from modelcc.schedule.schedule import NoScheduleError, Schedule
from modelcc.targets.gpu.choice import cost_after, cycles_seconds, product_time, products_seconds
from modelcc.targets.gpu.contraction import group_contraction
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.tensor_choice import tensor_time
from modelcc.targets.gpu.products.tensor_product import matrix_type
from modelcc.targets.gpu.products.weights import weight_layouts, with_weights
from modelcc.targets.gpu.sizes import number

LEAST_SECONDS = 3e-6
"""That any kernel takes: until its groups have begun, and their first tiles are there."""

LAUNCH_SECONDS = 2e-6
"""Of a launch more, whatever it does."""


def contraction_seconds(
    kernel: GroupKernel,
    schedule: Schedule | None,
    machine: GpuModel,
    after: float = 0.0,
) -> float | None:
    """That ``schedule`` is expected to compute products or convolutions, with so much work
    ``after`` the sum of each result; None if it has no tiles."""
    anchor, found = kernel.group.anchor, group_contraction(kernel.group)
    if anchor is None or found is None:
        return None
    if isinstance(schedule, GroupProduct):
        time = product_time(schedule, found, machine, after)
        return None if time is None else products_seconds(time, machine)
    dtype = matrix_type(anchor, found)
    if not isinstance(schedule, TensorProduct) or dtype is None:
        return None
    cycles = tensor_time(schedule, found, dtype, machine)
    return None if cycles is None else cycles_seconds(cycles, machine)


def kernel_seconds(kernel: Kernel, program: TensorProgram, machine: GpuModel) -> float | None:
    """For a kernel of ``program`` by default: by tiles of a product, or, for points, by the bytes
    that are moved; 0 for few rows of a product, which take the time of reading constants however
    they are cut into kernels.  None for all others."""
    own = canonical(kernel, program.types, frozenset(program.constants), program.dims)[0]
    grouped = GroupKernel(with_weights(own, weight_layouts(own, machine)), "kernel")
    try:
        schedule = default_schedule(grouped.kernel, machine)
    except NoScheduleError:
        return None
    if isinstance(schedule, GroupReduction | GroupRowProduct):
        return 0.0
    if isinstance(schedule, Pointwise | GroupTranspose) and grouped.group.anchor is None:
        moved = sum(prod(map(number, t.shape)) * t.dtype.bytes for t in grouped.types.values())
        return max(machine.seconds(0, moved), LAUNCH_SECONDS)
    after = cost_after(grouped.group)
    return contraction_seconds(grouped, schedule, machine, after)
