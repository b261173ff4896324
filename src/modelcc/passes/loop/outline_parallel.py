"""Outlines a parallel loop to a function that runs a range of its iterations.

    func @scale(%x: f32[n], %y: mut f32[n]; n) {
      let %s = load %x[0]
      parallel i in 0 .. n step 16 when n >= 4096 {
        store %y[i] mask(n - i) = mul(splat[16](%s), load %x[i] x16 mask(n - i))
      }
    }

becomes::

    func @scale(%x: f32[n], %y: mut f32[n]; n) {
      let %s = load %x[0]
      call parallel 0 .. (n + 15) floordiv 16 when n >= 4096 func @scale.range(
        %y: mut f32[n], %x: f32[n], value %s: f32; n, ".begin", ".end") {
        for i in 0 .. n step 16 part ".begin" .. ".end" {
          store %y[i] mask(n - i) = mul(splat[16](%s), load %x[i] x16 mask(n - i))
        }
      }
    }

The function's parameters are the loop's free variables: buffers, values and sizes.  Index symbols
bound before it are passed as values, since they are unbounded, and sizes are not negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.index import Sym, symbols
from modelcc.ir.loop import (
    Alloc,
    BindIndex,
    For,
    Function,
    IndexOf,
    Let,
    ParallelCall,
    Parameter,
    Register,
    Stmt,
    Var,
)
from modelcc.ir.loop_traversal import names_used, parallel_loop, statements
from modelcc.ir.types import I64

SUFFIX = ".range"
BEGIN, END = ".begin", ".end"


def outline_parallel(function: Function) -> Function:
    """``function`` with a call in place of its parallel loop.

    ``ValueError`` if there is another one, or it reads a register from the outside.
    """
    loop = parallel_loop(function)
    others = [s for s in statements(function.body) if isinstance(s, For) and s.kind == "parallel"]
    if len(others) > (loop is not None):
        raise ValueError(f"{function.name} has parallel loops besides its outermost one")
    if loop is None:
        return function
    place = function.body.index(loop)
    before, after = function.body[:place], function.body[place + 1 :]
    return replace(function, body=(*before, *_call(function, before, loop), *after))


def _call(function: Function, before: Sequence[Stmt], loop: For) -> tuple[Stmt, ...]:
    """The call, after the values of index symbols."""
    serial = replace(loop, kind="serial", when=None, part=(Sym(BEGIN), Sym(END)))
    used = names_used((serial,))
    buffers = {p.buffer.name: p for p in (*function.parameters, *_locals(before))}
    parameters = [buffers[name] for name in used if name in buffers]
    mentioned = {*used}.union(*(symbols(p.buffer.size) for p in parameters))
    shared = [s.name for s in before if isinstance(s, Register) and s.name in used]
    if shared:
        raise ValueError(f"register '{shared[0]}' cannot be used inside a parallel loop")
    given = [s for s in before if isinstance(s, Let) and s.name in used]
    bound = [s.symbol for s in before if isinstance(s, BindIndex) and s.symbol in used]
    passed = [Let(f".{name}", IndexOf(Sym(name), I64)) for name in bound]
    outlined = Function(
        f"{function.name}{SUFFIX}",
        tuple(parameters),
        (*(size for size in function.sizes if size in mentioned), BEGIN, END),
        (*(BindIndex(name, Var(f".{name}", I64)) for name in bound), serial),
        values=tuple(Var(s.name, s.value.dtype, s.value.lanes) for s in (*given, *passed)),
    )
    count = -((loop.start - loop.stop) // loop.step)
    return (*passed, ParallelCall(outlined, count, loop.when))


def _locals(before: Sequence[Stmt]) -> list[Parameter]:
    buffers = [replace(s.buffer, space="global") for s in before if isinstance(s, Alloc)]
    return [Parameter(buffer, mutable=True) for buffer in buffers]
