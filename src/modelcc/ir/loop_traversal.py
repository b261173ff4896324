"""Walking and rebuilding loop-level expressions and statements without naming every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from modelcc.ir.argument import Argument
from modelcc.ir.condition import Condition
from modelcc.ir.copies import CopyAsync, Exchange, Prefetch
from modelcc.ir.fields import NodeParts
from modelcc.ir.index import Index, ceildiv, maximum, product, symbols
from modelcc.ir.loop import (
    Alloc,
    Arrive,
    Assign,
    Check,
    Expr,
    For,
    Function,
    Load,
    ParallelCall,
    RoutineCall,
    Stmt,
    Store,
    Var,
    VectorGather,
    VectorScatter,
)
from modelcc.ir.tiles import CopyTile, ExpectBytes, TileMap, WaitArrival
from modelcc.ir.types import DType

FAULTS = ".faults"
"""The memory of a function's checks, as :func:`names_used` calls it: two i64 for each number, of
which the first is set and the second is the index where one fails."""


_EXPRESSIONS = NodeParts[Expr]("Expr")
_INDICES = NodeParts[Index]("Index", Condition, Argument)
_BLOCKS = NodeParts[tuple[Stmt, ...]]("tuple[Stmt, ...]", Function)

operands = _EXPRESSIONS.of
"""The expressions directly inside an expression, in order."""

with_operands = _EXPRESSIONS.replaced
"""An expression with its direct operands replaced, in the order of :func:`operands`."""

indices = _INDICES.of
"""The index expressions directly inside an expression."""

statement_expressions = _EXPRESSIONS.of
"""The expressions directly inside a statement, not those of its blocks."""

with_statement_expressions = _EXPRESSIONS.replaced
"""A statement with its direct expressions replaced, in the order of their listing."""

statement_indices = _INDICES.of
"""The index expressions directly inside a statement, not those of its expressions."""

blocks = _BLOCKS.of
"""The statement lists directly inside a statement."""

map_blocks = _BLOCKS.changed
"""A statement with each directly contained list rewritten."""


def walk(e: Expr) -> Iterator[Expr]:
    """``e`` and everything inside it, outermost first."""
    waiting, listings = [e], _EXPRESSIONS.listings
    while waiting:
        e = waiting.pop()
        yield e
        waiting += listings[type(e)](e)[::-1]


def statements(body: Sequence[Stmt]) -> list[Stmt]:
    """All statements of a list and of the blocks inside, in program order."""
    result, waiting, listings = list[Stmt](), [*reversed(body)], _BLOCKS.listings
    while waiting:
        s = waiting.pop()
        result.append(s)
        for block in reversed(listings[type(s)](s)):
            waiting += reversed(block)
    return result


def mentions(body: Sequence[Stmt], holds: Callable[[Expr], bool]) -> bool:
    """Whether something ``holds`` of any expression in a list."""
    listings = _EXPRESSIONS.listings
    waiting = [e for s in statements(body) for e in listings[type(s)](s)]
    while waiting:
        e = waiting.pop()
        if holds(e):
            return True
        waiting += listings[type(e)](e)
    return False


def names_used(body: Sequence[Stmt]) -> dict[str, None]:
    """Names of symbols, values, registers and buffers mentioned in a list, in program order."""
    found: dict[str, None] = {}
    for s in statements(body):
        for index in statement_indices(s):
            found.update(dict.fromkeys(sorted(symbols(index))))
        match s:
            case Store() | VectorScatter() | Prefetch():
                found[s.buffer] = None
            case Assign() | Exchange():
                found[s.name] = None
            case CopyAsync():
                found |= {s.to: None, s.source: None}
            case CopyTile():
                found |= {s.to: None, s.source: None, s.arrivals: None}
            case ExpectBytes() | WaitArrival():
                found[s.arrivals] = None
            case Arrive():
                found[s.counters] = None
            case Check():
                found[FAULTS] = None
            case RoutineCall():
                found.update(dict.fromkeys(a.buffer for a in s.arguments))
            case _:
                pass
        for outer in statement_expressions(s):
            for e in walk(outer):
                found.update(dict.fromkeys(_names_in(e)))
    return found


def _names_in(e: Expr) -> tuple[str, ...]:
    mentioned = tuple(name for index in indices(e) for name in sorted(symbols(index)))
    match e:
        case Var():
            return (e.name, *mentioned)
        case Load() | VectorGather():
            return (e.buffer, *mentioned)
        case _:
            return mentioned


def parallel_loop(function: Function) -> For | None:
    """The function's parallel loop."""
    return next((s for s in function.body if isinstance(s, For) and is_parallel(s)), None)


