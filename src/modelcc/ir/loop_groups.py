"""Groups of threads in the loop level's interpreter, which detects races.

The threads of a group run one after the other up to their next barrier.  Two of them race if they
access the same element of global or shared memory between two barriers and at least one writes; two
groups race if they do so at all, unless one of them has seen the other arrive
(:mod:`modelcc.ir.loop_arrivals`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from modelcc.ir.errors import RunError
from modelcc.ir.loop_arrivals import GroupAccesses, GroupOrder
from modelcc.ir.loop_memory import Lanes, gather, load, part, scatter, store, undefined
from modelcc.ir.loop_tiles import Arrivals, CopiedMemory, box_of
from modelcc.ir.types import Array

Thread = Callable[..., Iterator[int]]
"""The execution of a thread from its indices on, which yields the numbers of the barriers that it
reaches, and negative numbers where only its warp synchronises."""


class RaceError(RunError):
    """``threads`` of a group, or two groups, access an element; the second one did so later."""

    def __init__(self, buffer: str, element: int, threads: tuple[str, str], how: str) -> None:
        super().__init__(f"element {element} of %{buffer}: {how}")
        self.buffer = buffer
        self.element = element
        self.threads = threads


class DivergenceError(RunError):
    """Two threads of a group reach different barriers, or one reaches none."""


@dataclass
class _Accesses:
    """The last accesses of each element; numbers are larger than those of earlier intervals.

    Two reads are kept, the first and the last by another thread, so that any writer finds one that
    is not its own.
    """

    writers: dict[int, int] = field(default_factory=dict[int, int])
    readers: dict[int, int] = field(default_factory=dict[int, int])
    others: dict[int, int] = field(default_factory=dict[int, int])

    def write(self, elements: Iterable[int], who: int, first: int) -> tuple[int, int] | None:
        """The first element where ``who`` conflicts with an access since ``first``; with whom."""
        writers = self.writers
        for element in elements:
            for kind in (writers, self.readers, self.others):
                other = kind.get(element, -1)
                if other >= first and other != who:
                    return element, other
            writers[element] = who
        return None

    def read(self, elements: Iterable[int], who: int, first: int) -> tuple[int, int] | None:
        """As :meth:`write`, for reads."""
        writers, readers = self.writers, self.readers
        for element in elements:
            other = writers.get(element, -1)
            if other >= first and other != who:
                return element, other
            reader = readers.get(element, -1)
            if reader < first:
                readers[element] = who
            elif reader != who:
                self.others[element] = who
        return None

    def wrote(self, element: int, who: int) -> bool:
        """Whether the last one who wrote the element is ``who``."""
        return self.writers.get(element) == who


@dataclass(frozen=True)
class _PendingCopy:
    to: Array
    to_offset: int
    source: Array
    offset: int
    lanes: int
    active: int | None

    @property
    def places(self) -> Sequence[int]:
        """The elements that it reads."""
        return _places(self.offset, self.lanes, 1, self.active)


@dataclass
class _Beside:
    """A routine that a warp runs asynchronously: elements of tiles that it reads, fragments that it
    ``uses``, and those that it has ``written``."""

    read: dict[CopiedMemory, Array] = field(default_factory=dict[CopiedMemory, Array])
    uses: dict[int, Array] = field(default_factory=dict[int, Array])
    written: set[int] = field(default_factory=set[int])


@dataclass(frozen=True)
class _Watched:
    """Memory and its accesses, those of groups only if it is global, elements with pending copies,
    and how many copies ``leave`` from each; nothing writes to ``fixed`` memory."""

    name: str
    memory: Array
    fixed: bool = False
    by_thread: _Accesses = field(default_factory=_Accesses)
    by_group: GroupAccesses | None = None
    coming: set[int] = field(default_factory=set[int])
    leave: Counter[int] = field(default_factory=Counter[int])


class Watch:
    """The memory of one launch, with global ``buffers``; parameters that alias are watched as
    one."""

    def __init__(self, buffers: Mapping[str, Array]) -> None:
        at_address: dict[int, _Watched] = {}
        written = {m.ctypes.data for m in buffers.values() if m.flags.writeable}
        for name, memory in buffers.items():
            place = memory.ctypes.data
            fixed = place not in written
            watched = _Watched(name, memory, fixed, by_group=GroupAccesses())
            at_address.setdefault(place, watched)
        self._global = {id(m): at_address[m.ctypes.data] for m in buffers.values()}
        self._held = tuple(buffers.values())
        self._memory: dict[int, _Watched | CopiedMemory] = {}
        self._shared: dict[int, _Watched] = {}
        self._tiles: dict[int, CopiedMemory] = {}
        self._arrivals: dict[int, Arrivals] = {}
        self._beside: dict[int, list[_Beside]] = {}
        self._running: _Beside | None = None
        self._order = GroupOrder()
        self._group = ""
        self._last: tuple[int, bool] = (-1, False)
        self._points: list[str] = []
        self._interval = 0
        self._handing_on = self._copying = False
        self._thread = 0
        self._warp = 1
        self._held_by_warps: dict[tuple[int, str], Array] = {}
        self._given: dict[int, Lanes] = {}
        self._copies: dict[int, list[list[_PendingCopy]]] = {}

    def begin_group(self, point: Mapping[str, int]) -> None:
        """The group at ``point`` begins."""
        self._group = _place(point.items())
        self._order.begin(self._group)
        self._shared, self._tiles, self._arrivals = {}, {}, {}
        self._memory = {**self._global}

    def arrive(self, counters: Array, slot: int, count: int) -> bool:
        """Whether the group is the last of ``count``, as determined by its first thread."""
        if self._last[0] != self._interval:
            part(counters, slot, 1)
            name = self._global[id(counters)].name
            self._last = self._interval, self._order.arrive(name, counters, slot, count)
        return self._last[1]

    def hand_on(self) -> None:
        """The thread takes its turn: that is no barrier."""
        self._handing_on = True

    def copies(self) -> bool:
        """Whether the thread, the first of the group, now copies for all."""
        self._copying = self._thread == 0
        return self._copying

    def copied(self) -> None:
        """The copies are issued."""
        self._copying = False

    def end(self) -> None:
        """All groups have run."""
        self._order.end()

    def share(self, name: str, memory: Array) -> Array:
        """``memory``, shared by the group's threads."""
        self._memory[id(memory)] = self._shared[id(memory)] = _Watched(name, memory)
        return memory

    def tile(self, name: str, memory: Array) -> Array:
        """``memory`` for box copies, shared by the group's threads."""
        self._memory[id(memory)] = self._tiles[id(memory)] = CopiedMemory(name, memory)
        return memory

    def arrivals(self, memory: Array) -> Array:
        """Arrival barriers, which count phases of copies."""
        self._arrivals[id(memory)] = Arrivals(memory.size)
        return memory

    def run(self, thread: Thread, extents: Mapping[str, int]) -> None:
        """All threads of the group, from barrier to barrier."""
        points = list(product(*map(range, extents.values())))
        self._points = [_place(zip(extents, point, strict=True)) for point in points]
        waiting = [thread(*point) for point in points]
        self._warp = list(extents.values())[-1]
        self._held_by_warps, self._copies, self._beside = {}, {}, {}
        for watched in self._global.values():
            watched.leave.clear()
        reached: list[int | None] = [0]
        while reached[0] is not None:
            if not self._handing_on:
                self._interval += len(points)
            self._handing_on = False
            firsts = range(0, len(points), self._warp)
            reached = [n for first in firsts for n in self._advance(waiting, first)]
            self._check_barrier(reached, 0)

    def _advance(self, waiting: list[Iterator[int]], first: int) -> list[int | None]:
        """The threads of a warp up to their next barrier."""
        while True:
            reached: list[int | None] = []
            for number in range(first, first + self._warp):
                self._thread = number
                reached.append(next(waiting[number], None))
            if all(n is None or n >= 0 for n in reached):
                return reached
            self._check_barrier(reached, first)

    def _check_barrier(self, reached: list[int | None], first: int) -> None:
        for number, barrier in enumerate(reached):
            if barrier != reached[0]:
                places = " and ".join(
                    f"thread {self._points[first + n]} is at {_barrier(reached[n])}"
                    for n in (0, number)
                )
                raise DivergenceError(f"group {self._group}: {places}")

    def hold(self, name: str, lane: int, memory: Array) -> Array:
        """A fragment of a warp: the first of its threads provides the ``memory``."""
        key = self._thread // self._warp, name
        if lane == 0:
            self._held_by_warps[key] = memory
        return self._held_by_warps[key]

    def give(self, value: Lanes) -> None:
        """This thread's value for another one of its warp."""
        self._given[self._thread] = value

    def take(self, across: int) -> Lanes:
        """The value of the thread whose number differs in the bits of ``across``."""
        first = self._thread - self._thread % self._warp
        return self._given[first + (self._thread - first ^ across)]

    # --- copies

    def copy(
        self, to: Array, to_offset: int, source: Array, offset: int, lanes: int, active: int | None
    ) -> None:
        """Starts a copy: the destination is undefined until the copy is waited for."""
        self.store(to, to_offset, undefined(lanes, to.dtype), 1, None)
        self.load(source, offset, lanes, 1, active)
        self._shared[id(to)].coming.update(range(to_offset, to_offset + lanes))
        begun = _PendingCopy(to, to_offset, source, offset, lanes, active)
        self._leaving(begun).update(begun.places)
        self._copies.setdefault(self._thread, [[]])[-1].append(begun)

    def _leaving(self, copy: _PendingCopy) -> Counter[int]:
        """Elements that copies read; nobody counts them where nobody writes."""
        source = self._global[id(copy.source)]
        return Counter[int]() if source.fixed else source.leave

    def commit(self) -> None:
        """This thread's copies since the last commit are a commit group."""
        self._copies.setdefault(self._thread, [[]]).append([])

    def wait(self, pending: int) -> None:
        """Waits for all of this thread's commit groups except the last ``pending``."""
        batches = self._copies.setdefault(self._thread, [[]])
        done = max(len(batches) - 1 - pending, 0)
        for one in (one for batch in batches[:done] for one in batch):
            value = self.load(one.source, one.offset, one.lanes, 1, one.active)
            self._leaving(one).subtract(one.places)
            places = range(one.to_offset, one.to_offset + one.lanes)
            self._shared[id(one.to)].coming.difference_update(places)
            self.store(one.to, one.to_offset, np.reshape(value, one.lanes), 1, None)
        del batches[:done]

    # --- box copies and asynchronous products

    def expect(self, arrivals: Array, slot: int, size: int) -> None:
        """Starts a phase."""
        self._allow("", slot, self._arrivals[id(arrivals)].expect(slot, size))

    def copy_tile(
        self,
        to: Array,
        to_offset: int,
        source: Array,
        box: Sequence[Sequence[int]],
        offset: int,
        arrivals: Array,
        slot: int,
    ) -> None:
        """Starts the copy of a ``box``: position, sizes and strides of the tensor, extents."""
        tile = self._tiles[id(to)]
        values = box_of(source, offset, *box)
        region = to_offset + np.arange(values.size)
        for one in (one for running in self._beside.values() for one in running):
            if tile in one.read and one.read[tile][region].any():
                why = "what its warp runs beside reads it: a wait for that is missing"
                self._allow(tile.name, to_offset, why)
        interval = self._interval + self._copying
        begun = self._arrivals[id(arrivals)].copy(slot, tile, region, values, interval)
        self._allow(tile.name, to_offset, begun)

    def wait_arrival(self, arrivals: Array, slot: int, phase: int) -> None:
        """Waits for a phase."""
        waited = self._arrivals[id(arrivals)].wait(slot, phase, self._thread, self._interval)
        self._allow("", slot, waited)

    def beside(self, routine: Callable[..., object], *given: object) -> None:
        """Runs a routine of the warp asynchronously."""
        running = self._running = _Beside()
        routine(self, *given)
        self._running = None
        self._have_read(running)
        self._beside.setdefault(self._thread // self._warp, []).append(running)

    def finish(self, pending: int) -> None:
        """Waits for the warp's asynchronous routines except the last ``pending``."""
        running = self._beside.setdefault(self._thread // self._warp, [])
        done = max(len(running) - pending, 0)
        for one in running[:done]:
            self._have_read(one)
        del running[:done]

    def _have_read(self, one: _Beside) -> None:
        first = self._thread // self._warp * self._warp
        threads = range(first, first + self._warp)
        for tile, places in one.read.items():
            elements = np.flatnonzero(places)
            fault = tile.read(elements, threads, self._interval)
            self._allow(tile.name, int(elements[0]), fault)

    def _allow(self, buffer: str, element: int, fault: str) -> None:
        if fault:
            here = self._points[self._thread]
            how = f"thread {here} of group {self._group}: {fault}"
            raise RaceError(buffer or "arrivals", element, (here, here), how)

    def _touch_tile(self, tile: CopiedMemory, elements: Sequence[int]) -> None:
        running = self._running or _Beside()
        places = running.read.get(tile)
        if places is None:
            places = running.read[tile] = np.zeros(tile.memory.size, bool)
        if isinstance(elements, range):
            places[elements.start : elements.stop : elements.step] = True
        elif len(elements) == 1:
            places[elements[0]] = True
        else:
            places[[*elements]] = True
        if running is not self._running:
            self._have_read(running)

    def _touch_fragment(self, buffer: Array, writes: bool) -> None:
        if self._running is not None:
            self._running.uses[id(buffer)] = buffer
            if writes:
                self._running.written.add(id(buffer))
            return
        for one in self._beside.get(self._thread // self._warp, ()):
            if id(buffer) in (one.uses if writes else one.written):
                how = "writes" if id(buffer) in one.written else "reads"
                why = f"what its warp runs beside {how} it: a wait for that is missing"
                self._allow("fragment", 0, why)

    # --- memory

    def load(
        self, buffer: Array, offset: int, lanes: int, stride: int, active: int | None
    ) -> Lanes:
        """:func:`~modelcc.ir.loop_memory.load`, watched."""
        if lanes == 1 and active is None and 0 <= offset < len(buffer):
            return self._element(buffer, offset)
        value = load(buffer, offset, lanes, stride, active)
        self._note(buffer, False, _places, offset, lanes, stride, active)
        return value

    def _element(self, buffer: Array, offset: int) -> Lanes:
        """The fast path of :meth:`load`: an element of shared memory, or not watched."""
        watched = self._memory.get(id(buffer))
        if not isinstance(watched, _Watched) or watched.coming or watched.by_group is not None:
            self._note(buffer, False, _places, offset, 1, 1, None)
        else:
            own = self._interval + self._thread
            found = watched.by_thread.read((offset,), own, self._interval)
            if found is not None:
                self._threads_race(watched, *found, False)
        return buffer[offset]

    def gather(self, buffer: Array, offset: int, offsets: Lanes, active: int | None) -> Lanes:
        """:func:`~modelcc.ir.loop_memory.gather`, watched."""
        value = gather(buffer, offset, offsets, active)
        self._note(buffer, False, _spread, offset, offsets, active)
        return value

    def store(
        self, buffer: Array, offset: int, value: Lanes, stride: int, active: int | None
    ) -> None:
        """:func:`~modelcc.ir.loop_memory.store`, watched."""
        store(buffer, offset, value, stride, active)
        self._note(buffer, True, _places, offset, value.size, stride, active)

    def scatter(
        self, buffer: Array, offset: int, offsets: Lanes, value: Lanes, active: int | None
    ) -> None:
        """:func:`~modelcc.ir.loop_memory.scatter`, watched."""
        scatter(buffer, offset, offsets, value, active)
        self._note(buffer, True, _spread, offset, offsets, active)

    def _note(
        self, buffer: Array, writes: bool, places: Callable[..., Sequence[int]], *where: object
    ) -> None:
        """An access to ``places(*where)``, which are computed only if memory is watched."""
        watched = self._memory.get(id(buffer))
        if watched is None:
            if self._running is not None or self._beside:
                self._touch_fragment(buffer, writes)
        elif isinstance(watched, CopiedMemory):
            self._touch_tile(watched, places(*where))
        elif not watched.fixed:
            elements = places(*where)
            if watched.coming or watched.by_group is not None:
                self._allow_beyond_threads(watched, elements, writes)
            note = watched.by_thread.write if writes else watched.by_thread.read
            found = note(elements, self._interval + self._thread, self._interval)
            if found is not None:
                self._threads_race(watched, *found, writes)

    def _allow_beyond_threads(
        self, watched: _Watched, elements: Sequence[int], writes: bool
    ) -> None:
        """Checks for conflicts with copies and with other groups."""
        for element in elements if watched.coming else ():
            if element in watched.coming:
                self._allow(watched.name, element, "a copy comes there: a wait is missing")
        for element in elements if writes and watched.leave else ():
            if watched.leave[element] > 0:
                self._allow(watched.name, element, "a copy reads there: a wait is missing")
        if watched.by_group is not None:
            found = watched.by_group.conflict(elements, self._order, writes)
            if found is not None:
                self._groups_race(watched, *found, writes)

    def _groups_race(
        self, watched: _Watched, element: int, other: int, wrote: bool, writes: bool
    ) -> None:
        groups = self._order.group(other), self._group
        how = f"group {groups[0]} {_verb(wrote)} it and group {groups[1]} {_verb(writes)} it"
        raise RaceError(watched.name, element, groups, f"{how}; nothing orders groups")

    def _threads_race(self, watched: _Watched, element: int, other: int, writes: bool) -> None:
        threads = self._points[other - self._interval], self._points[self._thread]
        first = "writes" if watched.by_thread.wrote(element, other) else "reads"
        how = f"thread {threads[0]} {first} it and thread {threads[1]} {_verb(writes)} it"
        missing = "a race" if first == "writes" and writes else "a barrier is missing"
        place = f"without a barrier between them, in group {self._group}: {missing}"
        raise RaceError(watched.name, element, threads, f"{how}, {place}")


def _places(offset: int, lanes: int, stride: int, active: int | None) -> Sequence[int]:
    count = lanes if active is None else min(max(active, 0), lanes)
    if count == 1:
        return (offset,)
    if stride < 1:
        return [offset + lane * stride for lane in range(count)]
    return range(offset, offset + count * stride, stride)


def _spread(offset: int, offsets: Lanes, active: int | None) -> Sequence[int]:
    given: list[int] = offsets.reshape(-1).tolist()
    return [offset + one for one in given[: None if active is None else max(active, 0)]]


def _place(point: Iterable[tuple[str, int]]) -> str:
    return f"({', '.join(f'{name}={value}' for name, value in point)})"


def _barrier(number: int | None) -> str:
    if number is None:
        return "the end"
    return f"barrier {number}" if number > 0 else f"what its warp does together ({-number})"


def _verb(writes: bool) -> str:
    return "writes" if writes else "reads"
