"""What kernels do while the one before them ends, on machines that launch them so early.

Operands of products that no kernel of the program makes (weights) are on their way to the cache of
all units before a kernel may read what the one before it writes.  Where few rows are multiplied
these bytes are nearly all that it reads, and small kernels (norms, rotary embeddings) between
products leave the memory idle.  Which operands are made by others shows when all tensors have their
places (:func:`modelcc.targets.gpu.device_program.with_places`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from modelcc.ir.index import symbols
from modelcc.ir.loop import Function, Parameter
from modelcc.ir.loop_traversal import launch_extents
from modelcc.ir.scalar_tree import reads
from modelcc.schedule.group_schedule import (
    GroupProduct,
    GroupReduction,
    GroupRowProduct,
    TensorProduct,
)
from modelcc.schedule.schedule import Schedule
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.rows.row_product import find_row_product
from modelcc.targets.llvm.groups import shared_bytes

LEAST_BYTES = 32 << 10
"""Of an operand that is worth it: what a memory of 3,000 GB/s moves in ten nanoseconds."""

CACHE_SHARE = 4
"""So manieth of the cache an operand may fill ahead; the rest is for what others still have."""

ROOM, LITTLE_SHARED = 8, 8 << 10
"""So manieth of all threads of a machine, and bytes that groups share, which others hardly miss."""


def overlapping(
    function: Function, kernel: GroupKernel, schedule: Schedule, machine: GpuModel
) -> Function:
    """``function``, which is ``kernel`` by ``schedule``, with what may be done ahead of it and
    beside it."""
    if not machine.overlaps:
        return function
    multiplies = isinstance(
        schedule, GroupReduction | GroupRowProduct | GroupProduct | TensorProduct
    )
    if isinstance(schedule, GroupRowProduct):
        kernel = find_row_product(kernel).product
    names = _multiplied(kernel) if multiplies else frozenset[str]()
    most = machine.l2_bytes // CACHE_SHARE

    def prefetched(parameter: Parameter) -> int:
        size = _bytes(parameter) if parameter.buffer.name in names else 0
        return min(size, most) if size >= LEAST_BYTES else 0

    parameters = tuple(replace(p, prefetched=prefetched(p)) for p in function.parameters)
    return replace(function, parameters=parameters, early=leaves_room(function, machine))


def leaves_room(function: Function, machine: GpuModel) -> bool:
    """Whether all groups of ``function`` take a small part of the machine, whatever its sizes:
    where they took more, those of the next kernel would crowd on the units that are left."""
    extents = [n for each in launch_extents(function) for n in each]
    threads = prod(n for n in extents if isinstance(n, int))
    known = all(isinstance(n, int) for n in extents)
    few = threads * ROOM <= machine.units * machine.unit_threads
    return known and few and shared_bytes(function) <= LITTLE_SHARED


def _multiplied(kernel: GroupKernel) -> frozenset[str]:
    """Operands that sums are made of, read at places that no data decide."""
    found = set[str]()
    for nest in kernel.group.anchors:
        loops = {v.name for v in (*nest.parallel, *nest.reduce)}
        terms = {v.name for v in nest.reduce}
        for read in reads(nest.body):
            by = {name for index in read.indices for name in symbols(index)}
            if by <= loops and by & terms:
                found.add(read.tensor)
    return frozenset(found)


def _bytes(parameter: Parameter) -> int:
    size = parameter.buffer.size
    return size * parameter.buffer.dtype.bytes if isinstance(size, int) else 0
