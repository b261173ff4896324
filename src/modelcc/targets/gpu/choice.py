"""Which schedules fit a kernel, the one that seems best first: by its structure, and by a model of
the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from modelcc.ir.index import Index
from modelcc.ir.scalar_tree import cost, reads
from modelcc.ir.tensor import Guard
from modelcc.schedule.group_schedule import GroupProduct, GroupScatter, GroupSchedule, Pointwise
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.attention_choice import attention_schedules, decode_schedules
from modelcc.targets.gpu.box_operand import box_product
from modelcc.targets.gpu.contraction import Contraction, find_contraction
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.operand_tile import vector_lanes
from modelcc.targets.gpu.partial_sums import parts_cycles, parts_of
from modelcc.targets.gpu.pointwise import takes_lanes
from modelcc.targets.gpu.row_choice import power_of_two, reduction_schedules, row_schedules
from modelcc.targets.gpu.sizes import FEW, count, number
from modelcc.targets.gpu.tensor_choice import tensor_tiles
from modelcc.targets.gpu.tensor_product import matrix_type
from modelcc.targets.gpu.tile_product import takes_boxes

TILES = (
    GroupProduct(128, 128, 8, 8, 8),
    GroupProduct(128, 64, 8, 8, 8),
    GroupProduct(64, 128, 8, 8, 8),
    GroupProduct(128, 64, 8, 8, 4),
    GroupProduct(64, 64, 8, 8, 4),
    GroupProduct(64, 64, 16, 4, 4),
    GroupProduct(32, 64, 16, 4, 4),
    GroupProduct(64, 32, 16, 4, 4),
    GroupProduct(32, 32, 16, 4, 4),
    GroupProduct(32, 32, 16, 2, 2),
    GroupProduct(16, 64, 16, 2, 4),
    GroupProduct(64, 16, 16, 4, 2),
    GroupProduct(16, 32, 16, 2, 2),
    GroupProduct(16, 16, 16, 2, 2),
    GroupProduct(16, 16, 16, 1, 1),
)
"""Tiles of products, before vectors and buffers."""

DEAR = 48
"""Cost of what follows a contraction that makes large tiles long to compile."""


UNIT_PRODUCTS = 128
"""Multiply-adds of a unit in a cycle, where groups count each other."""

SINGLE_BLOCK, APART = 3, 8
"""Terms whose factors are there at once without a loop over blocks, and registers of an element
that is read by itself."""


def choices(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    """Schedules that fit, the most promising first."""
    group = _group(kernel)
    if group is not None:
        yield from _of_points(kernel, group, machine)
    elif not kernel.leaves:
        for find in (row_schedules, decode_schedules, attention_schedules):
            try:
                yield from find(kernel, machine)
            except ScheduleError:
                continue


def _group(kernel: GroupKernel) -> Group | None:
    try:
        return kernel.group
    except ScheduleError:
        return None


def _of_points(kernel: GroupKernel, group: Group, machine: GpuModel) -> Iterator[GroupSchedule]:
    anchor = group.anchor
    plain = Pointwise(_threads(group, machine))
    if anchor is None:
        yield from _pointwise(group, machine)
        return
    if not kernel.leaves:
        found = find_contraction(anchor)
        if found is not None and count(anchor.reduce) >= FEW:
            yield from _on_matrix_units(kernel, found, anchor, machine)
            yield from tiles(found, group, machine)
        yield from reduction_schedules(group, machine)
    yield plain


def _on_matrix_units(
    kernel: GroupKernel, found: Contraction, anchor: Nest, machine: GpuModel
) -> Iterator[GroupSchedule]:
    """Of several rows and columns, in types that the machine's units have."""
    dtype = matrix_type(anchor, found)
    if dtype is not None and min(count(found.rows), count(found.columns)) >= FEW:
        product = None if kernel.checks else box_product(kernel, found)
        boxes = product if product is not None and takes_boxes(dtype, product) else None
        yield from tensor_tiles(found, dtype, machine, boxes)


def _pointwise(group: Group, machine: GpuModel) -> Iterator[GroupSchedule]:
    for lanes in (8, 4, 2, 1):
        if lanes <= _widest(group, machine) and takes_lanes(group, lanes):
            yield Pointwise(_threads(group, machine, lanes), lanes)


def _widest(group: Group, machine: GpuModel) -> int:
    """Elements of a vector that a thread moves at once, of the narrowest type."""
    if machine.lanes == 1:
        return 1
    moved = [r.dtype for n in group.nests for r in reads(n.body) if r.indices]
    moved += [nest.body.dtype for nest in group.nests if nest.output in group.stored]
    dear = sum(cost(nest.body) for nest in group.nests) > DEAR
    return machine.lanes if dear else 4 * machine.lanes // min(dtype.bytes for dtype in moved)


