"""Checks of functions for accelerators: groups, their threads, shared memory, barriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.copies import CommitCopies, CopyAsync, Exchange, WaitCopies
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, symbols
from modelcc.ir.loop import (
    Alloc,
    Arrive,
    Barrier,
    BindIndex,
    Check,
    Comment,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    ParallelCall,
    Register,
    RoutineCall,
    Stmt,
    TakeTurns,
    Var,
    VectorGather,
    While,
)
from modelcc.ir.loop_text import statement_text
from modelcc.ir.loop_traversal import (
    blocks,
    grid_loop,
    indices,
    loop_nest,
    map_blocks,
    names_used,
    statement_expressions,
    statement_indices,
    statements,
    walk,
)
from modelcc.ir.shared_layout import SHARED, shared_layout
from modelcc.ir.tiles import CopyTile, ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import I32

DIMENSIONS = 3

_OF_GROUPS = (
    Barrier, Arrive, Exchange, CopyAsync, CommitCopies, WaitCopies, CopyTile, ExpectBytes,
    WaitArrival, WaitRoutines, TakeTurns,
)  # fmt: skip
_OF_ALL: tuple[type[Stmt], ...] = (Barrier, Arrive, TakeTurns)
_OF_WARPS = (RoutineCall, WaitRoutines, Exchange)
TOGETHER: tuple[type[Stmt], ...] = (*_OF_ALL, *_OF_WARPS)
"""Statements that all threads of a group, or of a warp, reach."""


@dataclass(frozen=True)
class GroupLimits:
    """Limits of a target for a group: bytes of shared memory, threads.  None: no limit."""

    shared_bytes: int | None = None
    threads: int | None = None


def _verify_prefetched(function: Function) -> None:
    """Only existing bytes of parameters that are never written are prefetched."""
    for p in function.parameters:
        size = p.buffer.size if isinstance(p.buffer.size, int) else 0
        most = 0 if p.mutable else size * p.buffer.dtype.bytes
        if not 0 <= p.prefetched <= most:
            message = f"{p.prefetched} bytes of %{p.buffer.name} are prefetched, and {most} can be"
            raise ModelError(message, (f"@{function.name}",))


def verify_groups(function: Function, limits: GroupLimits) -> None:
    """Raises :class:`ModelError` naming the first statement that breaks a rule of groups.

    Loops over groups and threads are nests as :class:`~modelcc.ir.loop.For` specifies, around all
    other statements; memory is used within its scope; all threads of a group reach the same
    barriers; a group fits within ``limits``.
    """
    grid = grid_loop(function)
    _verify_prefetched(function)
    if grid is None:
        misplaced = next(s for s in statements(function.body) if is_of_groups(s))
        raise _fail(function, misplaced, "there is no grid loop around it")
    _verify_around(function, grid)
    loops, body = loop_nest(grid)
    for loop in loops:
        _verify_extent(function, loop, len(loops))
        if not symbols(loop.stop) <= set(function.sizes):
            raise _fail(function, loop, "how many groups there are, the function's sizes say")
    threads = _verify_group(function, body, limits)
    loops, body = loop_nest(threads)
    for loop in loops:
        _verify_extent(function, loop, len(loops))
    _verify_threads(function, loops, limits)
    _verify_exchanges(function, loops[-1])
    _verify_arrivals(function)
    _Threads(function, loops).verify(body)
    _Threads(function, loops[-1:], _OF_WARPS).verify(body)


def is_of_groups(s: Stmt) -> bool:
    """Whether a statement is only defined in groups."""
    match s:
        case For():
            return s.kind in ("grid", "thread")
        case Alloc():
            return s.buffer.space != "local"
        case RoutineCall():
            return s.beside
        case _:
            return isinstance(s, _OF_GROUPS)


def _unchanged(function: Function) -> frozenset[str]:
    """Buffers that do not change: inputs that no output may alias."""
    kept = (p for p in function.parameters if not p.mutable and not p.shared)
    return frozenset(p.buffer.name for p in kept)


def _fail(function: Function, s: Stmt, message: str) -> ModelError:
    return ModelError(message, (f"@{function.name}", statement_text(s)))


def _verify_around(function: Function, grid: For) -> None:
    for s in function.body:
        if s is not grid and not isinstance(s, Let | BindIndex | Comment):
            raise _fail(function, s, "around its one grid a function has nothing but values")
        _verify_values(function, s)


def _verify_values(function: Function, s: Stmt) -> None:
    """Values before the thread loops are of inputs only, which no thread changes."""
    fixed = _unchanged(function)
    for outer in statement_expressions(s):
        for e in walk(outer):
            if isinstance(e, Load | VectorGather) and e.buffer not in fixed:
                raise _fail(function, s, f"%{e.buffer} is read outside of the thread loops")


def _verify_extent(function: Function, s: For, depth: int) -> None:
    if depth > DIMENSIONS:
        raise _fail(function, s, f"{depth} {s.kind} loops are in each other, not {DIMENSIONS}")
    if s.start != 0 or s.step != 1 or s.part is not None:
        raise _fail(function, s, f"a {s.kind} loop runs from 0 by steps of 1")


def _verify_group(function: Function, body: Sequence[Stmt], limits: GroupLimits) -> For:
    """The thread loop, after the memory and values of a group."""
    used, places = 0, shared_layout(function).places
    threads: list[For] = []
    for s in body:
        match s:
            case Alloc() if s.buffer.space in SHARED:
                used = max(used, places[s.buffer.name][1])
                if limits.shared_bytes is not None and used > limits.shared_bytes:
                    has = f"of which the target has {limits.shared_bytes}"
                    raise _fail(function, s, f"the group shares {used} bytes, {has}")
            case Alloc():
                raise _fail(function, s, "private memory would be reached by every thread")
            case Register():
                raise _fail(function, s, "a register would be changed by every thread")
            case For() if s.kind == "thread" and not threads:
                threads.append(s)
            case Barrier():
                raise _fail(function, s, "a barrier is outside of the thread loops")
            case Let() | BindIndex() | Comment():
                _verify_values(function, s)
            case _:
                raise _fail(function, s, "a group does nothing outside of its one thread loop")
    if not threads:
        raise ModelError("a group has no thread loop", (f"@{function.name}",))
    return threads[0]


def _verify_threads(function: Function, loops: Sequence[For], limits: GroupLimits) -> None:
    count = 1
    for loop in loops:
        if not isinstance(loop.stop, int) or loop.stop < 1:
            raise _fail(function, loop, f"a group has a number of threads, not {loop.stop}")
        count *= loop.stop
        if limits.threads is not None and count > limits.threads:
            raise _fail(function, loop, f"a group has {limits.threads} threads, not {count}")


def _verify_exchanges(function: Function, warp: For) -> None:
    """Exchanges are of registers, by a power of two of threads."""
    inside, count = statements(warp.body), warp.stop
    assert isinstance(count, int)
    registers = {s.name for s in inside if isinstance(s, Register)}
    for s in inside:
        if isinstance(s, Exchange) and s.name not in registers:
            raise _fail(function, s, f"threads exchange registers, and %{s.name} is none")
        if isinstance(s, Exchange) and (count & count - 1 or not 0 < s.across < count):
            raise _fail(function, s, f"{count} threads do not exchange across {s.across}")


def _verify_arrivals(function: Function) -> None:
    """Counters are written i32 parameters, which nothing else mentions."""
    inside = statements(function.body)
    arriving = [s for s in inside if isinstance(s, Arrive)]
    counters = {s.counters for s in arriving}
    known = {p.buffer.name: p for p in function.parameters if p.mutable and not p.shared}
    for s in arriving:
        if s.counters not in known or known[s.counters].buffer.dtype != I32:
            raise _fail(function, s, f"groups arrive at i32 that are written, not at %{s.counters}")
        if not symbols(s.count) <= set(function.sizes) or s.count == 0:
            raise _fail(function, s, "how many groups arrive, a number or the sizes say")
    for s in inside if counters else ():
        if isinstance(s, Arrive):
            continue
        met = counters.intersection(names_used((map_blocks(s, lambda _: ()),)))
        if met:
            raise _fail(function, s, f"groups arrive at %{min(met)}, which nothing else touches")


class _Threads:
    """Checks the statements of a thread: ``varying`` names differ between the threads that
    ``loops`` run, which execute those that are ``together`` in convergence."""

    def __init__(
        self,
        function: Function,
        loops: Sequence[For],
        together: tuple[type[Stmt], ...] = _OF_ALL,
    ) -> None:
        self._function = function
        self._together = together
        self._fixed = _unchanged(function)
        self._varying = {loop.variable for loop in loops}
        self._diverging: Stmt | None = None
        """The divergent statement that surrounds the current one."""

    def verify(self, body: Sequence[Stmt]) -> None:
        """Checks the body of the thread loops."""
        inside = list(statements(body))
        barrier = next((s for s in inside if isinstance(s, TOGETHER)), None)
        check = next((s for s in inside if isinstance(s, Check) and not s.noting), None)
        if barrier is not None and check is not None:
            raise self._fail(barrier, f"'{statement_text(check)}' may have ended some threads")
        self._block(body)

    def _fail(self, s: Stmt, message: str) -> ModelError:
        return _fail(self._function, s, message)

    def _block(self, body: Sequence[Stmt]) -> None:
        for s in body:
            self._statement(s)

    def _statement(self, s: Stmt) -> None:
        match s:
            case Barrier() | RoutineCall() | WaitRoutines() | Exchange():
                if isinstance(s, self._together):
                    self._reached(s)
            case Arrive():
                self._reached(s)
                self._block(s.body)
            case TakeTurns():
                self._reached(s)
                self._block(s.first)
                self._by_one(s, s.copies)
                self._block(s.rest)
            case Let() if self._varies(s.value):
                self._varying.add(s.name)
            case BindIndex() if self._varies(s.value):
                self._varying.add(s.symbol)
            case Register():
                self._varying.add(s.name)
            case For():
                if s.kind not in ("serial", "unrolled"):
                    raise self._fail(s, f"there is no {s.kind} loop in what a thread does")
                if self._has_varying(s.start):
                    self._varying.add(s.variable)
                self._inside(s, self._has_varying(s.start) or self._has_varying(s.stop))
            case If() | While():
                self._inside(s, self._varies(s.condition))
            case Alloc() if s.buffer.space in SHARED:
                raise self._fail(s, "memory that a group shares is there before its threads")
            case ParallelCall():
                raise self._fail(s, "a thread of a group cannot use the pool")
            case _:
                pass

    def _reached(
        self, s: Barrier | Arrive | TakeTurns | RoutineCall | WaitRoutines | Exchange
    ) -> None:
        """Reached by all threads, with the same parts of memory."""
        if self._diverging is not None:
            inside = statement_text(self._diverging)
            raise self._fail(s, f"only some threads may reach it, inside '{inside}'")
        if any(map(self._has_varying, statement_indices(s))):
            raise self._fail(s, "the threads of a warp run it on other parts of memory each")

    def _inside(self, s: For | If | While, varies: bool) -> None:
        for block in blocks(s):
            if varies:
                self._by_one(s, block)
            else:
                self._block(block)

    def _by_one(self, s: Stmt, block: Sequence[Stmt]) -> None:
        """A divergent block inside ``s``."""
        around = self._diverging
        if around is None:
            self._diverging = s
        self._block(block)
        self._diverging = around

    def _has_varying(self, index: Index) -> bool:
        return not symbols(index).isdisjoint(self._varying)

    def _varies(self, outer: Expr) -> bool:
        """Whether threads may find different values, such as those of memory that may be
        written."""
        for e in walk(outer):
            if isinstance(e, Load | VectorGather) and e.buffer not in self._fixed:
                return True
            if isinstance(e, Var) and e.name in self._varying:
                return True
            if any(map(self._has_varying, indices(e))):
                return True
        return False
