"""How updates at destinations from memory run as groups of threads, by expected time.

An SM of an H100 issues an instruction for 128 threads per cycle.  If 1,000,000 updates of 64
columns go to 100,000 destinations, and each thread scans all of them (``GroupScatter``), 262,144
threads look at 1,000,000 indices: at 18 instructions each, 280,000,000 cycles of one SM.  With
lists (:class:`~modelcc.schedule.group_schedule.ListedScatter`), 128 groups look at them, at 33
instructions each, and their threads go through lists of 7,800 updates: 1,200,000 cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.index import coefficient
from modelcc.ir.scalar_tree import reads
from modelcc.schedule.group_schedule import GroupScatter, ListedScatter
from modelcc.targets.gpu.choice import SCHEDULERS, threads_of
from modelcc.targets.gpu.evaluation import GroupKernel, extent_of
from modelcc.targets.gpu.machine import SECTOR_BYTES, GpuModel
from modelcc.targets.gpu.partial_sums import CACHED_BYTES
from modelcc.targets.gpu.rows.row_choice import power_of_two
from modelcc.targets.gpu.scatter.group_updates import GroupUpdates
from modelcc.targets.gpu.scatter.listed_scatter import listed_shared, takes_columns
from modelcc.targets.gpu.sizes import count, number

MANY = 1 << 14
"""Updates of a named number, at which scanning by each thread costs more than lists of few."""

OWNED, LOOKED, WALKED, CHANGED = 18, 33, 8, 35
"""Instructions of a thread: to look at an update that it does not own; to look at an update and
list it; to skip an update of a list; to apply one.  Counted in code for sm_90a."""

COUNTED, ADDED = 110, 5
"""The same for counts of a block, and for each thread whose count is added without warp
shuffles."""

BLOCK_CYCLES, CHANGE_CYCLES, LOOK_CYCLES, WALK_CYCLES = 2500, 1200, 150, 15
"""Cycles that a thread waits in a block until its list is complete; for an update that it applies,
to memory and back; for an index that it loads by itself; and for an entry of a list.  Estimated, as
is the speedup that lists have to promise, below."""

GAIN = 2.0
"""On processors, which have no such latencies, any gain counts."""

REGISTERS, FOR_EACH = 36, 2
"""Registers of a thread, and more for each update that it looks at: ptxas's numbers, or less."""

LEAST_THREADS, MOST_COLUMNS, MOST_EACH, MOST_SHARES = 64, 256, 32, 1 << 12


def updating(
    kernel: GroupKernel, updates: GroupUpdates, machine: GpuModel
) -> GroupScatter | ListedScatter:
    """Threads that own destinations, or lists of groups, if these are expected to be faster."""
    work = UpdateWork.of(updates)
    return fastest(updates, work, machine, lists=not kernel.leaves)[1]


def fastest(
    updates: GroupUpdates, work: UpdateWork, machine: GpuModel, lists: bool = True
) -> tuple[float, GroupScatter | ListedScatter]:
    """Cycles of an SM that ``work`` is expected to take, and its schedule; as ``lists``, if they
    are possible and promise enough."""
    owned = owning(updates, work, machine)
    by_owners = owned_cycles(owned, work, machine)
    tried = _lists(updates, work, machine) if lists and updates.meeting else ()
    timed = ((listed_cycles(s, work, machine), s) for s in tried)
    by_lists, found = min(timed, key=lambda one: one[0], default=(by_owners, owned))
    gain = 1.0 if machine.virtual else GAIN
    return (by_lists, found) if by_owners >= gain * by_lists else (by_owners, owned)


