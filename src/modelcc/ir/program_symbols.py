"""Symbols that steps of a host program depend on."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.index import Index, symbols
from modelcc.ir.program import (
    Allocate,
    CopyTensor,
    Launch,
    Program,
    Step,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize


def mentioned_symbols(
    program: Program, step: Step, known: dict[int, frozenset[str]]
) -> frozenset[str]:
    """Symbols in sizes and places that a step and those in it use; ``known`` are those of loops
    and branches that were asked for before, by identity."""
    found = known.get(id(step))
    if found is None:
        own = frozenset(n for index in _own_indices(program, step) for n in symbols(index))
        inner = (mentioned_symbols(program, each, known) for each in _inner(step))
        found = own.union(*inner)
        if isinstance(step, Branch | Repeat):
            known[id(step)] = found
    return found


def _inner(step: Step) -> tuple[Step, ...]:
    match step:
        case Branch():
            return (*step.then, *step.other)
        case Repeat():
            return step.body
        case _:
            return ()


def _own_indices(program: Program, step: Step) -> Iterator[Index]:
    names: tuple[str, ...] = ()
    match step:
        case Launch():
            names = step.arguments
            yield from (*step.sizes, *(bound.extent for bound in step.bounds))
        case CopyTensor():
            names = (step.target, step.source_tensor)
        case Allocate():
            yield step.size
        case ReadSize():
            names = (step.tensor,)
            ends = (end for n in step.symbols for end in (program.dims[n].lo, program.dims[n].hi))
            yield from (end for end in ends if end is not None)
            yield from (side for c in step.requires for side in (c.left, c.right))
        case Branch():
            names = (step.condition,)
        case Repeat():
            names = () if step.condition is None else (step.condition,)
            if step.trips is not None:
                yield step.trips
    for name in names:
        binding = program.bindings[name]
        yield from (binding.offset, *binding.type.shape)
