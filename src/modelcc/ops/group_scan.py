"""Running totals by groups of threads: of short or neighbouring lines a thread has one each, a long
line all threads of a group share.

A group takes as many elements as it has threads at a time.  A thread's total grows by that of the
one that is 1, 2, 4 … places before it (Hillis and Steele, "Data parallel algorithms", 1986), and by
that of all elements before these.  So the order of additions does not depend on who comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from modelcc.ir.algorithm import AlgorithmBuilder, convert, predicate
from modelcc.ir.capacity import GroupCapacity
from modelcc.ir.compute import Operand
from modelcc.ir.index import Index, Sym, ceildiv
from modelcc.ir.loop import Buffer, Const, Expr, Var

SHORT = 32
"""Elements of a line up to which one thread is enough for it, and lines that lie side by side from
which on there is one for each."""


More: TypeAlias = Callable[[Expr, Expr], Expr]
"""The total of two."""


@dataclass(frozen=True)
class RunningTotals:
    """Totals of ``more``, from ``start`` on, along lines of x: ``lines`` of ``extent`` elements,
    which lie ``step`` apart."""

    x: Operand | Buffer
    y: Operand | Buffer
    lines: Index
    extent: Index
    step: Index
    reverse: bool
    exclusive: bool
    start: Const
    more: More

    def place(self, line: Index, k: Index) -> Index:
        """Where element ``k`` of a line is."""
        own = self.extent - 1 - k if self.reverse else k
        return line // self.step * (self.extent * self.step) + line % self.step + own * self.step

    def value(self, at: AlgorithmBuilder, line: Index, k: Index) -> Expr:
        """Element ``k``, in the type of totals."""
        return at.let(convert(at.load(self.x, self.place(line, k)), self.start.dtype))

    def store(self, at: AlgorithmBuilder, line: Index, k: Index, total: Expr) -> None:
        """The result for element ``k``."""
        at.store(self.y, self.place(line, k), convert(total, self.y.dtype))


def running_totals(at: AlgorithmBuilder, totals: RunningTotals, groups: GroupCapacity) -> None:
    """The totals of all lines."""
    short = isinstance(totals.extent, int) and totals.extent <= SHORT
    beside = isinstance(totals.step, int) and totals.step >= SHORT
    if short or beside:
        _line_each(at, totals, groups.threads)
    else:
        _shared_lines(at, totals, groups.threads)


def _line_each(at: AlgorithmBuilder, totals: RunningTotals, threads: int) -> None:
    with at.groups(ceildiv(totals.lines, threads), (threads,)) as (group, (thread,), _):
        line = group * threads + thread
        with at.when(predicate(line, "<", totals.lines)):
            total = at.register(totals.start)
            with at.loop(0, totals.extent) as k:
                more = at.let(totals.more(total, totals.value(at, line, k)))
                totals.store(at, line, k, total if totals.exclusive else more)
                at.assign(total, more)


def _shared_lines(at: AlgorithmBuilder, totals: RunningTotals, threads: int) -> None:
    room = (totals.start.dtype, 2 * threads)
    with at.groups(totals.lines, (threads,), room) as (line, (thread,), (part,)):
        before = at.register(totals.start)
        with at.loop(0, ceildiv(totals.extent, threads)) as block:
            k = block * threads + thread
            own = at.register(totals.start)
            with at.when(predicate(k, "<", totals.extent)):
                at.assign(own, totals.value(at, line, k))
            last = up_to_each(at, totals.more, part, own, thread, threads)
            found = at.register(before)
            if totals.exclusive:
                with at.when(predicate(thread, ">", 0)):
                    at.assign(found, totals.more(before, at.load(part, last + thread - 1)))
            else:
                at.assign(found, totals.more(before, own))
            with at.when(predicate(k, "<", totals.extent)):
                totals.store(at, line, k, found)
            at.assign(before, totals.more(before, at.load(part, last + threads - 1)))
            at.barrier()


def up_to_each(
    at: AlgorithmBuilder, more: More, part: Buffer, own: Var, thread: Sym, threads: int
) -> int:
    """``own`` becomes the total of all threads up to this one; where in ``part`` those of all
    are.  Its halves take turns, so that nobody writes what is read."""
    half, distance = 0, 1
    at.store(part, thread, own)
    at.barrier()
    while distance < threads:
        with at.when(predicate(thread, ">=", distance)):
            earlier = at.load(part, half + thread - distance)
            at.assign(own, more(earlier, own))
        half, distance = threads - half, 2 * distance
        at.store(part, half + thread, own)
        at.barrier()
    return half
