"""Symbols that steps of a host program depend on."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.index import Index, symbols
from modelcc.ir.program import Allocate, Launch, Program, Step, inner_steps, own_tensors
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
        inner = (mentioned_symbols(program, each, known) for each in inner_steps(step))
        found = own.union(*inner)
        if isinstance(step, Branch | Repeat):
            known[id(step)] = found
    return found


def _own_indices(program: Program, step: Step) -> Iterator[Index]:
    match step:
        case Launch():
            yield from (*step.sizes, *(bound.extent for bound in step.bounds))
        case Allocate():
            yield step.size
        case ReadSize():
            ends = (end for n in step.symbols for end in (program.dims[n].lo, program.dims[n].hi))
            yield from (end for end in ends if end is not None)
            yield from (side for c in step.requires for side in (c.left, c.right))
        case Repeat():
            yield 0 if step.trips is None else step.trips
        case _:
            pass
    for name in own_tensors(step):
        yield from program.types[name].shape
        if program.placement is not None:
            yield program.placement.bindings[name].offset
