"""A group for each result, whose threads share the reduction and combine what each has."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import Index, Sym, product
from modelcc.ir.loop import (
    Alloc,
    Barrier,
    Buffer,
    Expr,
    For,
    Function,
    Load,
    ScalarCall,
    Stmt,
    Store,
)
from modelcc.ir.scalar import Combine, identity
from modelcc.ir.tensor import Condition
from modelcc.ir.types import DType
from modelcc.schedule.expression import accumulate, combine_function
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.lower import Evaluation, StageLowering, guarded, store_at


@dataclass(frozen=True)
class ReducingGroups:
    """A group for each result; its ``threads``, a power of two, take every so-manieth term."""

    threads: int = 64

    def lower(self, lowering: StageLowering) -> Function:
        """The function of a stage; :class:`ScheduleError` if it reduces nothing."""
        nest, names = lowering.nest, lowering.names
        if nest.combine is None or not nest.reduce or self.threads & (self.threads - 1):
            raise ScheduleError("groups of a power of two of threads share reductions")
        dtype = nest.body.dtype
        group, thread, term = names.fresh("g"), names.fresh("t"), names.fresh("k")
        part = Buffer(names.fresh("part"), dtype, self.threads, "shared")
        outer = Evaluation(names)
        point = outer.place(nest.parallel, Sym(group))
        own = outer.register("own", identity(nest.combine, dtype), dtype)
        inner = outer.nested()
        point |= inner.place(nest.reduce, Sym(term))
        value = inner.value(nest.body, point)
        inner.statements.append(accumulate(nest.combine, own.name, value, 1))
        terms = product(v.extent for v in nest.reduce)
        result = store_at(nest, point, Load(part.name, 0, dtype))
        outer.statements += [
            For(term, Sym(thread), terms, tuple(inner.statements), self.threads),
            Store(part.name, Sym(thread), own),
            *_halving(part, Sym(thread), self.threads, nest.combine),
            *guarded((Condition(Sym(thread), "==", 0),), [result]),
        ]
        threads = For(thread, 0, self.threads, tuple(outer.statements), kind="thread")
        groups = product(v.extent for v in nest.parallel)
        return lowering.function([For(group, 0, groups, (Alloc(part), threads), kind="grid")])


def _halving(part: Buffer, thread: Index, count: int, combine: Combine) -> list[Stmt]:
    """The upper half is combined with the lower one, until one element is left, which the
    first thread has written."""
    found: list[Stmt] = []
    while count > 1:
        count //= 2
        ends = Load(part.name, thread, part.dtype), Load(part.name, thread + count, part.dtype)
        both = Store(part.name, thread, _combined(combine, part.dtype, ends))
        found += [Barrier(), *guarded((Condition(thread, "<", count),), [both])]
    return found


def _combined(combine: Combine, dtype: DType, ends: tuple[Expr, Expr]) -> Expr:
    return ScalarCall(combine_function(combine, dtype), ends, dtype)