def _threads(group: Group, machine: GpuModel, lanes: int = 1) -> int:
    """Threads of a group: fewer where that gives each unit something to do."""
    return threads_of(count(group.final.parallel) // lanes, machine)


def threads_of(points: int, machine: GpuModel) -> int:
    """Threads of a group, of which ``points`` have one each."""
    threads = min(256, machine.group_threads)
    while threads > max(2 * machine.warp, 32) and points < threads * machine.units:
        threads //= 2
    return threads


def updating(
    apart: tuple[LoopVar, ...], meeting: tuple[LoopVar, ...], machine: GpuModel
) -> GroupScatter:
    """Owners of places, where updates may meet, until all units have something to do."""
    points = max(count(apart), 1)
    room = machine.units if machine.virtual else machine.units * machine.unit_threads
    owners = power_of_two(max(min(room // points, count(meeting)), 1)) if meeting else 1
    return GroupScatter(threads_of(points * owners, machine), owners)


def copying(elements: Index, machine: GpuModel) -> Pointwise:
    """Vectors, if they are whole."""
    whole = isinstance(elements, int) and elements % machine.lanes == 0
    lanes = machine.lanes if whole else 1
    return Pointwise(threads_of(number(elements) // lanes, machine), lanes)


def tiles(found: Contraction, group: Group, machine: GpuModel) -> Iterator[GroupSchedule]:
    """Tiles of a product by the time that they are expected to take."""
    rows, columns = count(found.rows), count(found.columns)
    if min(rows, columns) < FEW:
        return
    after = sum(cost(n.body) for n in group.nests if not n.reduce)
    width = machine.lanes if _whole(found.columns[-1], machine.lanes) else 1
    fitting: list[tuple[float, int, GroupProduct]] = []
    for rank, tile in enumerate(TILES):
        lanes = width if tile.thread_columns % width == 0 else 1
        single = machine.virtual or count(found.terms) <= tile.terms
        one = replace(tile, lanes=lanes, buffers=1 if single else 2)
        if after > DEAR and one.thread_rows * one.thread_columns > 16:
            continue
        counts = parts_of(one.rows, one.columns, one.terms, found, machine)
        for cut in (replace(one, parts=parts) for parts in (1, *counts)):
            time = product_time(cut, found, machine, after)
            if time is not None:
                fitting.append((time, rank, cut))
    yield from (tile for _, _, tile in sorted(fitting, key=lambda f: f[:2]))


def _whole(variable: LoopVar, lanes: int) -> bool:
    return isinstance(variable.extent, int) and variable.extent % lanes == 0


def product_time(
    tile: GroupProduct, found: Contraction, machine: GpuModel, after: float = 0
) -> float | None:
    """Time that a tile is expected to take, in multiply-adds of one unit; None if a unit cannot
    run its groups.

    A result costs its terms, and ``after`` for what follows.  A term costs a thread its products,
    or the loads of its rows and columns from shared memory if these take longer; few threads at
    once do not hide how long they wait.  ``parts`` cost what they do on matrix units
    (:func:`~modelcc.targets.gpu.tensor_choice.tensor_time`).
    """
    item = max(found.left.value.dtype.bytes, found.right.value.dtype.bytes)
    shared = tile.buffers * tile.terms * (tile.rows + tile.columns + 2 * tile.lanes) * item
    registers = product_registers(tile, found, machine)
    at_once = machine.groups_at_once(tile.threads, registers, shared)
    if not at_once:
        return None
    rows, columns = -(-count(found.rows) // tile.rows), -(-count(found.columns) // tile.columns)
    groups = rows * columns * count(found.batch)
    per_unit = -(-groups * tile.parts // machine.units)
    products = tile.thread_rows * tile.thread_columns
    loads = 4 * (tile.thread_rows + tile.thread_columns / tile.lanes)
    waiting = min(1.0, min(per_unit, at_once) * tile.threads / (8 * machine.warp))
    each = max(count(found.terms), 1) / tile.parts * max(1.0, loads / products)
    size = tile.rows * tile.columns
    if tile.parts == 1:
        return per_unit * size * (each + after) / waiting
    finished = parts_cycles(tile.rows, tile.columns, tile.parts, per_unit) * UNIT_PRODUCTS
    return (per_unit * each + after) * size / waiting + finished


def product_registers(tile: GroupProduct, found: Contraction, machine: GpuModel) -> int:
    """Registers that a thread of a product is expected to take: sums, factors, the elements on
    their way, addresses.

    Without a loop over blocks factors of several terms are there at once.  Elements that are read
    one by one where others are read in vectors, as of images of three channels, have an address and
    conditions each.
    """
    sums = tile.thread_rows * tile.thread_columns
    at_once = SINGLE_BLOCK if tile.buffers == 1 and not machine.virtual else 1
    factors = (tile.thread_rows + tile.thread_columns) * at_once
    moved = (tile.rows + tile.columns) * tile.terms // tile.threads
    apart = 0
    for operand, along, size in (
        (found.left, found.rows, tile.rows),
        (found.right, found.columns, tile.columns),
    ):
        lanes = vector_lanes(operand, along, found.terms, (size, tile.terms), tile.lanes)
        if lanes < tile.lanes and isinstance(operand.value, Guard):
            apart += APART * (size * tile.terms // tile.threads // lanes)
    return sums + factors + moved + apart + machine.address_registers
