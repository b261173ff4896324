"""Updates at places from memory, of which each group lists its own: it looks at every index once.

grid g: a point of the axes on which places hang, a share of places, a block of columns; thread t
  for each block of threads * each updates
    whose place each is, to shared memory: neighbours look at neighbouring updates; barrier
    each thread counts the group's own among neighbours, and threads add up these counts; barrier
    the group's own, in their order, to a list; barrier
    each thread goes through the list, and does those of its own places, for its columns

So no result hangs on who comes first, and the order is the model's: what may meet, one thread does.
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
    Barrier,
    Buffer,
    Check,
    Const,
    Exchange,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Let,
    Load,
    Predicate,
    ScalarCall,
    Select,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BOOL, I32
from modelcc.passes.loop.note_checks import note_checks
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import ListedScatter
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
from modelcc.targets.gpu.group_updates import GroupUpdates
from modelcc.targets.gpu.reduction import combine_two, exchanged, is_power_of_two, lanes_of

AHEAD = 8
"""Updates of a thread whose indices are on their way at the same time."""

AT_ONCE = 4
"""Entries of a list that a thread reads before it looks whose they are."""

FEW = 8
"""Updates, of a number that comes at run time, at which each thread looks by itself."""

NOBODY, ZERO, ONE = (Const(n, I32) for n in (-1, 0, 1))


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
    """Bytes of shared memory of a group: who has an update, the list, and counts."""
    return 4 * (s.threads * (2 * s.each + 1) + s.threads // s.warp)


def lower_listed_scatter(
    kernel: GroupKernel, updates: GroupUpdates, schedule: ListedScatter
) -> Function:
    """The function of the updates; :class:`ScheduleError` if none may meet, if places may be of
    nothing, or threads are no whole warps and columns."""
    s = schedule
    counts = (s.threads, s.shares, s.columns, s.each, s.lanes)
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
class _ListMemory:
    """Of a group: whose each update is, the updates that are the group's, and counts of these."""

    whose: Buffer
    listed: Buffer
    counts: Buffer


@dataclass(frozen=True)
class _OwnPart:
    """Of a thread: the ``point`` of its group, which ``owner`` of places there it is, and which
    vector of columns it has."""

    point: Point
    owner: Index
    column: Index


