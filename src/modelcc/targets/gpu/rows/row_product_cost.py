"""Whether products of rows that stages before them make are expected to pay as one kernel."""

from __future__ import annotations

from modelcc.ir.index import symbols
from modelcc.ir.scalar_tree import cost, reads
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupRowProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.choice import UNIT_PRODUCTS, cycles_seconds
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.expected_time import LAUNCH_SECONDS
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.partial_sums import CACHED_BYTES
from modelcc.targets.gpu.products.weights import weight_layouts, with_weights
from modelcc.targets.gpu.rows.row_product import RowProductParts, find_row_product
from modelcc.targets.gpu.rows.row_product_choice import keeps_busy, row_product_schedules, teams_of
from modelcc.targets.gpu.sizes import count

SAVED_SECONDS = LAUNCH_SECONDS / 2
"""By a launch less, at least, where a kernel comes before the one before it has ended."""


def pays_as_row_product(kernel: Kernel, program: TensorProgram, machine: GpuModel) -> bool:
    """Whether a launch takes longer than all groups of a kernel of ``program`` take to make its
    rows again, and these leave room for as many threads."""
    own = canonical(kernel, program.types, frozenset(program.constants), program.dims)[0]
    grouped = GroupKernel(with_weights(own, weight_layouts(own, machine)), "kernel")
    try:
        schedule = next(row_product_schedules(grouped, machine), None)
    except ScheduleError:
        return False
    if schedule is None or not keeps_busy(find_row_product(grouped), schedule, machine):
        return False
    cycles = repeated_cycles(grouped, schedule, machine)
    return cycles_seconds(cycles, machine) < SAVED_SECONDS


def repeated_cycles(kernel: GroupKernel, schedule: GroupRowProduct, machine: GpuModel) -> float:
    """Of a unit, for making the rows of a kernel by ``schedule`` as often as it has groups."""
    parts, product = find_row_product(kernel), schedule.product
    nests, row = parts.stages.nests, count(parts.stages.row)
    along = [nest for nest in nests if nest.reduce or nest.output in parts.stages.walking]
    operations = row * parts.count * sum(cost(nest.body) for nest in along)
    groups = -(-teams_of(parts, product) // product.results)
    rounds = -(-groups // machine.units)
    size = row * _place_bytes(parts)
    return rounds * max(size / CACHED_BYTES, operations / UNIT_PRODUCTS)


def _place_bytes(parts: RowProductParts) -> int:
    """That are read for a place of all rows; what is the same for all of these is then near."""
    made = {nest.output for nest in parts.stages.nests}
    outer = {v.name for v in parts.stages.outer}
    found: dict[str, int] = {}
    for read in (r for nest in parts.stages.nests for r in reads(nest.body)):
        if read.tensor not in made:
            moves = any(symbols(index) & outer for index in read.indices)
            found[read.tensor] = read.dtype.bytes * (parts.count if moves else 1)
    return sum(found.values())