def owning(updates: GroupUpdates, work: UpdateWork, machine: GpuModel) -> GroupScatter:
    """Owners of destinations, where updates may collide, until all SMs have work."""
    points, owners = work.lists * work.columns, 1
    room = machine.units if machine.virtual else machine.units * machine.unit_threads
    if updates.meeting:
        most = min(room // points, work.updates, power_of_two(2 * work.places - 1))
        owners = power_of_two(max(most, 1))
    return GroupScatter(threads_of(points * owners, machine), owners)


@dataclass(frozen=True)
class UpdateWork:
    """The amount of work: ``lists``, each of ``updates`` at ``places`` destinations, with
    ``columns`` each; an index takes ``bytes`` of memory traffic, shared with its neighbours."""

    lists: int
    updates: int
    places: int
    columns: int
    bytes: int

    @staticmethod
    def of(updates: GroupUpdates) -> UpdateWork:
        """The work, with usual values for named sizes, or many."""
        total = extent_of(updates.meeting)
        met = total if isinstance(total, int) else max(MANY, count(updates.meeting))
        lists, columns = (max(count(v), 1) for v in (updates.lists, updates.columns))
        return UpdateWork(lists, met, max(number(updates.room), 1), columns, _bytes(updates))


def _bytes(updates: GroupUpdates) -> int:
    """Bytes of an index, as neighbouring updates are loaded."""
    if not updates.meeting:
        return 0
    last, total = updates.meeting[-1].name, 0
    for read in (read for place in updates.places for read in reads(place.value)):
        step = coefficient(read.indices[0], last)
        apart = step * read.dtype.bytes if isinstance(step, int) else SECTOR_BYTES
        total += min(abs(apart), SECTOR_BYTES)
    return total


def _rate(machine: GpuModel) -> int:
    """Threads of an SM whose instructions are issued per cycle."""
    return 1 if machine.virtual else SCHEDULERS * machine.warp


def owned_cycles(s: GroupScatter, work: UpdateWork, machine: GpuModel) -> float:
    """Cycles of an SM that owners are expected to take."""
    threads = work.lists * work.columns * s.owners
    own = work.updates / min(s.owners, work.places)
    done = work.lists * work.columns * work.updates * CHANGED
    busy = (threads * work.updates * OWNED + done) / _rate(machine) / machine.units
    if machine.virtual:
        return busy
    waves = -(-threads // (machine.units * machine.unit_threads))
    return max(busy, waves * (work.updates * LOOK_CYCLES + own * CHANGE_CYCLES))


def listed_cycles(s: ListedScatter, work: UpdateWork, machine: GpuModel) -> float:
    """Cycles of an SM that lists are expected to take."""
    blocks, owners = -(-work.columns // (s.lanes * s.columns)), s.threads // s.columns
    groups = work.lists * s.shares * blocks
    steps = -(-work.updates // (s.threads * s.each))
    listed = work.updates / min(s.shares, work.places)
    counting = COUNTED if s.warp > 1 else ADDED * s.threads
    looking = work.updates * LOOKED + s.threads * steps * counting
    doing = listed * (s.threads * WALKED + s.columns * CHANGED)
    busy = max((looking + doing) / _rate(machine), work.updates * work.bytes / CACHED_BYTES)
    per_unit = -(-groups // machine.units)
    if machine.virtual:
        return per_unit * busy
    registers = min(REGISTERS + FOR_EACH * s.each, machine.thread_registers)
    at_once = machine.groups_at_once(s.threads, registers, listed_shared(s))
    if not at_once:
        return float("inf")
    in_step = listed / steps
    changes = min(in_step, 1 + in_step / min(owners, max(work.places // s.shares, 1)))
    waits = steps * (BLOCK_CYCLES + changes * CHANGE_CYCLES) + listed * WALK_CYCLES
    return max(per_unit * busy, -(-per_unit // at_once) * (waits + busy))


def _lists(updates: GroupUpdates, work: UpdateWork, machine: GpuModel) -> Iterator[ListedScatter]:
    """Schedules that fit: few threads and shares first."""
    lanes, most = _lanes(updates, machine), machine.group_threads
    least = machine.warp if machine.virtual else LEAST_THREADS
    vectors = -(-max(count(updates.columns), 1) // lanes)
    warp = machine.warp if machine.exchanges else 1
    across = -(-vectors // -(-vectors // min(MOST_COLUMNS, most)))
    for columns in sorted({across, power_of_two(2 * across - 1)}):
        for threads in (columns * owners for owners in _powers(most // columns)):
            if threads < least or threads % warp:
                continue
            for each in _powers(MOST_EACH)[2:]:
                for shares in _powers(min(MOST_SHARES, work.updates)):
                    one = ListedScatter(threads, shares, columns, each, lanes, warp)
                    if listed_shared(one) <= machine.group_shared_bytes:
                        yield one


def _powers(most: int) -> list[int]:
    """Powers of two, up to ``most``."""
    return [1 << bit for bit in range(most.bit_length())]


def _lanes(updates: GroupUpdates, machine: GpuModel) -> int:
    """Columns of a thread, which it moves at once."""
    if machine.lanes == 1:
        return 1
    widest = 4 * machine.lanes // updates.value.dtype.bytes
    return next(n for n in (8, 4, 2, 1) if n <= widest and takes_columns(updates, n))
