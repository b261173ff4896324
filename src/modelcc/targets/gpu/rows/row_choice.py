"""Schedules of reductions and of stages that walk rows, the most promising first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import coefficient, symbols
from modelcc.ir.scalar_tree import children, cost, reads, walk
from modelcc.ir.tensor import Bind, IndexValue, Read, Scalar
from modelcc.schedule.group_schedule import GroupReduction, GroupRows
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.evaluation import GroupKernel, extent_of
from modelcc.targets.gpu.machine import SECTOR_BYTES, GpuModel
from modelcc.targets.gpu.rows.reduction import (
    EXCHANGED_BITS,
    are_beside,
    few_rows,
    results_beside,
    share_terms,
    takes_vectors,
)
from modelcc.targets.gpu.rows.rows import RowStages, find_rows, reads_ahead, takes_lanes
from modelcc.targets.gpu.sizes import FEW, count

FEW_TERMS = 16
"""Terms that a thread sums up rather than to share them."""

MOST_KEPT = 16
"""Elements of a row that a thread keeps in registers."""

MOST_KEPT_BY_WARPS = 32
"""The same, where warps combine registers: fewer threads wait less."""

MOST_EVEN = 24
"""Elements that a thread may have for all of a row's threads to have as many."""

OTHER_REGISTERS = 28
"""Of a thread that keeps elements of a row, besides these."""

WAIT, UNROLLED = 0.5e-6, 4
"""Seconds that a thread waits for elements of which it reads so many at once (measured on an H100:
64 of each of 2,048 rows walked twice by a thread take 16 us)."""

AHEAD, CHEAP = 8, 16
"""Vectors that a thread has on their way, and the cost of a term that is little beside them."""

COLUMN_THREADS, COMBINED_BYTES = 512, 32 << 10
"""Threads of a group that share terms of vectors of results, and memory that they combine these
in."""

BUSY = 8
"""Of so many parts one of a unit's threads keeps its memory busy."""


