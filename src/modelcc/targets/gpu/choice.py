"""Which schedules fit a kernel, the one that seems best first: by its structure, and by a model of
the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from modelcc.ir.index import Index
from modelcc.ir.scalar_tree import cost, reads
from modelcc.ir.tensor import Guard, Read
from modelcc.ir.types import F16, F32
from modelcc.schedule.group_schedule import (
    GroupProduct,
    GroupSchedule,
    GroupTranspose,
    Pointwise,
    TensorProduct,
)
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.attention.attention_choice import (
    attention_schedules,
    decode_schedules,
    running_schedules,
)
from modelcc.targets.gpu.chains.chain_choice import chain_schedules
from modelcc.targets.gpu.contraction import Contraction, group_contraction
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.partial_sums import parts_cycles, parts_of
from modelcc.targets.gpu.points.arrays import array_schedules
from modelcc.targets.gpu.points.pointwise import takes_lanes
from modelcc.targets.gpu.points.transposition import (
    Crossing,
    find_crossing,
    reads_vectors,
    transposed_bytes,
)
from modelcc.targets.gpu.products.box_operand import box_product
from modelcc.targets.gpu.products.epilogue_staging import kept_type
from modelcc.targets.gpu.products.operand_tile import vector_lanes
from modelcc.targets.gpu.products.product import has_squares
from modelcc.targets.gpu.products.tensor_choice import tensor_tiles, tensor_time
from modelcc.targets.gpu.products.tensor_product import SPLIT, matrix_type
from modelcc.targets.gpu.products.warpgroup_product import takes_boxes
from modelcc.targets.gpu.rows.row_choice import reduction_schedules, row_schedules
from modelcc.targets.gpu.rows.row_product_choice import row_product_schedules
from modelcc.targets.gpu.sizes import FEW, count, number
from modelcc.targets.gpu.windows.window_choice import window_schedules

TILES = (
    GroupProduct(128, 128, 8, 16, 8),
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

MOST_OF_TWINS = 64
"""Sums of a thread that has as many results of either of twins as others have of one product."""

TWIN_TILES = tuple(
    replace(tile, columns=2 * tile.columns, thread_columns=2 * tile.thread_columns)
    for tile in TILES
    if 2 * tile.thread_rows * tile.thread_columns <= MOST_OF_TWINS
)
"""Tiles of twins' sums, besides."""

DEAR = 48
"""Cost of what follows a contraction that makes large tiles long to compile."""


UNIT_PRODUCTS = 128
"""Multiply-adds of a unit in a cycle, where groups count each other."""

MOST_COLUMNS, GATHERED_SIDE = 128, 64
"""Columns for which a gathered element is multiplied, and a side of the tiles that it is for."""

SINGLE_BLOCK, APART = 3, 8
"""Terms whose factors are there at once without a loop over blocks, and registers of an element
that is read by itself."""

MANY_SUMS, BESIDE = 64, 8
"""Of so many sums of a thread that are written in vectors, and so lie side by side in registers,
and the registers that this takes: ptxas has 8 to 16 more than where each is written by itself."""

LATENCY_CYCLES = 1500
"""That a block takes at least whose elements are read while the one before is multiplied: memory
answers, they are written to shared memory, a barrier, and the first factors are read."""

BARRIER_CYCLES = 150
"""From a barrier to the first products, where no other group fills the time; reckoned, not fitted:
with two buffers it is part of the above."""

GROUP_CYCLES = 4900
"""From the start of a group to its first products, and from the last ones to its end."""

LOADS, LOADS_OF_FOUR = 1.6, 0.62
"""Multiply-adds in the time of a factor from shared memory, and of its share of what moves four of
them with vectors of four."""

GATHERED = 24
"""Multiply-adds in the time of finding out where an element is that is not read everywhere."""

COPIED = 4
"""Multiply-adds in the time of copying an element by itself: a copy, a sum of 64 bits that is its
address, and its share of conditions."""

RESULT = 20
"""Multiply-adds in the time of writing a result: fitted are 82 where numbers were written one by
one, and vectors of four make it a quarter."""

SCHEDULERS = 4
"""Of a unit, which a group of fewer warps does not use."""

MOST_SUMS = 64
"""Of a thread that has elements on their way in registers, or adds up parts: of more, ptxas reads
elements when they are written to shared memory, with nothing to do meanwhile, and spills parts."""

LEAST_SIDE, LEAST_POINTS = 16, 1 << 14
"""Points along both sides of a transposition, and of all of it, that tiles are worth."""

