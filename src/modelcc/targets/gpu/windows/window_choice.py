"""Strips of overlapping windows: by the work of a thread, and the number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from modelcc.ir.index import Index, coefficient, divides, substitute, symbols
from modelcc.ir.scalar_tree import reads
from modelcc.schedule.group_schedule import GroupWindows
from modelcc.schedule.nest import Nest
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.windows.strips import takes_vectors
from modelcc.targets.gpu.windows.windows import Windows, find_windows

NAMED = 16
"""A named size, for estimates of the number of threads: mostly the batch of images."""

MOST_TERMS = 512
"""Terms of a window, which one thread sums up."""

PAIR = 2
"""Neighbours of a thread: more of them leave too few threads."""

STRIPS = 14, 8, 7, 6, 5, 4, 3, 2
"""Results of strips."""

WAITING, READING = 150, 2
"""Per line: the time that a thread waits for its elements, in steps of all concurrent threads of an
SM, and the steps to load and widen an element."""

STEPS = 4
"""Warps that an SM advances by a step at once."""

REGISTERS = 64
"""Most registers for elements, weights and sums of a thread."""

ADDRESSES = 36
"""Registers of a thread for addresses of its elements, weights and results, and their indices."""

GROUP = 256
"""Most threads of a group."""

COLUMNS = range(64, 7, -1)
"""Vectors of neighbours that a group has of each line."""

SHARED = 0.15
"""The part of a line's time that it takes to load it from memory."""


def window_schedules(group: Group, anchor: Nest, machine: GpuModel) -> Iterator[GroupWindows]:
    """Strips by expected time, if windows overlap."""
    found = find_windows(anchor)
    terms = prod(_usual(v.extent) for v in anchor.reduce)
    if found is None or terms > MOST_TERMS:
        return
    lanes = _lanes(group, anchor, found, machine)
    points = prod(_usual(v.extent) for v in anchor.parallel) // lanes
    fitting: list[tuple[float, int, int]] = []
    extent = _usual(found.strip.result.extent)
    for size in STRIPS:
        longest = min(extent, 2 * found.size + 2)  # beyond, few more elements are shared
        if size <= longest and _registers(found, size, lanes, _bytes(anchor)) <= _most(machine):
            strips = points // extent * -(-extent // size)
            fitting.append((_time(found, size, lanes, strips, machine), size, strips))
    for _, size, strips in sorted(fitting):
        yield _blocks(found, size, lanes, strips, machine)


def _usual(extent: Index) -> int:
    """An extent, with usual values for named sizes."""
    sized = substitute(extent, dict.fromkeys(symbols(extent), NAMED))
    return sized if isinstance(sized, int) else NAMED


def _bytes(anchor: Nest) -> int:
    """Bytes of the narrowest element that is loaded."""
    return min(read.dtype.bytes for read in reads(anchor.body))


def _lanes(group: Group, anchor: Nest, found: Windows, machine: GpuModel) -> int:
    """Neighbours of a thread, for which all that it loads is contiguous, or the same."""
    side = found.side
    steps = {coefficient(r.indices[0], side.name) for r in reads(anchor.body)}
    fits = steps <= {0, 1} and takes_vectors(group, side, PAIR)
    return PAIR if machine.lanes > 1 and fits else 1


def window_registers(anchor: Nest, schedule: GroupWindows) -> int:
    """Registers of a thread: those of :data:`REGISTERS`, and addresses; 0 for no windows."""
    found = find_windows(anchor)
    if found is None:
        return 0
    return ADDRESSES + _registers(found, schedule.points, schedule.lanes, _bytes(anchor))


def _registers(found: Windows, size: int, lanes: int, bytes_: int) -> int:
    """Registers of a thread for its sums, the weights of a line, and its elements as loaded."""
    elements = found.elements(size)
    elements = elements if found.same else -(-elements * lanes * bytes_ // 4)
    return (size + found.size) * lanes + elements


def _most(machine: GpuModel) -> int:
    return min(REGISTERS, machine.thread_registers // 2)


def _time(found: Windows, size: int, lanes: int, strips: int, machine: GpuModel) -> float:
    """Time of a line of all windows: of all threads in turn, but at least a thread's latency."""
    elements = found.elements(size) * (1 if found.same else lanes)
    own = lanes * size * found.size + READING * (elements + found.size * lanes)
    at_once = STEPS * machine.warp * machine.units
    return max(own * strips / at_once, own if machine.virtual else own + WAITING)


def _blocks(found: Windows, size: int, lanes: int, strips: int, machine: GpuModel) -> GroupWindows:
    """A group of some lines of some neighbours, whose windows share most."""
    most = min(GROUP, machine.group_threads)
    fair = max(min(most, strips // machine.units), machine.warp)
    if found.beside is None:
        return GroupWindows(fair // machine.warp * machine.warp, size, lanes)
    extent = _usual(found.beside.extent)
    shapes = [
        (lines, columns)
        for columns in COLUMNS
        if divides(columns * lanes, found.side.extent, {})
        for lines in range(1, min(fair // columns, extent) + 1)
    ]
    if not shapes:
        return GroupWindows(fair // machine.warp * machine.warp, size, lanes)
    lines, columns = min(shapes, key=lambda s: _cost(*s, extent, found, machine))
    return GroupWindows(lines * columns, size, lanes, lines, columns)


def _cost(lines: int, columns: int, extent: int, found: Windows, machine: GpuModel) -> float:
    """Relative cost of a result: idle lines and threads, what lines share with others, and a little
    more for a warp whose threads are not all neighbours."""
    threads, rows = lines * columns, found.size - 1
    whole = -(-threads // machine.warp) * machine.warp / threads
    several = -(-extent // lines) * lines / extent
    apart = 1 + max(machine.warp - columns, 0) / machine.warp / 4
    return whole * several * apart * (1 + SHARED * rows / lines)