class _ListThreads:
    def __init__(self, kernel: GroupKernel, updates: GroupUpdates, s: ListedScatter) -> None:
        self._kernel, self._updates, self._s = kernel, updates, s
        fresh = self._fresh = kernel.names.fresh
        g, t = fresh("g"), fresh("t")
        blocks = ceildiv(self._vectors(), s.columns)
        self._share = LoopVar(fresh("o"), s.shares, "")
        self._block = LoopVar(fresh("c"), blocks, "")
        self._loops = (*updates.lists, self._share, self._block)
        threads: tuple[tuple[str, int], ...] = ((t, s.threads),)
        self._thread: Index = Sym(t)
        self._team, self._lane = self._thread, Sym(t)
        if s.warp > 1:
            w = fresh("w")
            threads = ((w, s.threads // s.warp), (t, s.warp))
            self._thread, self._team = Sym(w) * s.warp + Sym(t), Sym(w)
        self._group = Sym(g)
        self._launch = Launching(((g, extent_of(self._loops)),), threads, kernel.dims)
        self._owners = s.threads // s.columns
        size = s.threads * s.each
        self._memory = _ListMemory(
            Buffer(fresh("whose"), I32, s.threads * self._pitch, "shared"),
            Buffer(fresh("listed"), I32, size, "shared"),
            Buffer(fresh("counts"), I32, s.threads // s.warp, "shared"),
        )
        self._total = extent_of(updates.meeting)
        self._size = size

    @property
    def _pitch(self) -> int:
        """Of what a thread counts: odd, so that neighbours reach other banks."""
        return self._s.each + (self._s.each % 2 == 0)

    def _vectors(self) -> Index:
        """Of the columns of an update."""
        return floordiv(extent_of(self._updates.columns), self._s.lanes)

    def function(self) -> Function:
        """Grid, threads, and what these do."""
        at = Evaluation(self._kernel.names)
        point = at.place(self._loops, self._group)
        thread = at.bind("thread", self._thread)
        column = point[self._block.name] * self._s.columns + mod(thread, self._s.columns)
        mine = _OwnPart(
            point,
            at.bind("owner", floordiv(thread, self._s.columns)),
            at.bind("column", column),
        )
        blocks = self._blocks(thread, mine)
        few = Condition(self._total, "<=", FEW)
        known = isinstance(self._total, int)
        at.statements.append(
            blocks if known else If(Predicate((few,)), tuple(self._one_by_one(mine)), (blocks,))
        )
        m = self._memory
        shared = [Alloc(b) for b in (m.whose, m.listed, m.counts)]
        return self._kernel.function(self._launch.around(shared, at.statements))

    def _blocks(self, thread: Index, mine: _OwnPart) -> For:
        """All updates, by blocks."""
        block, at = Sym(self._fresh("b")), Evaluation(self._kernel.names)
        at.statements += [*self._looked_at(block, thread, mine.point), Barrier()]
        count = self._list(at, thread)
        at.statements += self._for_columns(mine, self._done(block, count, mine))
        steps = ceildiv(self._total, self._size)
        return For(block.name, 0, steps, tuple(at.statements))

    def _for_columns(self, mine: _OwnPart, body: Sequence[Stmt]) -> list[Stmt]:
        """``body`` by threads that have columns."""
        vectors = self._vectors()
        whole = isinstance(vectors, int) and vectors % self._s.columns == 0
        there = () if whole else (Condition(mine.column, "<", vectors),)
        return only_where(there, body)

    # --- whose an update is

    def _looked_at(self, block: Index, thread: Index, point: Point) -> list[Stmt]:
        """Who has each update of a block, to shared memory; the last block may not be whole."""

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
        """Who has update ``number`` of a block, if there is one and this group has it."""
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
        offset = number if self._pitch == self._s.each else number + floordiv(number, self._s.each)
        at.statements.append(Store(self._memory.whose.name, offset, value))
        return at.statements

    def _is_shared(self, where: Index, point: Point) -> tuple[Condition, ...]:
        """That the group has a place."""
        share = Condition(mod(where, self._s.shares), "==", point[self._share.name])
        return (share,) if self._s.shares > 1 else ()

    def _owner(self, where: Index) -> Index:
        """The owner of a place in its group."""
        return mod(floordiv(where, self._s.shares), self._owners)

    def _place_of(self, at: Evaluation, update: Index, point: Point) -> Point:
        """``point`` with the place of an update."""
        meeting = at.place(self._updates.meeting, at.bind("u", update))
        return at.bound(self._updates.places, {**point, **meeting})

    # --- the list of a group

    def _list(self, at: Evaluation, thread: Index) -> Index:
        """The group's own updates of a block, in their order; how many there are."""
        first, each = thread * self._pitch, range(self._s.each)
        whose = [at.named("o", Load(self._memory.whose.name, first + n, I32)) for n in each]
        present = [ScalarCall("ge", (owner, ZERO), BOOL) for owner in whose]
        own = reduce(_sum, (Select(there, ONE, ZERO) for there in present))
        place, count = self._counted(at, at.named("own", own))
        for number, (owner, there) in enumerate(zip(whose, present, strict=True)):
            put = at.nested()
            entry = IndexOf((thread * self._s.each + number) * self._owners, I32)
            offset = put.bind_value("place", place)
            put.statements += [
                Store(self._memory.listed.name, offset, _sum(entry, owner)),
                Assign(place.name, _sum(place, ONE)),
            ]
            at.statements.append(If(there, tuple(put.statements)))
        at.statements.append(Barrier())
        return at.bind_value("count", count)

    def _counted(self, at: Evaluation, own: Expr) -> tuple[Var, Var]:
        """Registers of how many updates are of threads before this one, and of all of them."""
        place, total = at.register("place", ZERO), at.register("total", own)
        self._counted_in_warp(at, place, total)
        counts, teams = self._memory.counts.name, self._s.threads // self._s.warp
        first = (Condition(self._lane, "==", 0),) if self._s.warp > 1 else ()
        at.statements += [*only_where(first, [Store(counts, self._team, total)]), Barrier()]
        if 1 < teams <= self._s.warp:
            self._counted_by_lanes(at, place, total)
            return place, total
        at.statements.append(Assign(total.name, ZERO))
        other, inner = Sym(self._fresh("i")), at.nested()
        known = inner.named("other", Load(counts, other, I32))
        before = Predicate((Condition(other, "<", self._team),))
        inner.statements += [
            Assign(place.name, _sum(place, Select(before, known, ZERO))),
            Assign(total.name, _sum(total, known)),
        ]
        at.statements.append(For(other.name, 0, teams, tuple(inner.statements)))
        return place, total

    def _counted_by_lanes(self, at: Evaluation, place: Var, total: Var) -> None:
        """Adds the counts of warps, of which each thread of a warp reads one."""
        teams, lane = self._s.threads // self._s.warp, self._lane
        known: Expr = Load(self._memory.counts.name, minimum(lane, teams - 1), I32)
        if teams < self._s.warp:
            known = Select(Predicate((Condition(lane, "<", teams),)), known, ZERO)
        known = at.named("other", known)
        before = Select(Predicate((Condition(lane, "<", self._team),)), known, ZERO)
        earlier = exchanged(at, "sum", before, self._s.warp)
        at.statements += [
            Assign(place.name, _sum(place, earlier)),
            Assign(total.name, exchanged(at, "sum", known, self._s.warp)),
        ]

    def _counted_in_warp(self, at: Evaluation, place: Var, total: Var) -> None:
        """Adds what threads of this warp have, to ``place`` of those before this one only."""
        if self._s.warp == 1:
            return
        other, bit = at.register("other", total), 1
        while bit < self._s.warp:
            before = Predicate((Condition(mod(self._lane, 2 * bit), ">=", bit),))
            at.statements += [
                Assign(other.name, total),
                Exchange(other.name, bit),
                Assign(place.name, _sum(place, Select(before, other, ZERO))),
                Assign(total.name, _sum(total, other)),
            ]
            bit *= 2

    # --- updates that are a thread's

    def _done(self, block: Index, count: Index, mine: _OwnPart) -> list[Stmt]:
        """Those of a list, in its columns: entries are read a few at once."""
        turns, turn, last = floordiv(count, AT_ONCE), Sym(self._fresh("k")), Sym(self._fresh("k"))
        return [
            For(turn.name, 0, turns, self._entries(block, turn * AT_ONCE, AT_ONCE, mine)),
            For(last.name, turns * AT_ONCE, count, self._entries(block, last, 1, mine)),
        ]

    def _entries(self, block: Index, first: Index, count: int, mine: _OwnPart) -> tuple[Stmt, ...]:
        """What entries of a list say, if that is for this thread, one after the other."""
        at = Evaluation(self._kernel.names)
        loads = (Load(self._memory.listed.name, first + n, I32) for n in range(count))
        for entry in [at.named("e", load) for load in loads]:
            self._entry(at, block, at.bind_value("entry", entry), mine)
        return tuple(at.statements)

    def _entry(self, at: Evaluation, block: Index, entry: Index, mine: _OwnPart) -> None:
        """The update that an entry names, if that is for this thread."""
        inner = at.nested()
        update = block * self._size + inner.bind("n", floordiv(entry, self._owners))
        place = self._place_of(inner, update, mine.point)
        # Whoever looked at the index has noted it if it is out of range.
        noted = note_checks(inner.statements, self._kernel.dims)
        inner.statements[:] = [s for s in noted if not isinstance(s, Check)]
        self._change(inner, place, mine)
        is_own = (Condition(mod(entry, self._owners), "==", mine.owner),)
        at.statements += only_where(is_own if self._owners > 1 else (), inner.statements)

    def _one_by_one(self, mine: _OwnPart) -> list[Stmt]:
        """Those of few, at which each thread looks by itself."""
        number, at = Sym(self._fresh("k")), Evaluation(self._kernel.names)
        place = self._place_of(at, number, mine.point)
        where = at.bind("where", substitute(self._updates.where, place))
        conditions = list(self._is_shared(where, mine.point))
        if self._owners > 1:
            conditions.append(Condition(self._owner(where), "==", mine.owner))
        inner = at.nested()
        self._change(inner, place, mine)
        at.statements += only_where(conditions, inner.statements)
        body = (For(number.name, 0, self._total, tuple(at.statements)),)
        return self._for_columns(mine, body)

    def _change(self, at: Evaluation, place: Point, mine: _OwnPart) -> None:
        """An update of a known place, in the columns of this thread."""
        changed = at.beside(lanes_of(self._kernel, self._s.lanes))
        if self._updates.columns:
            place = {**place, **changed.place_lanes(self._updates.columns, mine.column)}
        changed.store(self._updates.nest, place, changed.value(self._updates.value, place))


def _together(found: Sequence[Sequence[Stmt]]) -> Iterator[Stmt]:
    """Statements alike of several updates, what all of them read before any of it is used."""
    runs = [[tuple(run) for _, run in groupby(s, lambda s: isinstance(s, Let))] for s in found]
    for turn in zip_longest(*runs, fillvalue=()):
        for run in turn:
            yield from run


def _sum(one: Expr, other: Expr) -> Expr:
    return combine_two("sum", (one, other))
