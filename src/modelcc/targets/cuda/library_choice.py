"""The expected speedup of a library over our kernel, by the machine's roofline and by the estimate
of our schedule.  Nothing here has been measured on a GPU."""

from __future__ import annotations

from math import prod

from modelcc.schedule.group_schedule import GroupReduction
from modelcc.schedule.schedule import Schedule
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.expected_time import LEAST_SECONDS, contraction_seconds
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.tensor_product import ROUNDED
from modelcc.targets.gpu.sizes import count, number

LIBRARY_PART = 0.75
"""The part of the machine's peak rate that a library's products reach if there are enough of
them."""

PLAIN_PART = 0.05
"""The same for a thread per result, which loads both factors for each product."""


def library_gain(kernel: GroupKernel, schedule: Schedule | None, machine: GpuModel) -> float:
    """The speedup of a library over ``schedule`` for a product or convolution; both take at least
    the time of their memory traffic, and of any kernel."""
    anchor = kernel.group.anchor
    assert anchor is not None
    products = float(count(anchor.parallel) * count(anchor.reduce))
    moved = sum(prod(map(number, t.shape)) * t.dtype.bytes for t in kernel.types.values())
    memory = moved / (machine.bandwidth * 1e9)
    dtype = kernel.types[kernel.kernel.inputs[0]].dtype
    plain = dtype.bits == 32 and ROUNDED not in machine.matrix
    rate = machine.flops if plain else machine.matrix_flops * 2 / dtype.bytes
    theirs = 2 * products / (LIBRARY_PART * rate * 1e12)
    ours = contraction_seconds(kernel, schedule, machine)
    if isinstance(schedule, GroupReduction):
        ours = 0.0  # it is bound by memory
    if ours is None:
        ours = 2 * products / (PLAIN_PART * machine.flops * 1e12)
    least = max(memory, LEAST_SECONDS)
    return max(ours, least) / max(theirs, least)
