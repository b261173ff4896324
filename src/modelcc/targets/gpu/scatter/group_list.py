"""Stream compaction within a group: a list, in order, of those numbers that have an owner.

the owner of each number, or none, to shared memory, stored by neighbouring threads; barrier
each thread counts owned numbers in a run of its own; a prefix sum over threads; barrier
owned numbers to a list; barrier
"""

from __future__ import annotations

from functools import reduce

from modelcc.ir.index import Index, Sym, floordiv, minimum, mod
from modelcc.ir.loop import (
    Assign,
    Barrier,
    Buffer,
    Const,
    Exchange,
    Expr,
    For,
    If,
    IndexOf,
    Load,
    Predicate,
    ScalarCall,
    Select,
    Store,
    Var,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BOOL, I32
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.group_schedule import ListedScatter
from modelcc.targets.gpu.evaluation import Evaluation, only_where
from modelcc.targets.gpu.rows.team import combine_two, exchanged

NOBODY, ZERO, ONE = (Const(n, I32) for n in (-1, 0, 1))


class GroupList:
    """The part of one thread of a schedule, in loops of these names over warps, if there are any,
    and over their threads.  The owner of a number is one of ``owners``."""

    def __init__(self, names: FreshNames, s: ListedScatter, w: str, t: str) -> None:
        fresh = self._fresh = names.fresh
        self._threads, self._warp, self._each = s.threads, s.warp, s.each
        self._lane, self._owners = Sym(t), s.threads // s.columns
        self._team: Index = Sym(w) if s.warp > 1 else Sym(t)
        self._number: Index = Sym(w) * s.warp + Sym(t) if s.warp > 1 else Sym(t)
        self._pitch = s.each + (s.each % 2 == 0)
        """Elements that a thread counts: odd, to avoid bank conflicts."""
        self._whose, self._listed, self._counts = (
            Buffer(fresh(stem), I32, size, "shared")
            for stem, size in (
                ("whose", s.threads * self._pitch),
                ("listed", s.threads * s.each),
                ("counts", s.threads // s.warp),
            )
        )

    @property
    def memory(self) -> tuple[Buffer, Buffer, Buffer]:
        """Shared memory of the group."""
        return self._whose, self._listed, self._counts

    def keep(self, number: Index, owner: Expr) -> Store:
        """Stores the owner of a number less than the threads times ``each``."""
        padded = self._pitch != self._each
        offset = number + floordiv(number, self._each) if padded else number
        return Store(self._whose.name, offset, owner)

    def entry(self, place: Index) -> Load:
        """An entry of the list: a number times the owners, plus its owner."""
        return Load(self._listed.name, place, I32)

    def made(self, at: Evaluation) -> Index:
        """Makes the list, once all threads have stored owners; its length."""
        first, each = self._number * self._pitch, range(self._each)
        at.statements.append(Barrier())
        whose = [at.named("o", Load(self._whose.name, first + n, I32)) for n in each]
        present = [ScalarCall("ge", (owner, ZERO), BOOL) for owner in whose]
        own = reduce(_sum, (Select(there, ONE, ZERO) for there in present))
        place, count = self._counted(at, at.named("own", own))
        for number, (owner, there) in enumerate(zip(whose, present, strict=True)):
            put = at.nested()
            entry = IndexOf((self._number * self._each + number) * self._owners, I32)
            offset = put.bind_value("place", place)
            put.statements += [
                Store(self._listed.name, offset, _sum(entry, owner)),
                Assign(place.name, _sum(place, ONE)),
            ]
            at.statements.append(If(there, tuple(put.statements)))
        at.statements.append(Barrier())
        return at.bind_value("count", count)

    def _counted(self, at: Evaluation, own: Expr) -> tuple[Var, Var]:
        """Registers of how many updates earlier threads have, and all threads."""
        place, total = at.register("place", ZERO), at.register("total", own)
        self._counted_in_warp(at, place, total)
        counts, teams = self._counts.name, self._threads // self._warp
        first = (Condition(self._lane, "==", 0),) if self._warp > 1 else ()
        at.statements += [*only_where(first, [Store(counts, self._team, total)]), Barrier()]
        if 1 < teams <= self._warp:
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
        """Adds the counts of warps, of which each thread of a warp loads one."""
        teams, lane = self._threads // self._warp, self._lane
        known: Expr = Load(self._counts.name, minimum(lane, teams - 1), I32)
        if teams < self._warp:
            known = Select(Predicate((Condition(lane, "<", teams),)), known, ZERO)
        known = at.named("other", known)
        before = Select(Predicate((Condition(lane, "<", self._team),)), known, ZERO)
        earlier = exchanged(at, "sum", before, self._warp)
        at.statements += [
            Assign(place.name, _sum(place, earlier)),
            Assign(total.name, exchanged(at, "sum", known, self._warp)),
        ]

    def _counted_in_warp(self, at: Evaluation, place: Var, total: Var) -> None:
        """Adds the counts of this warp's threads, to ``place`` only those of earlier ones."""
        if self._warp == 1:
            return
        other, bit = at.register("other", total), 1
        while bit < self._warp:
            before = Predicate((Condition(mod(self._lane, 2 * bit), ">=", bit),))
            at.statements += [
                Assign(other.name, total),
                Exchange(other.name, bit),
                Assign(place.name, _sum(place, Select(before, other, ZERO))),
                Assign(total.name, _sum(total, other)),
            ]
            bit *= 2


def _sum(one: Expr, other: Expr) -> Expr:
    return combine_two("sum", (one, other))
