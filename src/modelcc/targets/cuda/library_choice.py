"""How much faster than a kernel of ours a library's is expected to be, by the roofline of the
machine and by how our schedule fills it.  Nothing here has been measured on a GPU."""

from __future__ import annotations

from math import prod

from modelcc.schedule.group_schedule import GroupReduction
from modelcc.schedule.schedule import Schedule
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.expected_time import LEAST_SECONDS, contraction_seconds
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.sizes import count, number
from modelcc.targets.gpu.tensor_product import ROUNDED

LIBRARY_PART = 0.75
"""Of the rate that a machine has at most, what a library's products come to where there are
enough of them."""

PLAIN_PART = 0.05
"""What a thread for each result comes to: it loads both factors for each product."""


def library_gain(kernel: GroupKernel, schedule: Schedule | None, machine: GpuModel) -> float:
    """How many times faster a library is expected to compute a product or convolution than
    ``schedule`` does; both take at least as long as what they read and write, and any kernel."""
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
        ours = 0.0  # what it reads takes longer
    if ours is None:
        ours = 2 * products / (PLAIN_PART * machine.flops * 1e12)
    least = max(memory, LEAST_SECONDS)
    return max(ours, least) / max(theirs, least)
