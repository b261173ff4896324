"""Upper bounds of the buffer elements that a loop function accesses, by counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from modelcc.ir.index import evaluate, symbols
from modelcc.ir.loop import (
    For,
    Function,
    Load,
    ParallelCall,
    Prefetch,
    Stmt,
    Store,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.loop_traversal import blocks, names_used, statement_expressions, walk


def touched(function: Function, sizes: Mapping[str, int]) -> dict[str, int]:
    """Upper bounds of accessed elements of each parameter in a call with these size arguments.

    Each access counts its lanes times the trip counts of the loops around it, in both branches of
    a condition; one with an unknown trip count, in a routine or an asynchronous copy counts its
    whole buffer.  So of a table of which a few rows are read only these count.
    """
    found: dict[str, float] = {}
    _count(function.body, 1, sizes, found)
    buffers = [parameter.buffer for parameter in function.parameters]
    whole = {buffer.name: evaluate(buffer.size, sizes) for buffer in buffers}
    if any(isinstance(s, ParallelCall) for s in function.body):
        return whole
    return {name: int(min(found.get(name, 0), size)) for name, size in whole.items()}


def _count(
    body: Sequence[Stmt], times: float, sizes: Mapping[str, int], found: dict[str, float]
) -> None:
    for s in body:
        for buffer, lanes in _accesses(s):
            found[buffer] = found.get(buffer, 0) + times * lanes
        trips = _trips(s, sizes)
        for block in blocks(s) if trips else ():
            _count(block, times * trips, sizes, found)


def _accesses(s: Stmt) -> list[tuple[str, float]]:
    """Buffers that a statement itself accesses, and the numbers of elements."""
    found: list[tuple[str, float]] = [
        (e.buffer, e.lanes)
        for outer in statement_expressions(s)
        for e in walk(outer)
        if isinstance(e, Load | VectorGather)
    ]
    match s:
        case Store() | VectorScatter():
            found.append((s.buffer, s.value.lanes))
        case Prefetch():
            pass
        case _ if not blocks(s):
            read = {name for name, _ in found}
            found += [(name, inf) for name in names_used((s,)) if name not in read]
        case _:
            pass
    return found


def _trips(s: Stmt, sizes: Mapping[str, int]) -> float:
    """The trip count of a statement's body."""
    match s:
        case For() if (symbols(s.start) | symbols(s.stop)) <= sizes.keys():
            length = evaluate(s.stop, sizes) - evaluate(s.start, sizes)
            return max(0, -(-length // s.step))
        case For() | While():
            return inf
        case _:
            return 1
