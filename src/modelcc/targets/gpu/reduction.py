"""Reductions whose terms are shared among threads, which combine what each has.

grid g; thread r (results), t (terms)
  own = the terms t, t + threads, …
  part[r, t] = own
  barrier, and the upper half is combined with the lower one, until one element is left
  the thread t = 0 does what follows
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import Index, Sym, ceildiv, minimum
from modelcc.ir.loop import (
    Alloc,
    Barrier,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Load,
    Predicate,
    ScalarCall,
    Stmt,
    Store,
)
from modelcc.ir.scalar import Combine
from modelcc.ir.tensor import Condition
from modelcc.ir.types import DType
from modelcc.schedule.expression import accumulate, combine_function
from modelcc.schedule.group_schedule import GroupReduction
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching, extent_of


def lower_reduction(kernel: GroupKernel, schedule: GroupReduction) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it does not begin with a reduction."""
    group, threads, results = kernel.group, schedule.threads, schedule.results
    nest = group.anchor
    if nest is None or nest.combine is None or kernel.checks:
        raise ScheduleError("threads share reductions that find no index out of its bound")
    if not is_power_of_two(threads) or results < 1:
        raise ScheduleError("groups of a power of two of threads share reductions")
    fresh = kernel.names.fresh
    g, r, t, term = fresh("g"), fresh("r"), fresh("t"), fresh("k")
    loops = ((t, threads), (r, results)) if schedule.across else ((r, results), (t, threads))
    total = extent_of(nest.parallel)
    launch = Launching(((g, ceildiv(total, results)),), loops, kernel.dims)
    position = Sym(g) * results + Sym(r)
    inside = launch.unknown((Condition(position, "<", total),))
    outer = Evaluation(kernel.names)
    point = outer.place(nest.parallel, minimum(position, total - 1) if inside else position)
    own = outer.register("own", outer.neutral(nest))
    inner = outer.nested()
    value = inner.value(nest.body, point | inner.place(nest.reduce, Sym(term)))
    inner.statements.append(accumulate(nest.combine, own.name, value, 1))
    part = SharedParts(fresh("part"), own.dtype, threads, results, schedule.across)
    outer.statements += [
        For(term, Sym(t), extent_of(nest.reduce), tuple(inner.statements), threads),
        *part.combined(nest.combine, own, Sym(r), Sym(t)),
    ]
    last = outer.nested()
    last.finish(group, point, part.at(Sym(r), 0))
    mine = (Condition(Sym(t), "==", 0), Condition(position, "<", total))
    body = [*outer.statements, *launch.guarded(mine, last.statements)]
    return kernel.function(launch.around([Alloc(part.buffer)], body))


def is_power_of_two(count: int) -> bool:
    """Whether ``count`` can be halved down to 1."""
    return count > 0 and count & (count - 1) == 0


class SharedParts:
    """What each of ``threads`` has of each of ``results``, in shared memory."""

    def __init__(self, name: str, dtype: DType, threads: int, results: int, across: bool) -> None:
        self.buffer = Buffer(name, dtype, threads * results, "shared")
        self._threads = threads
        self._steps = (1, results) if across else (threads, 1)

    def at(self, result: Index, thread: Index) -> Load:
        """What a thread has of a result; thread 0 has all of it once they are combined."""
        return Load(self.buffer.name, self._place(result, thread), self.buffer.dtype)

    def _place(self, result: Index, thread: Index) -> Index:
        return result * self._steps[0] + thread * self._steps[1]

    def combined(self, combine: Combine, own: Expr, result: Index, thread: Index) -> list[Stmt]:
        """The upper half is combined with the lower one, until one element is left, which the
        first thread has written."""
        found: list[Stmt] = [Store(self.buffer.name, self._place(result, thread), own)]
        count = self._threads
        while count > 1:
            count //= 2
            ends = self.at(result, thread), self.at(result, thread + count)
            both = Store(self.buffer.name, self._place(result, thread), combine_two(combine, ends))
            condition = Predicate((Condition(thread, "<", count),))
            found += [Barrier(), If(condition, (both,))]
        return found


def combine_two(combine: Combine, ends: Sequence[Expr]) -> Expr:
    """Both of ``ends`` as one."""
    dtype = ends[0].dtype
    return ScalarCall(combine_function(combine, dtype), tuple(ends), dtype)
