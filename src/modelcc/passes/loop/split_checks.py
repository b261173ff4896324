"""Splits a function into one that checks indices and one without checks.

Before::

    func @update(%places: i64[8], %rows: f32[8], %table: mut f32[n]; n) {
      for i in 0 .. 8 {
        let %g = load %places[i]
        check %g below [n]
        store %table[%g] = load %rows[i]
      }
    }

After, the checks::

    func @update.checks(%places: i64[8]; n) {
      for i in 0 .. 8 {
        let %g = load %places[i]
        check %g below [n]
      }
    }

and ``@update.checked``, without the check.  On a device, where both are launched without waiting
for the result, it skips the statements that the check guards::

        let %g = load %places[i]
        if predicate(g >= 0, g < n) {
          store %table[%g] = load %rows[i]
        }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Alloc,
    Arrive,
    Assign,
    Barrier,
    BindIndex,
    Check,
    Comment,
    For,
    Function,
    If,
    IndexOf,
    Let,
    Load,
    ParallelCall,
    Predicate,
    Register,
    Stmt,
    Store,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.loop_traversal import (
    FAULTS,
    blocks,
    grid_loop,
    map_blocks,
    mentions,
    names_used,
    statements,
)


def checks_alone(function: Function) -> Function | None:
    """The function that only evaluates the checks of ``function``, with the buffers that it reads;
    None if they depend on memory that the function writes."""
    if any(isinstance(s, Barrier | Arrive | ParallelCall) for s in statements(function.body)):
        return None
    if _is_on_a_device(function) and any(isinstance(s, While) for s in statements(function.body)):
        return None  # the dropped part may fail a check
    needed = _needed(function.body)
    written = {p.buffer.name for p in function.parameters if p.mutable}
    body = _kept(function.body, lambda s: isinstance(s, Check) or _defines(s) in needed)
    stores = (s.buffer for s in statements(body) if isinstance(s, Store | VectorScatter))
    reads = mentions(body, lambda e: isinstance(e, Load | VectorGather) and e.buffer in written)
    if reads or not written.isdisjoint(stores):
        return None
    parameters = tuple(p for p in function.parameters if p.buffer.name in needed)
    name = f"{function.name}.checks"
    return replace(function, name=name, parameters=parameters, body=body)


def without_checks(function: Function) -> Function:
    """``function`` with its checks known to hold."""
    if _is_on_a_device(function):
        body = _guarded(function.body)
    else:
        body = _kept(function.body, lambda s: not isinstance(s, Check))
    return replace(function, name=f"{function.name}.checked", body=body)


def _is_on_a_device(function: Function) -> bool:
    return grid_loop(function) is not None


def _guarded(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """``body`` with statements after a check only executed if it holds."""
    found: list[Stmt] = []
    for n, s in enumerate(body):
        if not isinstance(s, Check):
            found.append(map_blocks(s, _guarded))
            continue
        index = s.value.index if isinstance(s.value, IndexOf) else Sym(f"checked{s.number}")
        if not isinstance(s.value, IndexOf):
            found.append(BindIndex(f"checked{s.number}", s.value))
        inside = Predicate((Condition(index, ">=", 0), Condition(index, "<", s.extent)))
        rest = _guarded(body[n + 1 :])
        return (*found, If(inside, rest)) if rest else tuple(found)
    return tuple(found)


def _needed(body: Sequence[Stmt]) -> frozenset[str]:
    """Names that checks depend on."""
    uses = list(_uses(body, ()))
    needed = frozenset(n for s, names in uses if isinstance(s, Check) for n in names)
    while True:
        more = frozenset(n for s, names in uses if _defines(s) in needed for n in names)
        if more <= needed:
            return needed - {FAULTS}
        needed |= more


def _uses(body: Sequence[Stmt], outside: tuple[str, ...]) -> Iterator[tuple[Stmt, tuple[str, ...]]]:
    """Statements with the names that they and the statements around them use."""
    for s in body:
        own = (*outside, *names_used((map_blocks(s, lambda _: ()),)))
        yield s, own
        for block in blocks(s):
            yield from _uses(block, own)


def _defines(s: Stmt) -> str | None:
    """The name that a statement defines."""
    match s:
        case Let(name) | Register(name) | Assign(name):
            return name
        case BindIndex(symbol):
            return symbol
        case Store(buffer) | VectorScatter(buffer):
            return buffer
        case Alloc(buffer):
            return buffer.name
        case _:
            return None


def _kept(body: Sequence[Stmt], keep: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    """Statements to keep, and those around them."""
    found: list[Stmt] = []
    for s in body:
        if isinstance(s, For | If | While):
            inner = map_blocks(s, lambda block: _kept(block, keep))
            found += [inner] if any(blocks(inner)) else []
        elif keep(s) and not isinstance(s, Comment):
            found.append(s)
    return tuple(found)
