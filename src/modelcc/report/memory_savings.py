"""Memory saved by results that overlap operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from modelcc.ir.index import evaluate
from modelcc.ir.program import Launch, Program, counters, leaves, step_tensors
from modelcc.ir.region import Repeat

IN_PLACE = "in place"


@dataclass(frozen=True)
class MemorySaving:
    """``bytes`` that ``tensor``, a result of step ``step`` of the user's nodes ``source``, shares
    with its ``operand``; ``how`` gives the distance in bytes, before that or behind."""

    step: int
    source: tuple[str, ...]
    tensor: str
    operand: str
    bytes: int
    how: str

    def __str__(self) -> str:
        place = f"{self.tensor} over {self.operand}, {self.how}"
        return f"step {self.step}: {self.bytes} bytes, {place}"


def memory_savings(program: Program, env: Mapping[str, int]) -> tuple[MemorySaving, ...]:
    """Each result in the arena that overlaps an operand, in the order of the steps, in the first
    iteration of loops."""
    known = {**counters(program.steps), **env}
    found: dict[tuple[str, str], MemorySaving] = {}
    for number, step in enumerate(program.steps):
        source = next((leaf.source for leaf in leaves((step,)) if leaf.source), ())
        for leaf in leaves((step,)):
            for result, operand in _pairs(program, leaf):
                saving = _saving(program, known, number, leaf.source or source, result, operand)
                if saving is not None:
                    found.setdefault((result, operand), saving)
        touched = step_tensors(step) if isinstance(step, Repeat) else ()
        for result, operand in program.placed.overlaps:
            if result in touched and (result, operand) not in found:
                saving = _saving(program, known, number, source, result, operand)
                found |= {} if saving is None else {(result, operand): saving}
    return tuple(found.values())


def _pairs(program: Program, leaf: object) -> Iterator[tuple[str, str]]:
    """Pairs of results and operands of a launch."""
    if isinstance(leaf, Launch):
        results = program.results(leaf)
        operands = tuple(dict.fromkeys(n for n in leaf.arguments if n not in results))
        yield from ((result, operand) for result in results for operand in operands)


def _saving(
    program: Program, env: Mapping[str, int], step: int, source: tuple[str, ...], result: str,
    operand: str,
) -> MemorySaving | None:  # fmt: skip
    places = [_extent(program, name, env) for name in (result, operand)]
    own, other = places
    if own is None or other is None:
        return None
    shared = min(own[1], other[1]) - max(own[0], other[0])
    if shared <= 0:
        return None
    return MemorySaving(step, source, result, operand, shared, _how(own, other))


def _how(own: tuple[int, int], other: tuple[int, int]) -> str:
    if own[0] == other[0]:
        return IN_PLACE
    if own[0] < other[0]:
        return f"{other[0] - own[0]} ahead"
    return f"{own[0] - other[0]} behind"


def _extent(program: Program, name: str, env: Mapping[str, int]) -> tuple[int, int] | None:
    """Start and end of a tensor in the arena; None if it is elsewhere."""
    binding, room = program.placed.bindings.get(name), program.room.get(name)
    if binding is None or (room is None and (binding.place != "arena" or binding.segment)):
        return None
    begin = evaluate(binding.offset, env) if room is None else room
    return begin, begin + evaluate(program.types[name].bytes, env)
