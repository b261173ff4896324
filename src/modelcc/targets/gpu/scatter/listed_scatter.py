"""Updates at destinations from memory, which each group lists: it loads every index once.

grid g: a point of the axes on which destinations depend, a share of these, a block of columns;
thread t
  for each block of threads * each updates
    the owner of each destination, to shared memory: neighbours load neighbouring updates; barrier
    each thread counts the group's own updates in a run; a prefix sum over threads; barrier
    the group's own, in their order, to a list; barrier
    each thread goes through the list, and applies those of its own destinations, for its columns

So results are deterministic, in the model's order: updates that may collide belong to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, zip_longest

from modelcc.ir.index import Index, Sym, ceildiv, floordiv, minimum, mod, substitute
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Check,
    Const,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Let,
    Predicate,
    ScalarCall,
    Select,
    Stmt,
    Store,
)
from modelcc.ir.tensor import Condition, Read
from modelcc.ir.types import BOOL, I32, I64
from modelcc.passes.loop.note_checks import note_checks
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import ListedScatter
from modelcc.schedule.lanes import widen
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.rows.reduction import is_power_of_two, lanes_of
from modelcc.targets.gpu.scatter.group_list import NOBODY, GroupList
from modelcc.targets.gpu.scatter.group_updates import GroupUpdates

AHEAD = 8
"""Updates whose indices a thread has in flight at the same time."""

AT_ONCE, AT_ONCE_COLUMNS = 4, 16
"""Entries of a list that a thread loads, and columns of updates that it holds in registers, before
it applies the first of these updates."""

FEW = 8
"""Updates, of a named number, up to which each thread scans all of them."""


def takes_columns(updates: GroupUpdates, lanes: int) -> bool:
    """Whether all columns of an update are whole vectors of ``lanes``."""
    if lanes == 1:
        return True
    if not updates.columns:
        return False
    last = updates.columns[-1]
    if not isinstance(last.extent, int) or last.extent % lanes:
        return False
    return updates.is_beside(last) and vectorisable(updates.value, last.name, lanes, aligned=True)


def listed_shared(s: ListedScatter) -> int:
    """Bytes of shared memory of a group: owners of updates, the list, and counts."""
    return 4 * (s.threads * (2 * s.each + 1) + s.threads // s.warp)


def lower_listed_scatter(
    kernel: GroupKernel, updates: GroupUpdates, schedule: ListedScatter
) -> Function:
    """The function of the updates; :class:`ScheduleError` if none may collide, if there may be no
    destinations, or threads are no whole warps and columns."""
    s = schedule
    counts = (s.threads, s.shares, s.columns, s.each, s.lanes, s.warp)
    if min(counts) < 1 or s.threads % s.columns or s.threads % s.warp:
        raise ScheduleError("groups are whole warps that have whole updates: threads, columns")
    if not is_power_of_two(s.warp):
        raise ScheduleError("a power of two of threads is a warp")
    if not updates.meeting or (s.columns > 1 and not updates.columns):
        raise ScheduleError("updates that may meet are listed, and columns are theirs")
    if kernel.leaves:
        raise ScheduleError("threads wait for each other, where places may be of nothing")
    if not takes_columns(updates, s.lanes):
        raise ScheduleError("columns are no whole vectors: lanes")
    return _ListThreads(kernel, updates, s).function()


@dataclass(frozen=True)
class _OwnPart:
    """A thread's part: the ``point`` of its group and columns, which ``owner`` of destinations it
    is, and the number of its vector of columns."""

    point: Point
    owner: Index
    column: Index


class _ListThreads:
    def __init__(self, kernel: GroupKernel, updates: GroupUpdates, s: ListedScatter) -> None:
        self._kernel, self._updates, self._s = kernel, updates, s
        fresh = self._fresh = kernel.names.fresh
        g, w, t = fresh("g"), fresh("w"), fresh("t")
        blocks = ceildiv(self._vectors(), s.columns)
        self._share = LoopVar(fresh("o"), s.shares, "")
        self._block = LoopVar(fresh("c"), blocks, "")
        self._loops = (*updates.lists, self._share, self._block)
        self._group, self._thread = Sym(g), Sym(w) * s.warp + Sym(t) if s.warp > 1 else Sym(t)
        threads = ((w, s.threads // s.warp), (t, s.warp)) if s.warp > 1 else ((t, s.threads),)
        self._launch = Launching(((g, extent_of(self._loops)),), threads, kernel.dims)
        self._owners, self._size = s.threads // s.columns, s.threads * s.each
        self._list = GroupList(kernel.names, s, w, t)
        self._total = extent_of(updates.meeting)
        self._lanes = lanes_of(kernel, s.lanes)

    def _vectors(self) -> Index:
        """Vectors of the columns of an update."""
        return floordiv(extent_of(self._updates.columns), self._s.lanes)

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        at = Evaluation(self._kernel.names)
        point = at.place(self._loops, self._group)
        thread = at.bind("thread", self._thread)
        column = point[self._block.name] * self._s.columns + mod(thread, self._s.columns)
        column = at.bind("column", column)
        if self._updates.columns:
            own = at.beside(self._lanes).place_lanes(self._updates.columns, column)
            point = {**point, **own}
        mine = _OwnPart(point, at.bind("owner", floordiv(thread, self._s.columns)), column)
        blocks = self._blocks(thread, mine)
        few = Condition(self._total, "<=", FEW)
        known = isinstance(self._total, int)
        at.statements.append(
            blocks if known else If(Predicate((few,)), tuple(self._one_by_one(mine)), (blocks,))
        )
        shared = [Alloc(buffer) for buffer in self._list.memory]
        return self._kernel.function(self._launch.around(shared, at.statements))

    def _blocks(self, thread: Index, mine: _OwnPart) -> For:
        """All updates, by blocks."""
        block, at = Sym(self._fresh("b")), Evaluation(self._kernel.names)
        at.statements += self._looked_at(block, thread, mine.point)
        count = self._list.made(at)
        at.statements += self._for_columns(mine, self._done(block, count, mine))
        steps = ceildiv(self._total, self._size)
        return For(block.name, 0, steps, tuple(at.statements))

    def _for_columns(self, mine: _OwnPart, body: Sequence[Stmt]) -> list[Stmt]:
        """``body`` by threads that have columns."""
        vectors = self._vectors()
        whole = isinstance(vectors, int) and vectors % self._s.columns == 0
        there = () if whole else (Condition(mine.column, "<", vectors),)
        return only_where(there, body)

    # --- owners of updates

    def _looked_at(self, block: Index, thread: Index, point: Point) -> list[Stmt]:
        """The owner of each update of a block, to shared memory; the last block may be partial."""

        def looked_at(whole: bool) -> list[Stmt]:
            turn = Sym(self._fresh("r"))
            numbers = ((turn * together + n) * self._s.threads + thread for n in range(together))
            found = [self._owner_of(block, number, point, whole) for number in numbers]
            return [For(turn.name, 0, self._s.each // together, tuple(_together(found)))]

        together = next(n for n in range(min(AHEAD, self._s.each), 0, -1) if self._s.each % n == 0)
        total = self._total
        if isinstance(total, int) and (total < self._size or total % self._size == 0):
            return looked_at(total % self._size == 0)
        whole = Condition((block + 1) * self._size, "<=", self._total)
        return [If(Predicate((whole,)), tuple(looked_at(True)), tuple(looked_at(False)))]

    def _owner_of(self, block: Index, number: Index, point: Point, whole: bool) -> list[Stmt]:
        """The owner of update ``number`` of a block, if that exists and is in this group."""
        at, conditions = Evaluation(self._kernel.names), list[Condition]()
        number = at.bind("n", number)
        update = block * self._size + number
        if not whole:
            conditions.append(Condition(update, "<", self._total))
            update = minimum(update, self._total - 1)
        where = at.bind("where", substitute(self._updates.where, self._place_of(at, update, point)))
        conditions += self._is_shared(where, point)
        value: Expr = IndexOf(self._owner(where), I32)
        if conditions:
            value = Select(Predicate(tuple(conditions)), value, NOBODY)
        at.statements.append(self._list.keep(number, value))
        return at.statements

    def _is_shared(self, where: Index, point: Point) -> tuple[Condition, ...]:
        """The conditions under which the group has a destination."""
        share = Condition(mod(where, self._s.shares), "==", point[self._share.name])
        return (share,) if self._s.shares > 1 else ()

    def _owner(self, where: Index) -> Index:
        """The owner of a destination in its group."""
        return mod(floordiv(where, self._s.shares), self._owners)

    def _place_of(self, at: Evaluation, update: Index, point: Point) -> Point:
        """``point`` with the destination of an update."""
        meeting = at.place(self._updates.meeting, at.bind("u", update))
        return at.bound(self._updates.places, {**point, **meeting})

    # --- a thread's own updates

    def _done(self, block: Index, count: Index, mine: _OwnPart) -> list[Stmt]:
        """The updates of a list, in the thread's columns, several entries at once."""
        turn, last = (Sym(self._fresh("k")) for _ in range(2))
        few = min(AT_ONCE, AT_ONCE_COLUMNS // self._s.lanes)
        turns = floordiv(count, few)
        return [
            For(turn.name, 0, turns, self._entries(block, turn * few, few, mine)),
            For(last.name, turns * few, count, self._entries(block, last, 1, mine)),
        ]

    def _entries(self, block: Index, first: Index, count: int, mine: _OwnPart) -> tuple[Stmt, ...]:
        """The work of several entries of a list: all updates that are this thread's are loaded
        before the first of them is applied."""
        at = Evaluation(self._kernel.names)
        known = [at.named("e", self._list.entry(first + n)) for n in range(count)]
        entries = [at.bind_value("entry", one) for one in known]
        if self._owners == 1:
            for found in [self._listed(at, block, entry, mine) for entry in entries]:
                self._change(at, *found)
            return tuple(at.statements)
        own = [Condition(mod(entry, self._owners), "==", mine.owner) for entry in entries]
        there = [at.named("own", Predicate((one,))) for one in own]
        inner = at.nested()
        pairs = zip(there, entries, strict=True)
        found = [self._listed_if(inner, is_own, block, entry, mine) for is_own, entry in pairs]
        for is_own, one in zip(there, found, strict=True):
            change = inner.nested()
            self._change(change, *one)
            inner.statements.append(If(is_own, tuple(change.statements)))
        some = reduce(lambda one, other: ScalarCall("or", (one, other), BOOL), there)
        at.statements.append(If(some, tuple(inner.statements)))
        return tuple(at.statements)

    def _listed(
        self, at: Evaluation, block: Index, entry: Index, mine: _OwnPart
    ) -> tuple[Index, Expr]:
        """The offset and the value of the update that an entry names."""
        update = block * self._size + at.bind("n", floordiv(entry, self._owners))
        inner = at.nested()
        place = self._place_of(inner, update, mine.point)
        # Whoever loaded the index has recorded it if it is out of range.
        noted = note_checks(inner.statements, self._kernel.dims)
        at.statements += [s for s in noted if not isinstance(s, Check)]
        return self._found(at, place)

    def _listed_if(
        self, at: Evaluation, there: Expr, block: Index, entry: Index, mine: _OwnPart
    ) -> tuple[Index, Expr]:
        """The same in registers, if it is ``there``; otherwise undefined."""
        inner = at.nested()
        offset, value = self._listed(inner, block, entry, mine)
        # With whole vectors, their number is kept, which shows that the offset is aligned.
        each = self._s.lanes if mod(offset, self._s.lanes) == 0 else 1
        place = at.register("at", Const(0, I64))
        inner.statements.append(Assign(place.name, IndexOf(floordiv(offset, each), I64)))
        if not isinstance(value, Const):
            kept = at.register(
                "new", Const(value.dtype.numpy.type(0).item(), value.dtype, value.lanes)
            )
            inner.statements.append(Assign(kept.name, value))
            value = kept
        at.statements.append(If(there, tuple(inner.statements)))
        return at.bind_value("at", place) * each, value

    def _found(self, at: Evaluation, place: Point) -> tuple[Index, Expr]:
        """Offset and value of an update, in the columns of this thread."""
        value = at.beside(self._lanes)
        offset = substitute(self._updates.nest.store, place)
        if self._lanes is not None:
            offset, _ = self._lanes.split(offset)
        return offset, value.named("new", value.value(self._updates.update, place))

    def _change(self, at: Evaluation, offset: Index, update: Expr) -> None:
        """Updates an element, or a vector of columns."""
        lanes, nest, name = self._lanes, self._updates.nest, self._fresh("update")
        place = offset if lanes is None else offset + Sym(lanes.variable)
        changed = self._updates.combined(place, Read(name, (), update.dtype))
        value = at.beside(lanes).value(changed, {}, {name: update})
        at.statements.append(Store(nest.output, offset, widen(value, self._s.lanes)))

    def _one_by_one(self, mine: _OwnPart) -> list[Stmt]:
        """Few updates, all of which each thread scans."""
        number, at = Sym(self._fresh("k")), Evaluation(self._kernel.names)
        place = self._place_of(at, number, mine.point)
        where = at.bind("where", substitute(self._updates.where, place))
        conditions = list(self._is_shared(where, mine.point))
        if self._owners > 1:
            conditions.append(Condition(self._owner(where), "==", mine.owner))
        inner = at.nested()
        self._change(inner, *self._found(inner, place))
        at.statements += only_where(conditions, inner.statements)
        body = (For(number.name, 0, self._total, tuple(at.statements)),)
        return self._for_columns(mine, body)


def _together(found: Sequence[Sequence[Stmt]]) -> Iterator[Stmt]:
    """Equal statements of several updates, all loads before their first use."""
    runs = [[tuple(run) for _, run in groupby(s, lambda s: isinstance(s, Let))] for s in found]
    for turn in zip_longest(*runs, fillvalue=()):
        for run in turn:
            yield from run