def reduction_schedules(group: Group, machine: GpuModel) -> Iterator[GroupReduction]:
    """Groups that share terms of what ``group`` begins with, if these are many, or results few."""
    anchors = group.anchors
    if not share_terms(anchors):
        return
    anchor = anchors[0]
    terms, results = count(anchor.reduce), count(anchor.parallel)
    if terms <= FEW_TERMS or results * 4 >= machine.units * machine.unit_threads * min(terms, 64):
        return
    if not _are_neighbours(anchors, anchor.reduce, anchor.parallel):
        yield from _by_columns(group, machine)
        width = min(machine.warp, power_of_two(results))
        most = min(terms // 4, 256 // width, machine.group_threads // width)
        lanes = _lanes(anchors, machine, lambda n: all(_are_of_one(a, n) for a in anchors))
        yield GroupReduction(power_of_two(most), width, True, lanes)
        return
    if not exchanges(anchors, machine):
        threads = power_of_two(min(max(terms // 4, machine.warp), 256, machine.group_threads))
        yield GroupReduction(threads, max(1, 128 // threads))
        return
    lanes = _lanes(anchors, machine, lambda n: takes_vectors(anchors, anchor.reduce[-1:], n))
    rows = max(count(few_rows(anchor, FEW - 1)), 1)
    vectors, teams = -(-terms // lanes), results // rows
    threads = _threads(vectors, teams, 256, machine)
    own = max(1, min(128 // threads, -(-teams // machine.units)))
    ahead = _ahead(anchor, -(-vectors // threads), rows * len(anchors))
    warp = min(threads, machine.warp)
    yield GroupReduction(threads, own, lanes=lanes, warp=warp, ahead=ahead, rows=rows)


def _by_columns(group: Group, machine: GpuModel) -> Iterator[GroupReduction]:
    """Threads that read vectors of neighbouring results, of all rows of a product; neighbours read
    at least a sector together, and more of a row as far as all units have some."""
    anchors = group.anchors
    anchor = anchors[0]
    few = few_rows(anchor, FEW - 1)
    teams = results_beside(anchor, few)
    columns = _lanes(anchors, machine, lambda n: are_beside(group, teams, n))
    if columns == 1 or _are_of_one(anchor, 2) or cost(anchor.body) > CHEAP:
        return
    terms, rows, vectors = count(anchor.reduce), max(count(few), 1), count(teams) // columns
    width = 2
    while width < machine.warp and vectors >= 2 * width * machine.units:
        width *= 2
    size = columns * rows * len(anchors) * anchor.body.dtype.bytes
    most = min(COLUMN_THREADS, machine.group_threads, COMBINED_BYTES // size)
    wanted = -(-machine.units * machine.unit_threads // max(BUSY // 2 * -(-vectors // width), 1))
    threads = power_of_two(max(min(most, max(wanted, 128)) // width, 1))
    threads = min(threads, power_of_two(terms))
    ahead = _ahead(anchor, -(-terms // threads), rows * len(anchors))
    yield GroupReduction(threads, width, True, ahead=ahead, rows=rows, columns=columns)


def _ahead(anchor: Nest, vectors: int, sums: int) -> int:
    """Vectors of a thread that has so many, for ``sums`` each, which it reads before the first one
    is used."""
    most = 1 if cost(anchor.body) > CHEAP else max(AHEAD // sums, 2)
    return max(min(most, vectors), 1)


def reduction_registers(group: Group, s: GroupReduction) -> int:
    """Of a thread: sums, and vectors on their way, for which there are as many registers as for f32
    of half of their lanes."""
    wide, products = max(s.lanes, s.columns), len(group.anchors)
    factors = products if s.columns > 1 else s.rows + products
    read = wide * factors // 2 * (s.ahead - 1)
    few = 24 if len(group.nests) == 1 else 32
    return few + 4 * wide + wide * (s.rows * products - 1) + read


def row_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupRows]:
    """Threads that keep a row in registers, if it fits; short rows have few threads each.

    :class:`~modelcc.schedule.schedule.ScheduleError` if stages share no rows."""
    stages = find_rows(kernel)
    reducing = [nest for nest in stages.nests if nest.reduce]
    side_by_side = _are_neighbours(stages.nests, stages.row, stages.outer)
    if not side_by_side and _by_threads(stages, machine):
        yield from _with_kept(GroupRows(1, 128), stages, MOST_KEPT_BY_WARPS)
    elif exchanges(reducing, machine):
        yield from _by_warps(kernel, stages, machine)
    else:
        yield from _by_memory(stages, machine)


def _by_threads(stages: RowStages, machine: GpuModel) -> bool:
    """Whether a thread should have a row alone, whose neighbours' elements lie beside its own.

    It waits for each few elements; threads that share a row read a whole sector of memory for each
    one.  More than there are rows for threads of all units go by what they read.
    """
    outer, length = count(stages.outer), count(stages.row)
    if machine.virtual or outer * BUSY < machine.units * machine.warp:
        return False
    if outer * BUSY >= machine.units * machine.unit_threads:
        return True
    waits = 1 if length <= MOST_KEPT_BY_WARPS else sum(bool(n.reduce) for n in stages.nests)
    alone = waits * length / UNROLLED * WAIT
    return alone < outer * length * SECTOR_BYTES / (machine.bandwidth * 1e9)


def _by_warps(kernel: GroupKernel, stages: RowStages, machine: GpuModel) -> Iterator[GroupRows]:
    length, outer = count(stages.row), count(stages.outer)
    lanes = row_lanes(kernel, stages, machine)
    threads = _threads(-(-length // lanes), outer, machine.group_threads, machine)
    threads = _even(threads, length, lanes, machine)
    while length > MOST_KEPT_BY_WARPS * threads and threads < machine.group_threads:
        threads *= 2
    own = max(1, min(128 // threads, -(-outer // machine.units)))
    wanted = GroupRows(threads, own, lanes=lanes, warp=min(threads, machine.warp))
    for found in _with_kept(wanted, stages, MOST_KEPT_BY_WARPS):
        yield replace(found, ahead=_pays_ahead(found, stages, machine))


def row_lanes(kernel: GroupKernel, stages: RowStages, machine: GpuModel) -> int:
    """Elements of the largest vectors of rows that a thread moves at once."""
    return _lanes(stages.nests, machine, lambda n: takes_lanes(kernel, stages, n))


def _pays_ahead(wanted: GroupRows, stages: RowStages, machine: GpuModel) -> bool:
    """Whether all groups run at once though threads keep what is read after the reductions: where
    others follow, these are read meanwhile."""
    row = {v.name for v in stages.row}
    first = [r for nest in stages.walks[0] for r in reads(nest.body) if len(r.indices) == 1]
    own = {r.tensor: r.dtype.bytes for r in first if row & symbols(r.indices[0])}
    more = [r.dtype.bytes for r in reads_ahead(stages)]
    size = max(4, sum(own.values()) + sum(more))
    registers = wanted.kept * size // 4 + OTHER_REGISTERS
    at_once = machine.groups_at_once(wanted.threads * wanted.rows, registers, 0)
    groups = -(-count(stages.outer) // wanted.rows)
    return bool(wanted.kept and more) and groups <= at_once * machine.units


def _even(threads: int, length: int, lanes: int, machine: GpuModel) -> int:
    """``threads``, or fewer that all have the same number of vectors.

    A vector that only some threads have is stored under a condition, and assemblers move what it
    is made of there, too: loads that were to be on their way by then."""
    fewer = threads
    while length % (fewer * lanes) and fewer > machine.warp:
        fewer //= 2
    return threads if length % (fewer * lanes) or length > MOST_EVEN * fewer else fewer


def _by_memory(stages: RowStages, machine: GpuModel) -> Iterator[GroupRows]:
    length, outer = count(stages.row), count(stages.outer)
    most = min(machine.group_threads, 256 if outer >= machine.units else 1024)
    threads = power_of_two(min(max(-(-length // 4), 1), most))
    if length > 4 * threads and threads < most:
        threads *= 2
    own = max(1, min(128 // threads, -(-outer // machine.units)))
    yield from _with_kept(GroupRows(threads, own), stages, MOST_KEPT)


def _with_kept(wanted: GroupRows, stages: RowStages, most: int) -> Iterator[GroupRows]:
    """``wanted``, whose threads keep their elements in registers, if they are few enough."""
    length = extent_of(stages.row)
    if isinstance(length, int):
        vectors = -(-length // wanted.lanes)
        kept = -(-vectors // wanted.threads) * wanted.lanes
        if 0 < kept <= most:
            yield GroupRows(wanted.threads, wanted.rows, kept, wanted.lanes, wanted.warp)
    yield wanted


def _threads(vectors: int, results: int, most: int, machine: GpuModel) -> int:
    """Threads of a result of so many vectors: of one warp, or more where that keeps units busy."""
    threads = 1
    while threads < min(machine.warp, vectors):
        threads *= 2
    enough = machine.units * machine.unit_threads // BUSY
    while threads < vectors and threads * results < enough and threads < most:
        threads *= 2
    return threads


def exchanges(reducing: Sequence[Nest], machine: GpuModel) -> bool:
    """Whether threads of ``machine`` exchange registers of what nests reduce."""
    return machine.exchanges and all(n.body.dtype.bits == EXCHANGED_BITS for n in reducing)


def _lanes(nests: Sequence[Nest], machine: GpuModel, fits: Callable[[int], bool]) -> int:
    """Elements of the largest vectors that fit, as a thread moves them at once."""
    sizes = [r.dtype.bytes for nest in nests for r in reads(nest.body) if len(r.indices) == 1]
    most = 4 * machine.lanes // min(sizes, default=4)
    return next((n for n in (8, 4, 2) if n <= most and machine.lanes > 1 and fits(n)), 1)


def _are_of_one(anchor: Nest, count: int) -> bool:
    """Whether so many terms, one behind the other, are made of one element: fields of a word."""
    last = anchor.reduce[-1].name
    fields = (n for n in walk(anchor.body) if isinstance(n, IndexValue))
    counted = any(last in symbols(field.index) for field in fields)
    return counted and takes_vectors((anchor,), anchor.reduce[-1:], count)


def _are_neighbours(
    nests: Sequence[Nest], along: Sequence[LoopVar], beside: Sequence[LoopVar]
) -> bool:
    """Whether what is read lies closer together ``along`` some loops than ``beside`` these.

    What moves with only some of them is read again, and counts if there is nothing else."""
    found = [steps for nest in nests for steps in _steps(nest.body, {})]
    ends = [v.name for vs in (along, beside) for v in [v for v in vs if v.extent != 1][-1:]]
    whole = [steps for steps in found if steps.keys() >= {*ends}]

    def nearest(steps: Mapping[str, float], variables: Sequence[LoopVar]) -> float:
        moved = [v.name for v in variables if v.extent != 1]
        return min((steps.get(name, math.inf) for name in moved), default=math.inf)

    closer = [nearest(steps, along) <= nearest(steps, beside) for steps in whole or found]
    return 2 * sum(closer) >= len(closer)


def _steps(scalar: Scalar, bound: Mapping[str, frozenset[str]]) -> Iterator[Mapping[str, float]]:
    """Of each read of memory, how far it moves with each variable; a position that is found in
    memory moves by 1 with all that it is ``bound`` to."""
    match scalar:
        case Read(indices=(index,)):
            steps: dict[str, float] = {}
            for symbol in symbols(index):
                step = coefficient(index, symbol)
                size = abs(step) if isinstance(step, int) else math.inf
                for name in bound.get(symbol, (symbol,)):
                    steps[name] = min(size, steps.get(name, math.inf))
            yield steps
        case Bind():
            yield from _steps(scalar.value, bound)
            moving = (steps.keys() for steps in _steps(scalar.value, bound))
            inner = {**bound, scalar.symbol: frozenset[str]().union(*moving)}
            yield from _steps(scalar.body, inner)
        case _:
            for part in children(scalar):
                yield from _steps(part, bound)


def power_of_two(most: int) -> int:
    """The largest power of two up to ``most``, or 1."""
    return 1 << max(most.bit_length() - 1, 0)
