"""Schedules of products of rows that stages before them make, how threads share both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from modelcc.schedule.group_schedule import GroupReduction, GroupRowProduct, GroupRows
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.rows.row_choice import (
    BUSY,
    MOST_KEPT,
    MOST_KEPT_BY_WARPS,
    exchanges,
    power_of_two,
    reduction_registers,
    reduction_schedules,
    row_lanes,
)
from modelcc.targets.gpu.rows.row_product import RowProductParts, find_row_product
from modelcc.targets.gpu.rows.rows import reads_ahead
from modelcc.targets.gpu.sizes import count

MOST_THREADS = 512
"""Of a group, which makes rows for all its results: with more, all wait longer for each other."""

MOST_ROWS = 4
"""Of a product: more are many sums, and long to make."""

ROUNDS = 2
"""Groups of each unit at least, where results are that many: fewer are uneven."""

BESIDE = 32
"""Registers of a thread that makes rows, besides what it keeps and waits for."""

ENOUGH = 2
"""Times the threads that keep a unit's memory busy, of which more gain little."""


def row_product_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupRowProduct]:
    """Groups of as many results as all units have groups for, whose threads make the rows first.

    :class:`~modelcc.schedule.schedule.ScheduleError` if a kernel is no such product."""
    parts = find_row_product(kernel)
    if parts.count > MOST_ROWS:
        return
    for product in reduction_schedules(parts.product.group, machine):
        found = _with_results(parts, product, machine)
        if found is not None and _threads_at_once(parts, found, machine):
            yield found


def keeps_busy(parts: RowProductParts, s: GroupRowProduct, machine: GpuModel) -> bool:
    """Whether a unit has as many threads at once as it would have for the product alone, or as many
    as keep its memory busy."""
    alone = next(reduction_schedules(parts.product.group, machine))
    threads = alone.threads * alone.results
    registers = reduction_registers(parts.product.group, alone)
    wanted = machine.groups_at_once(threads, registers, 0) * threads
    enough = min(wanted, _enough(parts, alone, machine))
    return _threads_at_once(parts, s, machine) >= enough


def row_product_registers(parts: RowProductParts, s: GroupRowProduct, machine: GpuModel) -> int:
    """Of a thread: what a product takes, or what rows do, of which it keeps elements while vectors
    of the other operand are on their way; no more than there are for all of a group."""
    kept = s.rows.kept * 2 if s.rows.ahead else s.rows.kept
    products = len(parts.product.group.anchors)
    first = max(s.product.lanes, s.product.columns) * products * s.product.ahead
    alone = reduction_registers(parts.product.group, s.product)
    most = machine.registers // (s.product.threads * s.product.results)
    return min(max(alone, BESIDE + kept + first), most)


def _with_results(
    parts: RowProductParts, product: GroupReduction, machine: GpuModel
) -> GroupRowProduct | None:
    """``product`` of a power of two of results of a group, the most that leave units as busy."""
    found = _with_rows(parts, replace(product, results=power_of_two(product.results)), machine)
    if product.across or found is None:
        return found
    most = min(MOST_THREADS, machine.group_threads) // product.threads
    teams, enough = teams_of(parts, product), _enough(parts, product, machine)
    while (results := 2 * found.product.results) <= most:
        more = _with_rows(parts, replace(product, results=results), machine)
        if more is None or teams < results * ROUNDS * machine.units:
            break
        at_once = (_threads_at_once(parts, one, machine) for one in (found, more))
        before, after = (min(threads, enough) for threads in at_once)
        if after < before:
            break
        found = more
    return found


def teams_of(parts: RowProductParts, product: GroupReduction) -> int:
    """How many results there are, those of all rows and those beside each other being one."""
    points = count(parts.product.group.anchors[0].parallel)
    return points // (product.rows * product.columns)


def _enough(parts: RowProductParts, product: GroupReduction, machine: GpuModel) -> int:
    """Threads of a unit that keep its memory busy, or all that there are for it."""
    there = -(-teams_of(parts, product) * product.threads // machine.units)
    return min(there, ENOUGH * machine.unit_threads // BUSY)


def _threads_at_once(parts: RowProductParts, s: GroupRowProduct, machine: GpuModel) -> int:
    """Of a unit, whose groups have rows in memory."""
    threads = s.product.threads * s.product.results
    registers = row_product_registers(parts, s, machine)
    size = parts.size * parts.dtype.bytes
    return machine.groups_at_once(threads, registers, size) * threads


def _with_rows(
    parts: RowProductParts, product: GroupReduction, machine: GpuModel
) -> GroupRowProduct | None:
    """``product`` and a team of its threads for each row; None if these are too few."""
    teams = 1 << (parts.count - 1).bit_length()
    threads = product.threads * product.results // teams
    if not threads:
        return None
    reducing = [nest for nest in parts.stages.nests if nest.reduce]
    width = product.results if product.across else product.threads
    width = product.warp if product.warp > 1 else width
    own = exchanges(reducing, machine) and width == min(threads, machine.warp)
    length = count(parts.stages.row)
    most = row_lanes(parts.rows, parts.stages, machine)
    even = (n for n in (8, 4, 2, 1) if n <= most and length % (n * threads) == 0)
    lanes = next(even, most)
    kept = -(-length // (lanes * threads)) * lanes
    kept = kept if kept <= MOST_KEPT_BY_WARPS else 0
    ahead = 0 < kept <= MOST_KEPT and bool(reads_ahead(parts.stages))
    rows = GroupRows(threads, teams, kept, lanes, width if own else 1, ahead)
    return GroupRowProduct(rows, product)
