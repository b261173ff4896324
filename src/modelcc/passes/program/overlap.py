"""Results that may lie over operands which are read for the last time, a few rows away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.library import Callee, meaning_of, with_meaning
from modelcc.ir.loop import Function
from modelcc.ir.program import Launch, Program
from modelcc.passes.loop.lead import Lead, lead
from modelcc.passes.program.storage import Storage, storage_of
from modelcc.passes.program.timeline import Timeline


@dataclass(frozen=True)
class Overlap:
    """The storage of ``result`` may share memory with that of ``operand`` if they are ``lead``
    apart; ``callee`` computes one from the other."""

    result: str
    operand: str
    lead: Lead
    callee: str


def overlaps(program: Program, line: Timeline, found: Sequence[Storage]) -> tuple[Overlap, ...]:
    """Pairs of storages of known size, of which one begins where the other ends."""
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
                result.append(Overlap(target.name, source.name, least, callee.name))
    return tuple(result)


def _pairs(
    program: Program, call: Launch, step: int, homes: Mapping[str, Storage]
) -> Iterator[tuple[Storage, Storage]]:
    """Storages of a launch that are written first there, with those that are read last."""
    results = program.results(call)
    made = {homes[n].name: homes[n] for n in results if n in homes and homes[n].first == step}
    read = {homes[n].name: homes[n] for n in call.arguments if n in homes and n not in results}
    for target in made.values():
        for source in read.values():
            if target.name != source.name and source.last == step and _is_whole(target, source):
                yield target, source


def _is_gain(least: Lead, target: Storage, source: Storage) -> bool:
    """Whether the storages share memory at that distance."""
    sizes = target.size, source.size
    if not isinstance(sizes[0], int) or not isinstance(sizes[1], int):
        return False
    return least.before < sizes[0] or least.behind < sizes[1]


def _is_whole(*storages: Storage) -> bool:
    return all(s.place != "constant" and isinstance(s.size, int) and not s.within for s in storages)


def _buffers(call: Launch, function: Function, storage: Storage) -> tuple[str, ...]:
    """What the function calls the tensors of a storage."""
    pairs = zip(function.parameters, call.arguments, strict=True)
    return tuple(p.buffer.name for p, name in pairs if name in storage.tensors)


def sharing(callee: Callee) -> Callee:
    """``callee``, which knows that its results may share memory with what it reads."""
    function = meaning_of(callee)
    parameters = tuple(replace(p, shared=True) for p in function.parameters)
    return with_meaning(callee, replace(function, parameters=parameters))
