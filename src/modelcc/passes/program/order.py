"""Orders kernels so that less memory is live at once; a branch or loop is one step.

Beam search over topological orders: partial orders that ran the same set of kernels compete, and
the one with the lowest peak so far is kept.  With an unlimited beam this is the exact dynamic
program over down-sets (Ahn et al., "Ordering chaos: memory-aware scheduling of irregularly wired
neural networks for edge devices", 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from modelcc.ir.index import Index, evaluate, symbols
from modelcc.ir.scheduled import (
    KernelCall,
    ScheduledItem,
    ScheduledProgram,
    leaf_calls,
    scheduled_tensors,
)
from modelcc.ir.tensor import ReadSize, View
from modelcc.passes.program.late_memory import aligned
from modelcc.passes.program.nominal import nominal_values
from modelcc.passes.program.storage import storages
from modelcc.passes.program.timeline import timeline

WORK = 100_000
"""Kernels the search may append in total; its beam is as wide as that allows."""

WIDEST = 64


@dataclass(frozen=True)
class _Problem:
    """Steps and the arena buffers they touch, all by number; sets of steps are bit masks.

    ``needs[s]`` must run before s.  ``touches[s]`` are buffers; ``users[b]`` the steps touching b.
    ``over[s]`` maps a buffer s writes to one it may be written over.
    """

    needs: tuple[int, ...]
    touches: tuple[tuple[int, ...], ...]
    users: tuple[int, ...]
    sizes: tuple[int, ...]
    over: tuple[Mapping[int, int], ...]


@dataclass(frozen=True)
class _Partial:
    """Steps run so far: as a set and in order, bytes live after them, the most so far."""

    done: int
    order: tuple[int, ...]
    live: int
    peak: int


def order_steps(program: ScheduledProgram) -> ScheduledProgram:
    """``program`` with its kernels in an order of lower peak memory, or unchanged.

    Symbolic sizes are compared at typical values.
    """
    steps = _steps(program)
    problem = _problem(program, steps)
    given = _Partial(0, (), 0, 0)
    for step in range(len(problem.needs)):
        given = _run(problem, given, step)
    best = _search(problem)
    if best.peak >= given.peak:
        return program
    return replace(program, items=_items(program, steps, best.order))


@dataclass(frozen=True)
class _Step:
    """What is ordered: a call, or a branch or loop as one."""

    item: ScheduledItem
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    in_place: tuple[tuple[str, str], ...] = ()
    partial: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    binds: tuple[str, ...] = ()


def _steps(program: ScheduledProgram) -> list[_Step]:
    found: list[_Step] = []
    for item in program.items:
        match item:
            case KernelCall():
                step = _Step(item, item.arguments, item.outputs, item.in_place, item.partial)
                found.append(replace(step, needs=_symbols_of(program, step, item.sizes)))
            case ReadSize():
                step = _Step(item, item.arguments, (), binds=item.symbols)
                found.append(replace(step, needs=_symbols_of(program, step) | item.needs))
            case View():
                pass
            case _:
                step = _Step(item, scheduled_tensors(item), item.outputs)
                sizes = [size for call in leaf_calls((item,)) if isinstance(call, KernelCall)
                         for size in call.sizes]  # fmt: skip
                found.append(replace(step, needs=_symbols_of(program, step, sizes)))
    return found


def _symbols_of(
    program: ScheduledProgram, step: _Step, sizes: Sequence[Index] = ()
) -> frozenset[str]:
    shapes = [program.types[name].shape for name in step.arguments]
    return frozenset(n for index in (*sizes, *chain(*shapes)) for n in symbols(index))


def _problem(program: ScheduledProgram, calls: Sequence[_Step]) -> _Problem:
    line = timeline(program)
    arena = [s for s in storages(program, line) if s.place == "arena"]
    sizes = [aligned(s.size) for s in arena]
    values = nominal_values(sizes, program.dims)
    number = {name: i for i, s in enumerate(arena) for name in s.tensors}
    touches = tuple(
        tuple(dict.fromkeys(number[n] for n in c.arguments if n in number)) for c in calls
    )
    users = [0] * len(arena)
    for step, buffers in enumerate(touches):
        for b in buffers:
            users[b] |= 1 << step
    over = tuple(
        {number[o]: number[i] for o, i in c.in_place if o in number and i in number} for c in calls
    )
    return _Problem(
        needs=_dependencies(line.bases, calls),
        touches=touches,
        users=tuple(users),
        sizes=tuple(evaluate(size, values) for size in sizes),
        over=over,
    )


def _dependencies(bases: Mapping[str, str], calls: Sequence[_Step]) -> tuple[int, ...]:
    """For each step the set of those it must follow.

    Readers follow the writers before them; writers follow earlier readers, and earlier writers
    unless both write parts only.  What depends on sizes read from memory follows their reading.
    """
    known: dict[str, int] = {}
    full: dict[str, int] = {}
    partial: dict[str, int] = {}
    readers: dict[str, int] = {}
    needs: list[int] = []
    for step, call in enumerate(calls):
        own = 1 << step
        need = 0
        for name in call.needs if known else ():
            need |= known.get(name, 0)
        known |= dict.fromkeys(call.binds, own)
        written = {bases.get(n, n) for n in call.outputs}
        parts = {bases.get(n, n) for n in call.partial}
        for base in dict.fromkeys(bases.get(n, n) for n in call.arguments):
            need |= full.get(base, 0)
            if base not in parts:
                need |= partial.get(base, 0)
            if base not in written:
                readers[base] = readers.get(base, 0) | own
                continue
            need |= readers.get(base, 0)
            group = partial if base in parts else full
            group[base] = group.get(base, 0) | own
        needs.append(need & ~own)
    return tuple(needs)


def _run(problem: _Problem, state: _Partial, step: int) -> _Partial:
    done = state.done | 1 << step
    live = peak = state.live
    for b in problem.touches[step]:
        if not problem.users[b] & state.done:
            live += problem.sizes[b]
    dead = [b for b in problem.touches[step] if not problem.users[b] & ~done]
    reused = {
        i
        for o, i in problem.over[step].items()
        if i in dead and problem.sizes[i] == problem.sizes[o] and not problem.users[o] & state.done
    }
    peak = max(state.peak, live - sum(problem.sizes[b] for b in reused))
    live -= sum(problem.sizes[b] for b in dead)
    return _Partial(done, (*state.order, step), live, peak)


def _search(problem: _Problem) -> _Partial:
    count = len(problem.needs)
    width = max(1, min(WIDEST, WORK // max(1, count * count)))
    beam = [_Partial(0, (), 0, 0)]
    for _ in range(count):
        reached: dict[int, _Partial] = {}
        for state in beam:
            for step in _ready(problem, state.done):
                new = _run(problem, state, step)
                old = reached.get(new.done)
                if old is None or _rank(new) < _rank(old):
                    reached[new.done] = new
        beam = sorted(reached.values(), key=_rank)[:width]
    return beam[0]


def _rank(state: _Partial) -> tuple[int, int, tuple[int, ...]]:
    return state.peak, state.live, state.order


def _ready(problem: _Problem, done: int) -> list[int]:
    return [
        step for step, need in enumerate(problem.needs) if not done >> step & 1 and not need & ~done
    ]


def _items(
    program: ScheduledProgram, steps: Sequence[_Step], order: Sequence[int]
) -> tuple[ScheduledItem, ...]:
    """Steps in ``order``, each preceded by the views it needs; unused views at the end."""
    views = {item.output: item for item in program.items if isinstance(item, View)}
    items: list[ScheduledItem] = []

    def place_view(name: str) -> None:
        view = views.pop(name, None)
        if view is not None:
            place_view(view.input)
            items.append(view)

    for number in order:
        for name in steps[number].arguments:
            place_view(name)
        items.append(steps[number].item)
    for name in list(views):
        place_view(name)
    return tuple(items)
