"""Results that may overlap operands which are read for the last time, some rows apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Range, evaluate
from modelcc.ir.library import Callee, meaning_of, with_meaning
from modelcc.ir.loop import Function
from modelcc.ir.program import Launch, Program
from modelcc.passes.loop.lead import MOMENTS, CallAccess, Lead, lead, lead_of_calls
from modelcc.passes.program.storage import Storage, storage_of
from modelcc.passes.program.timeline import LoopSpan, Timeline


@dataclass(frozen=True)
class Overlap:
    """The storage of ``result`` may share memory with that of ``operand`` if they are ``lead``
    apart; ``callees`` compute one from the other, ``in_loop`` or in one step."""

    result: str
    operand: str
    lead: Lead
    callees: frozenset[str]
    in_loop: bool = False


def overlaps(program: Program, line: Timeline, found: Sequence[Storage]) -> tuple[Overlap, ...]:
    """Pairs of storages of constant size, of which one becomes live where the other one dies."""
    homes = storage_of(found)
    known: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Lead | None] = {}
    result: list[Overlap] = []
    for step, call in line.calls.items():
        callee = program.callee[call.callee] if isinstance(call, Launch) else None
        if not isinstance(call, Launch) or not isinstance(callee, Function):
            continue
        for target, source in _pairs(program, call, step, homes):
            written, read = (_buffers(call, callee, s) for s in (target, source))
            key = callee.name, written, read
            if key not in known:
                known[key] = lead(callee, written, read)
            least = known[key]
            if least is not None and _is_gain(least, target, source):
                result.append(Overlap(target.name, source.name, least, frozenset({callee.name})))
    return (*result, *(one for span in line.loops for one in _of_loop(program, span, found)))


def _of_loop(program: Program, span: LoopSpan, found: Sequence[Storage]) -> Iterator[Overlap]:
    """Pairs of storages that iterations fill, and ones that they only read, dead afterwards."""
    loop, body = span.loop, [step for step in span.loop.body if isinstance(step, Launch)]
    apart = len(body) == len(loop.body) and isinstance(loop.trips, int) and loop.condition is None
    if not apart or not isinstance(loop.trips, int) or loop.trips > MOMENTS:
        return
    written = {n for call in body for n in program.results(call)}
    written |= {n for c in loop.carries for n in (c.initial, c.state, c.next, c.last)}
    for target in found:
        filled = target.first == span.begin and not set(loop.filled).isdisjoint(target.tensors)
        for source in found if filled and _is_whole(target) else ():
            if source.last != span.end or not _is_whole(source) or written & {*source.tensors}:
                continue
            calls = [
                a for turn in range(loop.trips) for a in _turn(program, span, turn, target, source)
            ]
            least = lead_of_calls([access for _, access in calls])
            if least is not None and _is_gain(least, target, source):
                yield Overlap(
                    target.name,
                    source.name,
                    least,
                    frozenset(call.callee for call, _ in calls),
                    in_loop=True,
                )


def _turn(
    program: Program, span: LoopSpan, turn: int, target: Storage, source: Storage
) -> Iterator[tuple[Launch, CallAccess]]:
    """Calls of an iteration that access either storage."""
    for step in span.loop.body:
        callee = program.callee[step.callee] if isinstance(step, Launch) else None
        if isinstance(step, Launch) and isinstance(callee, Function):
            results, operands = (frozenset(_buffers(step, callee, s)) for s in (target, source))
            if results or operands:
                values = (evaluate(size, {span.loop.counter: turn}) for size in step.sizes)
                sizes = tuple(Range(value, value) for value in values)
                yield step, CallAccess(callee, sizes, results, operands)


def _pairs(
    program: Program, call: Launch, step: int, homes: Mapping[str, Storage]
) -> Iterator[tuple[Storage, Storage]]:
    """Storages that a launch writes first, paired with those that it reads last."""
    results = program.results(call)
    made = {homes[n].name: homes[n] for n in results if n in homes and homes[n].first == step}
    read = {homes[n].name: homes[n] for n in call.arguments if n in homes and n not in results}
    for target in made.values():
        for source in read.values():
            if target.name != source.name and source.last == step and _is_whole(target, source):
                yield target, source


def _is_gain(least: Lead, target: Storage, source: Storage) -> bool:
    """Whether the storages overlap at that distance."""
    sizes = target.size, source.size
    if not isinstance(sizes[0], int) or not isinstance(sizes[1], int):
        return False
    return least.before < sizes[0] or least.behind < sizes[1]


def _is_whole(*storages: Storage) -> bool:
    return all(s.place != "constant" and isinstance(s.size, int) and not s.within for s in storages)


def _buffers(call: Launch, function: Function, storage: Storage) -> tuple[str, ...]:
    """The function's names of the tensors of a storage."""
    pairs = zip(function.parameters, call.arguments, strict=True)
    return tuple(p.buffer.name for p, name in pairs if name in storage.tensors)


def sharing(callee: Callee) -> Callee:
    """``callee`` with results declared to alias its operands."""
    function = meaning_of(callee)
    parameters = tuple(replace(p, shared=True) for p in function.parameters)
    return with_meaning(callee, replace(function, parameters=parameters))
