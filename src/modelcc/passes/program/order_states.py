"""Constraints on the order of steps that allow states to be updated in place.

A state's output is written after all reads of the value it replaces, and after the last step that
may end the run: failures leave states unchanged.  Not all states can be: of two that are computed
from each other one is exempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from modelcc.ir.program import Launch, Program


@dataclass(frozen=True)
class StateSteps:
    """Steps by their bits: ``readers`` of a state, and ``writers`` of what replaces it."""

    readers: int
    writers: int


def overwritten(program: Program) -> dict[str, tuple[str, ...]]:
    """Output of a state → buffers that may share its memory before it, the last first: those that
    a kernel may overwrite with it, transitively, without the state's input."""
    bases = program.bases
    over: Mapping[str, str] = {
        bases.get(new, new): bases.get(old, old)
        for step in program.steps
        if isinstance(step, Launch)
        for new, old in step.in_place
        if program.types[new].bytes == program.types[old].bytes
    }
    found: dict[str, tuple[str, ...]] = {}
    for output, state in program.states.items():
        chain: list[str] = []
        name = over.get(bases.get(output, output))
        while name is not None and name not in chain and name not in program.inputs:
            chain.append(name)
            name = over.get(name)
        found[output] = tuple(chain) if name == state else ()
    return found


def states_last(
    needs: Sequence[int], states: Sequence[StateSteps], may_end: int
) -> tuple[int, ...]:
    """``needs``, the steps that each must follow, plus those required by ``states``, in order of
    priority; ``may_end`` are the steps that may be the last to run."""
    found, before = list(needs), _closure(needs)
    followed = 0
    for need in needs:
        followed |= need
    for state in states:
        first = (state.readers | may_end) & ~state.writers
        if any(before[step] & state.writers for step in bits(first)):
            continue
        known = first
        for step in bits(first):
            known |= before[step]
        behind = enumerate(before) if followed & state.writers else ()
        later = [step for step, ahead in behind if ahead & state.writers]
        for step in bits(state.writers):
            found[step] |= first
        for step in (*bits(state.writers), *later):
            before[step] |= known
        followed |= first
    return tuple(found)


def stable_order(needs: Sequence[int]) -> list[int]:
    """A topological order of ``needs``, otherwise in the order of step numbers."""
    waiting = [need.bit_count() for need in needs]
    followers: list[list[int]] = [[] for _ in needs]
    for step, need in enumerate(needs):
        for other in bits(need):
            followers[other].append(step)
    ready = [step for step, count in enumerate(waiting) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        step = heappop(ready)
        order.append(step)
        for other in followers[step]:
            waiting[other] -= 1
            if not waiting[other]:
                heappush(ready, other)
    return order


def bits(steps: int) -> Iterator[int]:
    """The steps of a set."""
    while steps:
        step = steps.bit_length() - 1
        yield step
        steps ^= 1 << step


def _closure(needs: Sequence[int]) -> list[int]:
    """The transitive closure of ``needs``, given in topological order."""
    before: list[int] = []
    for need in needs:
        known = need
        for step in bits(need):
            known |= before[step]
        before.append(known)
    return before