def loop_nest(outermost: For) -> tuple[tuple[For, ...], tuple[Stmt, ...]]:
    """Loops of one kind, each all that the one before holds, and the body of the last."""
    loops = [outermost]
    while len(loops[-1].body) == 1:
        (inner,) = loops[-1].body
        if not isinstance(inner, For) or inner.kind != outermost.kind:
            break
        loops.append(inner)
    return tuple(loops), loops[-1].body


def grid_loop(function: Function) -> For | None:
    """The outermost grid loop of a function for accelerators."""
    found = (s for s in function.body if isinstance(s, For) and s.kind == "grid")
    return next(found, None)


def launch_extents(function: Function) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """The numbers of groups and of threads in a group, the innermost dimension first."""
    loops = [s for s in statements(function.body) if isinstance(s, For)]
    grid, thread = ([s.stop for s in loops if s.kind == kind] for kind in ("grid", "thread"))
    return tuple(reversed(grid)), tuple(reversed(thread))


def launched_groups(groups: tuple[Index, ...], across: int) -> tuple[Index, ...]:
    """The grid to launch for ``groups``, innermost dimension first: if any but the first may exceed
    ``across`` (0: no limit), all others together become equal rows of at most ``across`` groups, as
    few as suffice; groups beyond the last one end at once."""
    if not across or all(isinstance(n, int) and n <= across for n in groups[1:]):
        return groups
    others = product(groups[1:])
    rows = maximum(ceildiv(others, across), 1)
    return groups[0], ceildiv(others, rows), rows


def has_elements(function: Function, dtype: DType) -> bool:
    """Whether it has buffers of ``dtype`` or computes with such."""
    buffers = [p.buffer for p in function.parameters]
    buffers += [s.buffer for s in statements(function.body) if isinstance(s, Alloc)]
    alike = any(buffer.dtype == dtype for buffer in buffers)
    return alike or mentions(function.body, lambda e: e.dtype == dtype)


def takes_pool(function: Function) -> bool:
    """Whether it takes a thread pool as its last argument."""
    return any(isinstance(s, ParallelCall) or is_parallel(s) for s in function.body)


def checks_in(function: Function) -> int:
    """How many numbers its checks have: it takes a place for their faults if there are any."""
    found = (s.number + 1 for s in statements(function.body) if isinstance(s, Check))
    return max(found, default=0)


def is_parallel(s: Stmt) -> bool:
    """Whether its iterations may run at once."""
    return isinstance(s, For) and s.kind == "parallel"


def routines_in(body: Sequence[Stmt]) -> tuple[Function, ...]:
    """What statements call, by first use, each after those that it calls itself."""
    found: dict[Function, None] = {}
    for s in statements(body):
        if isinstance(s, RoutineCall):
            found.update(dict.fromkeys((*routines_in(s.routine.body), s.routine)))
    return tuple(found)


def tile_maps(function: Function) -> tuple[TileMap, ...]:
    """The tensors of which a function copies boxes, by first use."""
    copies = (s for s in statements(function.body) if isinstance(s, CopyTile))
    return tuple(dict.fromkeys(s.map for s in copies))


def map_routines(
    body: tuple[Stmt, ...], change: Callable[[Function], Function]
) -> tuple[Stmt, ...]:
    """``body`` with each routine that it calls changed."""

    def changed(s: Stmt) -> Stmt:
        s = map_blocks(s, lambda block: map_routines(block, change))
        if not isinstance(s, RoutineCall):
            return s
        routine = change(s.routine)
        return s if routine is s.routine else replace(s, routine=routine)

    return tuple(map(changed, body))


def arrived_at(function: Function) -> frozenset[str]:
    """The buffers that groups of a function arrive at."""
    return frozenset(s.counters for s in statements(function.body) if isinstance(s, Arrive))
