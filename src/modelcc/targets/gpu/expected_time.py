"""Seconds that a product or convolution is expected to take by its schedule."""

from __future__ import annotations

from modelcc.schedule.group_schedule import GroupProduct, TensorProduct
from modelcc.schedule.nest import Nest
from modelcc.schedule.schedule import Schedule
from modelcc.targets.gpu.choice import product_time
from modelcc.targets.gpu.contraction import find_contraction
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.tensor_choice import tensor_time
from modelcc.targets.gpu.tensor_product import matrix_type

LEAST_SECONDS = 3e-6
"""That any kernel takes: until its groups have begun, and their first tiles are there."""


def contraction_seconds(
    anchor: Nest, schedule: Schedule | None, machine: GpuModel, clock: float
) -> float | None:
    """That ``schedule`` is expected to compute ``anchor``, on units of ``clock`` GHz; None if it
    has no tiles."""
    found = find_contraction(anchor)
    if found is None:
        return None
    if isinstance(schedule, GroupProduct):
        time = product_time(schedule, found, machine)
        return None if time is None else 2 * time * machine.units / (machine.flops * 1e12)
    dtype = matrix_type(anchor, found)
    if not isinstance(schedule, TensorProduct) or dtype is None:
        return None
    cycles = tensor_time(schedule, found, dtype, machine)
    return None if cycles is None else cycles / (clock * 1e9)
