"""Removes copies of a tensor to itself: a scatter that updates its operand in place.

A kernel that changes some elements of a tensor copies it first, as it does not know the location
of its result.  If memory planning makes both one buffer, the copy is removed::

    for i in 0 .. n { store %y[i] = load %x[i] }      with %x and %y in one place
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import Index
from modelcc.ir.library import Callee, LibraryFunction
from modelcc.ir.loop import For, If, Load, Stmt, Store
from modelcc.ir.loop_traversal import map_blocks
from modelcc.ir.program import Launch
from modelcc.passes.program.plan_memory import MemoryPlan


def without_idle_copies(function: Callee, call: Launch, plan: MemoryPlan) -> Callee | None:
    """The callee of ``call`` without copies to the same location, in the memory of ``plan``; None
    if it does nothing else."""
    if isinstance(function, LibraryFunction):
        return function
    places: dict[tuple[str, Index], str] = {}
    homes: dict[str, str] = {}
    for parameter, tensor in zip(function.parameters, call.arguments, strict=True):
        place = (plan.buffer(tensor), plan.offset(tensor))
        homes[parameter.buffer.name] = places.setdefault(place, parameter.buffer.name)
    if len(places) == len(homes):
        return function
    body = _without_copies(function.body, homes)
    if body == function.body:
        return function
    return replace(function, body=body) if body else None


def _without_copies(body: Sequence[Stmt], homes: Mapping[str, str]) -> tuple[Stmt, ...]:
    kept: list[Stmt] = []
    for s in body:
        if _is_idle(s, homes):
            continue
        inner = map_blocks(s, lambda block: _without_copies(block, homes))
        emptied = inner != s and (
            (isinstance(inner, For) and not inner.body)
            or (isinstance(inner, If) and not (inner.then or inner.other))
        )
        if not emptied:
            kept.append(inner)
    return tuple(kept)


def _is_idle(s: Stmt, homes: Mapping[str, str]) -> bool:
    match s:
        case Store(buffer, offset, Load(source, start) as value):
            same = homes.get(buffer, buffer) == homes.get(source, source)
            whole = (s.stride, s.active) == (value.stride, value.active)
            return same and offset == start and whole
        case _:
            return False