COPIED_BUFFERS, COPIED_BYTES = 4, 4
"""Of tiles that are copied while threads go on, and of elements that can be."""


def choices(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    """Schedules that fit, the most promising first."""
    group = _group(kernel)
    if group is not None:
        yield from _of_points(kernel, group, machine)
    elif not kernel.leaves:
        rows = (row_product_schedules, row_schedules)
        attention = (running_schedules, decode_schedules, attention_schedules)
        for find in (*rows, *attention, chain_schedules, array_schedules):
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
        yield from _pointwise(kernel, machine)
        return
    if not kernel.leaves:
        found, alone = group_contraction(group), len(group.anchors) == 1
        if alone and found is not None and _gathers(found, machine):
            yield from window_schedules(group, anchor, machine)
        if found is not None and count(anchor.reduce) >= FEW:
            by_threads = tiles(found, group, machine)
            on_units = _on_matrix_units(kernel, found, anchor, machine)
            if SPLIT in machine.matrix and found.left.value.dtype == F32:
                yield from _by_time(list(on_units), list(by_threads), found, group, machine)
            else:
                yield from chain(on_units, by_threads)
        if alone:
            yield from window_schedules(group, anchor, machine)
        yield from reduction_schedules(group, machine)
    yield plain


def _on_matrix_units(
    kernel: GroupKernel, found: Contraction, anchor: Nest, machine: GpuModel
) -> Iterator[TensorProduct]:
    """Of several rows and columns, in types that the machine's units have."""
    dtype = matrix_type(anchor, found)
    if dtype == F16 and not machine.matrix_subnormals:
        return
    if dtype is not None and min(count(found.rows), count(found.columns)) >= FEW:
        product = None if kernel.checks else box_product(kernel, found)
        boxes = product if product is not None and takes_boxes(dtype, product) else None
        yield from tensor_tiles(found, dtype, machine, boxes, kept_type(kernel.group))


def _by_time(
    units: list[TensorProduct], threads: list[GroupProduct], found: Contraction, group: Group,
    machine: GpuModel,
) -> Iterator[GroupSchedule]:  # fmt: skip
    """Tiles of split operands, and of threads: those first of which the first takes less time."""
    if units and threads:
        cycles = tensor_time(units[0], found, F32, machine)
        products = product_time(threads[0], found, machine, cost_after(group))
        assert cycles is not None and products is not None
        if products_seconds(products, machine) < cycles_seconds(cycles, machine):
            yield from (*threads, *units)
            return
    yield from (*units, *threads)


def products_seconds(products: float, machine: GpuModel) -> float:
    """Of so many multiply-adds of a unit, as :func:`product_time` counts."""
    return 2 * products * machine.units / (machine.flops * 1e12)


def cycles_seconds(cycles: float, machine: GpuModel) -> float:
    """Seconds of so many cycles of an SM, as
    :func:`~modelcc.targets.gpu.products.tensor_choice.tensor_time` counts them."""
    known = machine.clock * 1e9
    return cycles / known if known else products_seconds(cycles * UNIT_PRODUCTS, machine)


def _gathers(found: Contraction, machine: GpuModel) -> bool:
    """Whether tiles would be gathered element by element under conditions, each of them for a few
    products: images of three channels."""
    few = count(found.columns) <= MOST_COLUMNS and found.left.dtype.is_float
    if machine.lanes == 1 or not few:
        return False
    pairs = ((found.left, found.rows), (found.right, found.columns))
    return any(
        isinstance(operand.value, Guard)
        and vector_lanes(operand, along, found.terms, (GATHERED_SIDE, GATHERED_SIDE), 2) == 1
        for operand, along in pairs
    )


def _pointwise(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    group = kernel.group
    crossing = None if kernel.leaves else find_crossing(group)
    if crossing is not None and _worth_tiles(crossing, group, machine):
        yield _transposing(crossing, group, machine)
    for lanes in (8, 4, 2, 1):
        if lanes <= _widest(group, machine) and takes_lanes(group, lanes):
            yield Pointwise(_threads(group, machine, lanes), lanes)


def _worth_tiles(crossing: Crossing, group: Group, machine: GpuModel) -> bool:
    """Where tiles are about full, and there are many; a processor has caches, and no barriers."""
    sides = min(count((crossing.across,)), count((crossing.beside,)))
    room = transposed_bytes(crossing, _side(crossing)) <= machine.group_shared_bytes // 3
    points = count(group.final.parallel)
    return not machine.virtual and sides >= LEAST_SIDE and points >= LEAST_POINTS and room


def _side(crossing: Crossing) -> int:
    """Of tiles whose rows are 128 bytes of what is moved, or 64 elements."""
    widest = max(operand.dtype.bytes for operand in crossing.operands)
    return 64 if widest < 4 else 32


def _transposing(crossing: Crossing, group: Group, machine: GpuModel) -> GroupTranspose:
    """Vectors as long as a thread moves at once, or as whole as they are."""
    side, widest = _side(crossing), max(o.dtype.bytes for o in crossing.operands)
    most = min(machine.lanes * 4 // widest, 8) if machine.lanes > 1 else 1
    read = next(n for n in (8, 4, 2, 1) if n <= max(most, 1) and reads_vectors(crossing, n))
    wide = min(_widest(group, machine), 8)
    lanes = next(n for n in (8, 4, 2, 1) if n <= wide and takes_lanes(group, n))
    threads = min(256, machine.group_threads)
    return GroupTranspose(side, threads, read, lanes)


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


def copying(elements: Index, machine: GpuModel) -> Pointwise:
    """Vectors, if they are whole."""
    whole = isinstance(elements, int) and elements % machine.lanes == 0
    lanes = machine.lanes if whole else 1
    return Pointwise(threads_of(number(elements) // lanes, machine), lanes)


def tiles(found: Contraction, group: Group, machine: GpuModel) -> Iterator[GroupProduct]:
    """Tiles of a product by the time that they are expected to take.

    On processors threads of a group run in turns between barriers, with sums in memory: there sums
    of floats are blocked for an addition each a block.  On GPUs that takes a register for each.
    """
    rows, columns = count(found.rows), count(found.columns)
    if min(rows, columns) < FEW:
        return
    after = cost_after(group)
    width = machine.lanes if _whole(found.columns[-1], machine.lanes) else 1
    products = len(found.rights)
    blocked = machine.virtual and found.left.dtype.is_float
    fitting: list[tuple[float, int, GroupProduct]] = []
    for rank, tile in enumerate(TILES if products == 1 else (*TILES, *TWIN_TILES)):
        lanes = width if tile.thread_columns % (width * products) == 0 else 1
        if after > DEAR and tile.thread_rows * tile.thread_columns > 16 * products:
            continue
        if tile.thread_columns % products:
            continue
        shaped = replace(
            tile, lanes=lanes, interleaved=machine.paired and has_squares(tile), blocked=blocked
        )
        for one in _buffered(shaped, found, machine):
            for parts in (1, *_parts(one, found, machine)):
                cut = replace(one, parts=parts)
                time = product_time(cut, found, machine, after)
                if time is not None:
                    fitting.append((time, rank, cut))
    yield from (tile for _, _, tile in sorted(fitting, key=lambda f: f[:2]))


def cost_after(group: Group) -> float:
    """Of what follows a contraction, for each result."""
    return sum(cost(n.body) for n in group.nests if not n.reduce)


def _parts(tile: GroupProduct, found: Contraction, machine: GpuModel) -> Iterator[int]:
    """Into how many its terms may be cut: threads that add large tiles up hold those of two."""
    if tile.thread_rows * tile.thread_columns <= MOST_SUMS:
        yield from parts_of(tile.rows, tile.columns, tile.terms, found, machine)


def _buffered(tile: GroupProduct, found: Contraction, machine: GpuModel) -> Iterator[GroupProduct]:
    """``tile`` with buffers; if elements are copied as they are, also with more of them, and of
    small tiles with more terms; of large ones only these."""
    single = machine.virtual or count(found.terms) <= tile.terms
    sums = tile.thread_rows * tile.thread_columns
    if sums <= MOST_SUMS:
        yield replace(tile, buffers=1 if single else 2)
    operands = found.left.value, found.right.value
    read = all(isinstance(v, Read | Guard) and v.dtype.bytes == COPIED_BYTES for v in operands)
    if single or not machine.copies or not read:
        return
    yield replace(tile, buffers=COPIED_BUFFERS)
    if sums <= 32:
        yield replace(tile, terms=16 if tile.terms == 8 else 32, buffers=COPIED_BUFFERS)


def _whole(variable: LoopVar, lanes: int) -> bool:
    return isinstance(variable.extent, int) and variable.extent % lanes == 0


def product_time(
    tile: GroupProduct, found: Contraction, machine: GpuModel, after: float = 0
) -> float | None:
    """Time that a tile is expected to take, in multiply-adds of one unit; None if a unit cannot
    run its groups.

    Groups come as many at once as a unit has room for, and the last ones may be fewer.  A block of
    terms takes what the unit has to do for all of them, or what memory takes to answer, by as many
    blocks as are on their way.  A result costs ``after`` for what follows.  ``parts`` cost what
    they do on matrix units (:func:`~modelcc.targets.gpu.products.tensor_choice.tensor_time`).

    The constants are fitted to 98 products and convolutions in f32 of six models on an H100, at
    batch 1 and 32: times differ from those measured by 11 % (root mean square of logarithms).
    """
    item = max(found.left.value.dtype.bytes, found.right.value.dtype.bytes)
    pads = (1 + len(found.rights)) * tile.lanes
    shared = tile.buffers * tile.terms * (tile.rows + tile.columns + pads) * item
    registers = product_registers(tile, found, machine)
    at_once = machine.groups_at_once(tile.threads, registers, shared)
    if not at_once:
        return None
    own = found.own(tile.columns)
    rows, columns = -(-count(found.rows) // tile.rows), -(-count(found.columns) // own)
    groups = rows * columns * count(found.batch)
    per_unit = -(-groups * tile.parts // machine.units)
    size = tile.rows * own
    blocks = -(-max(count(found.terms), 1) // tile.terms) / tile.parts
    results = size * (RESULT + after if tile.parts == 1 else RESULT)

    def wave(together: int) -> float:
        around = 0 if machine.virtual else GROUP_CYCLES * UNIT_PRODUCTS
        return blocks * _block(tile, found, machine, together) + around + together * results

    full, left = divmod(per_unit, at_once)
    time = full * wave(at_once) + (wave(left) if left else 0)
    if tile.parts == 1:
        return time
    finished = parts_cycles(tile.rows, tile.columns, tile.parts, per_unit) * UNIT_PRODUCTS
    return time + size * after + finished


def _block(tile: GroupProduct, found: Contraction, machine: GpuModel, together: int) -> float:
    """Multiply-adds of a unit in the time that a block of terms takes so many groups."""
    side, lanes = tile.thread_rows + tile.thread_columns, 4 / tile.lanes
    loads = (LOADS + LOADS_OF_FOUR * lanes) * side / (tile.thread_rows * tile.thread_columns)
    products = tile.rows * tile.columns * tile.terms * (1 + loads)
    for operand, along in ((found.left, tile.rows), (found.right, tile.columns)):
        if isinstance(operand.value, Guard):
            products += GATHERED * along * tile.terms
        if tile.buffers > 2 and operand.by_term:
            products += COPIED * along * tile.terms
    alone = products * max(1.0, SCHEDULERS * machine.warp / tile.threads)
    if machine.virtual:
        return max(together * products, alone)
    waiting = LATENCY_CYCLES * UNIT_PRODUCTS / max(tile.buffers - 1, 1)
    return max(together * products, alone + BARRIER_CYCLES * UNIT_PRODUCTS, waiting)


def product_registers(tile: GroupProduct, found: Contraction, machine: GpuModel) -> int:
    """Registers that a thread of a product is expected to take: sums, factors, the elements on
    their way, addresses.

    Without a loop over blocks factors of several terms are there at once, and what is copied is in
    no register.  Elements that are read one by one where others are read in vectors, as of images
    of three channels, have an address and conditions each.
    """
    sums = tile.thread_rows * tile.thread_columns
    at_once = SINGLE_BLOCK if tile.buffers == 1 and not machine.virtual else 1
    factors = (tile.thread_rows + tile.thread_columns) * at_once
    copied = tile.buffers > 2
    moved = 0 if copied else (tile.rows + tile.columns) * tile.terms // tile.threads
    apart = 0
    for operand, along, size in (
        (found.left, found.rows, tile.rows),
        (found.right, found.columns, tile.columns),
    ):
        most = 1 if copied and operand.by_term else tile.lanes
        lanes = vector_lanes(operand, along, found.terms, (size, tile.terms), most)
        if lanes < tile.lanes and isinstance(operand.value, Guard):
            apart += APART * (size * tile.terms // tile.threads // lanes)
    beside = BESIDE if tile.lanes > 1 and sums >= MANY_SUMS and not machine.virtual else 0
    return sums + beside + factors + moved + apart + machine.address_registers
