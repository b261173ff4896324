"""A parallel loop, with a thread of an accelerator for each iteration.

    parallel i in 0 .. n { … }

becomes, with 64 threads to a group::

    grid i.group in 0 .. ceildiv(n, 64) {
      thread i.thread in 0 .. 64 {
        if predicate(64*i.group + i.thread < n) {
          index i = index[i64](64*i.group + i.thread)
          …
        }
      }
    }
"""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Sym, ceildiv
from modelcc.ir.loop import BindIndex, For, Function, If, IndexOf, ParallelCall, Predicate
from modelcc.ir.loop_traversal import statements
from modelcc.ir.types import I64


def thread_each(function: Function, threads: int) -> Function | None:
    """``function`` as groups of ``threads`` threads; None if it is not one parallel loop from 0
    around serial loops."""
    match function.body:
        case (For(variable, 0, stop, body, kind="parallel"),):
            pass
        case _:
            return None
    if any(isinstance(s, ParallelCall) or _is_parallel(s) for s in statements(body)):
        return None
    group, thread = f"{variable}.group", f"{variable}.thread"
    position = Sym(group) * threads + Sym(thread)
    own = (BindIndex(variable, IndexOf(position, I64)), *body)
    there = If(Predicate((Condition(position, "<", stop),)), own)
    inner = For(thread, 0, threads, (there,), kind="thread")
    return replace(function, body=(For(group, 0, ceildiv(stop, threads), (inner,), kind="grid"),))


def _is_parallel(s: object) -> bool:
    return isinstance(s, For) and s.kind != "serial"
