"""Threads of a group that have a row, or a result, together, and how they combine what each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from modelcc.ir.copies import Exchange
from modelcc.ir.index import Index, Sym, floordiv, mod
from modelcc.ir.loop import (
    Assign,
    Barrier,
    Buffer,
    Expr,
    If,
    Load,
    Predicate,
    ScalarCall,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.scalar import Combine
from modelcc.ir.tensor import Condition
from modelcc.ir.types import DType
from modelcc.schedule.expression import combine_function
from modelcc.schedule.group_schedule import GroupReduction, GroupRows
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.evaluation import Evaluation


@dataclass(frozen=True)
class Team:
    """Those of a group's threads, by ``loops``, that have a row, or a result, together: number
    ``row`` of ``rows``.

    A thread is number ``thread`` of its team; of warps, number ``lane`` of its own, which is number
    ``own``, as the thread is without warps.  Values of ``columns`` results that it hands on in
    shared memory lie ``steps`` apart for the next row, and the next of these numbers.
    """

    loops: tuple[tuple[str, int], ...]
    row: Index
    rows: int
    threads: int
    warp: int
    columns: int
    own: Index
    lane: Index
    thread: Index
    steps: tuple[int, int]

    @staticmethod
    def of(s: GroupReduction | GroupRows, rows: int, r: str, w: str, t: str) -> Team:
        """Loops over ``rows`` rows, over warps and over their threads, of these names."""
        across = isinstance(s, GroupReduction) and s.across
        columns = s.columns if isinstance(s, GroupReduction) else 1
        if s.warp == 1:
            loops = ((r, rows), (t, s.threads))
            loops = loops[::-1] if across else loops
            steps = (1, rows) if across else (s.threads, 1)
            row, own = Sym(r), Sym(t)
            return Team(loops, row, rows, s.threads, 1, columns, own, 0, own, steps)
        warps = s.threads // s.warp
        several = ((w, warps),) if warps > 1 else ()
        own: Index = Sym(w) if warps > 1 else 0
        thread = own * s.warp + Sym(t)
        loops = ((r, rows), *several, (t, s.warp))
        lane = Sym(t)
        return Team(loops, Sym(r), rows, s.threads, s.warp, columns, own, lane, thread, (warps, 1))

    def regrouped(self, s: GroupRows) -> Team:
        """The same threads in teams of rows; :class:`ScheduleError` if they are others, or have
        other warps."""
        total = prod(extent for _, extent in self.loops)
        inner, width = self.loops[-1]
        if total != s.threads * s.rows or s.warp not in (1, width):
            raise ScheduleError("rows have other threads, or warps, than the product of them")
        number: Index = 0
        for name, extent in self.loops:
            number = number * extent + Sym(name)
        if s.warp == 1:
            row, own = _divided(number, s.threads, s.rows)
            steps = (s.threads, 1)
            return Team(self.loops, row, s.rows, s.threads, 1, 1, own, 0, own, steps)
        of_warps: Index = 0
        for name, extent in self.loops[:-1]:
            of_warps = of_warps * extent + Sym(name)
        warps = s.threads // s.warp
        row, own = _divided(of_warps, warps, s.rows)
        lane = Sym(inner)
        thread = own * s.warp + lane
        steps = (warps, 1)
        return Team(self.loops, row, s.rows, s.threads, s.warp, 1, own, lane, thread, steps)

    def part(self, name: str, dtype: DType) -> Buffer | None:
        """Shared memory that is needed to combine values of ``dtype``."""
        parts = self.threads if self.warp == 1 else self.threads // self.warp
        size = parts * self.rows * self.columns
        return Buffer(name, dtype, size, "shared") if parts > 1 else None

    def combined(
        self, at: Evaluation, combine: Combine, own: Expr, part: Buffer | None, everywhere: bool
    ) -> Expr:
        """What the threads of a row have, combined, in the first of them or ``everywhere``."""
        if self.warp > 1:
            return self._exchanged(at, combine, own, part)
        if part is None:
            return own
        at.statements += self._halved(combine, own, part)
        if everywhere:
            at.statements.append(Barrier())
        return self._load(part, 0)

    def _place(self, of: Index) -> Index:
        return (self.row * self.steps[0] + of * self.steps[1]) * self.columns

    def _load(self, part: Buffer, of: Index) -> Load:
        return Load(part.name, self._place(of), part.dtype, self.columns)

    def _exchanged(self, at: Evaluation, combine: Combine, own: Expr, part: Buffer | None) -> Expr:
        """In all threads: each warp's by registers, and then of all warps."""
        total = exchanged(at, combine, own, self.warp)
        if part is None:
            return total
        first = Predicate((Condition(self.lane, "==", 0),))
        store = Store(part.name, self._place(self.own), total)
        at.statements += [If(first, (store,)), Barrier()]
        whole: Expr = self._load(part, 0)
        for number in range(1, self.threads // self.warp):
            whole = combine_two(combine, (whole, self._load(part, number)))
        return at.named("all", whole)

    def _halved(self, combine: Combine, own: Expr, part: Buffer) -> list[Stmt]:
        """The upper half is combined with the lower one, until one element is left, which the
        first thread has written."""
        place = self._place(self.own)
        found: list[Stmt] = [Store(part.name, place, own)]
        count = self.threads
        while count > 1:
            count //= 2
            ends = self._load(part, self.own), self._load(part, self.own + count)
            both = Store(part.name, place, combine_two(combine, ends))
            condition = Predicate((Condition(self.own, "<", count),))
            found += [Barrier(), If(condition, (both,))]
        return found


def _divided(number: Index, size: int, teams: int) -> tuple[Index, Index]:
    """Of which of the ``teams`` of so many something is that has this ``number``, and which one of
    them it is."""
    return (0, number) if teams == 1 else (floordiv(number, size), mod(number, size))


def exchanged(at: Evaluation, combine: Combine, own: Expr, warp: int, apart: int = 1) -> Var:
    """What ``warp`` threads, each so far ``apart``, have in registers, combined in all of them."""
    return exchanged_by(at, combine, own, neighbours(warp, apart))


def neighbours(count: int, apart: int = 1) -> tuple[int, ...]:
    """By which bits the numbers of ``count`` threads, a power of two, differ that are so far
    ``apart``: the farthest first."""
    return tuple(apart << bit for bit in reversed(range(count.bit_length() - 1)))


def exchanged_by(at: Evaluation, combine: Combine, own: Expr, bits: Sequence[int]) -> Var:
    """What threads of a warp have in registers whose numbers differ by ``bits``, combined in all
    of them, in this order."""
    own = at.named("own", own)
    total, other = at.register("all", own), at.register("other", own)
    for number, bit in enumerate(bits):
        both = combine_two(combine, (total, other))
        if number:
            at.statements.append(Assign(other.name, total))
        at.statements += [Exchange(other.name, bit), Assign(total.name, both)]
    return total


def combine_two(combine: Combine, ends: Sequence[Expr]) -> Expr:
    """Both of ``ends`` as one."""
    dtype = ends[0].dtype
    return ScalarCall(combine_function(combine, dtype), tuple(ends), dtype, ends[0].lanes)
