"""Orders kernels to reduce peak memory; a branch or loop is one step.

Beam search over topological orders: partial orders that ran the same set of kernels compete, and
the one with the lowest peak so far is kept.  With an unlimited beam this is the exact dynamic
program over down-sets (Ahn et al., "Ordering chaos: memory-aware scheduling of irregularly wired
neural networks for edge devices", 2020).  Programs of very many steps are ordered window by window,
so that the time is linear in their number.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import itemgetter
from typing import TypeAlias

from modelcc.ir.index import Index, evaluate, symbols
from modelcc.ir.program import Launch, Program, Step, leaves, step_tensors
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View
from modelcc.passes.program.dynamic_allocation import aligned
from modelcc.passes.program.nominal import nominal_values
from modelcc.passes.program.order_states import StateSteps, overwritten, stable_order, states_last
from modelcc.passes.program.plan_memory import most_live
from modelcc.passes.program.storage import storages
from modelcc.passes.program.timeline import timeline

WORK = 100_000
"""Maximum number of kernels that the search appends in total; determines the beam width."""

WIDEST = 64

MANY, WINDOW = 1024, 256
"""More steps than ``MANY`` are ordered ``WINDOW`` at a time."""


@dataclass(frozen=True)
class _Problem:
    """Steps and the arena buffers they access, all by number; sets of steps are bit masks.

    ``needs[s]`` must run before s.  ``touches[s]`` are buffers; ``users[b]`` the steps accessing
    b.  ``over[s]`` maps a buffer that s writes to one that it may overwrite.
    """

    needs: tuple[int, ...]
    touches: tuple[tuple[int, ...], ...]
    users: tuple[int, ...]
    sizes: tuple[int, ...]
    over: tuple[Mapping[int, int], ...]


class _Effects:
    """Effects of steps on memory, memoised for each set of steps that has run before them."""

    def __init__(self, problem: _Problem) -> None:
        self._problem = problem
        self._near = [self._users(buffers) for buffers in problem.touches]
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def _users(self, buffers: Sequence[int]) -> int:
        users = 0
        for b in buffers:
            users |= self._problem.users[b]
        return users

    def of(self, step: int, done: int) -> tuple[int, int]:
        """Bytes live while ``step`` runs, and after it, more than before it."""
        before = done & self._near[step]  # other steps are irrelevant
        key = step, before
        effect = self._known.get(key)
        if effect is None:
            effect = self._known[key] = self._find(step, before)
        return effect

    def _find(self, step: int, before: int) -> tuple[int, int]:
        problem = self._problem
        sizes, users = problem.sizes, problem.users
        after = before | 1 << step
        new = sum(sizes[b] for b in problem.touches[step] if not users[b] & before)
        dead = [b for b in problem.touches[step] if not users[b] & ~after]
        reused = {
            i
            for o, i in problem.over[step].items()
            if i in dead and sizes[i] == sizes[o] and not users[o] & before
        }
        return new - sum(sizes[b] for b in reused), new - sum(sizes[b] for b in dead)


@dataclass(frozen=True)
class _Partial:
    """Steps run so far, as a set and in order, and the ready ones; bytes live after them, and their
    peak."""

    done: int
    order: tuple[int, ...]
    ready: tuple[int, ...]
    live: int = 0
    peak: int = 0


def order_steps(program: Program) -> Program:
    """``program`` with its kernels in an order of lower peak memory, or unchanged.

    States are written as late as in-place updates need.  Symbolic sizes are compared at typical
    values.
    """
    steps = _steps(program)
    if program.states:
        first = stable_order(_needs(program, steps))
        program = replace(program, steps=_ordered_steps(program, steps, first))
        steps = [steps[number] for number in first]
    problem = _problem(program, steps)
    effects = _Effects(problem)
    order, peak = _ordered(problem, effects)
    if peak >= _peak(effects, range(len(steps))):
        return program
    found = replace(program, steps=_ordered_steps(program, steps, order))
    # The search ignores that a buffer that is overwritten may have been merged with a result.
    return found if most_live(found) <= most_live(program) else program


def _ordered(problem: _Problem, effects: _Effects) -> tuple[list[int], int]:
    """The best order found, and its peak."""
    count = len(problem.needs)
    width = WINDOW if count > MANY else max(1, count)
    order: list[int] = []
    done = live = peak = 0
    for start in range(0, count, width):
        window = range(start, min(start + width, count))
        best = _search(problem, effects, window, _Partial(done, (), (), live, peak))
        order += best.order
        done, live, peak = best.done, best.live, best.peak
    return order, peak


@dataclass(frozen=True)
class _Step:
    """A unit of ordering: a call, or a branch or loop as a whole.

    ``binds`` are symbols that are read, or used in a constraint.
    """

    item: Step
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    in_place: tuple[tuple[str, str], ...] = ()
    partial: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    binds: tuple[str, ...] = ()


def _steps(program: Program) -> list[_Step]:
    calls: list[_Step] = []
    for item in program.steps:
        match item:
            case Launch():
                results = program.results(item)
                step = _Step(item, item.arguments, results, item.in_place, item.partial)
                calls.append(replace(step, needs=_symbols_of(program, step, item.sizes)))
            case ReadSize():
                checked = item.symbols or tuple(sorted(item.needs))
                step = _Step(item, item.arguments, (), binds=checked)
                calls.append(replace(step, needs=_symbols_of(program, step) | item.needs))
            case Branch() | Repeat():
                step = _Step(item, step_tensors(item), item.outputs)
                sizes = [size for call in leaves((item,)) if isinstance(call, Launch)
                         for size in call.sizes]  # fmt: skip
                calls.append(replace(step, needs=_symbols_of(program, step, sizes)))
            case _:
                pass
    return calls


def _symbols_of(program: Program, step: _Step, sizes: Sequence[Index] = ()) -> frozenset[str]:
    shapes = [program.types[name].shape for name in step.arguments]
    return frozenset(n for index in (*sizes, *chain(*shapes)) for n in symbols(index))


def _problem(program: Program, calls: Sequence[_Step]) -> _Problem:
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
        needs=_needs(program, calls),
        touches=touches,
        users=tuple(users),
        sizes=tuple(evaluate(size, values) for size in sizes),
        over=over,
    )


def _needs(program: Program, calls: Sequence[_Step]) -> tuple[int, ...]:
    """For each step the set of those it must follow, or should for in-place states."""
    needs, bases = _dependencies(program.bases, calls), program.bases
    if not program.states:
        return needs
    users: dict[str, int] = {}
    writers: dict[str, int] = {}
    ends = 0
    for step, call in enumerate(calls):
        for name in call.arguments:
            users[bases.get(name, name)] = users.get(bases.get(name, name), 0) | 1 << step
        for name in call.outputs:
            writers[bases.get(name, name)] = writers.get(bases.get(name, name), 0) | 1 << step
        ends |= int(any(map(_may_end, leaves((call.item,))))) << step
    # Updating a large state in place is worth more than a small one, which may be its index.
    sizes = {output: program.types[output].elements for output in program.states}
    largest = sorted(sizes, key=lambda name: -n if isinstance(n := sizes[name], int) else 0)
    chains = overwritten(program)
    states: list[StateSteps] = []
    for output in largest:
        # Overwriting a buffer that overwrites the state overwrites the state, too.
        written = 0
        links = (bases.get(output, output), *chains[output], program.states[output])
        for new, old in pairwise(links):
            written |= writers.get(new, 0)
            states.append(StateSteps(users.get(old, 0), written))
    return states_last(needs, states, ends)


def _may_end(step: Step) -> bool:
    """Whether the run may end at a step, or after it for lack of memory."""
    return isinstance(step, ReadSize) or (isinstance(step, Launch) and bool(step.bounds))


def _dependencies(bases: Mapping[str, str], calls: Sequence[_Step]) -> tuple[int, ...]:
    """For each step the set of those it must follow.

    Readers follow earlier writers; writers follow earlier readers, and earlier writers unless both
    write parts only.  Steps that depend on sizes read from memory follow the reads, and the
    constraints on these: if violated, there may be no room for what is written.
    """
    readings: dict[str, int] = {}
    full: dict[str, int] = {}
    partial: dict[str, int] = {}
    readers: dict[str, int] = {}
    needs: list[int] = []
    for step, call in enumerate(calls):
        own = 1 << step
        need = 0
        for name in call.needs if readings else ():
            need |= readings.get(name, 0)
        for name in call.binds:
            readings[name] = readings.get(name, 0) | own
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


def _followers(needs: Sequence[int], steps: range) -> tuple[tuple[int, ...], ...]:
    """For each of ``steps`` those of them that must run after it."""
    followers: list[list[int]] = [[] for _ in steps]
    own = (1 << len(steps)) - 1
    for step in steps:
        need = needs[step] >> steps.start & own
        while need:
            last = need.bit_length() - 1
            followers[last].append(step)
            need ^= 1 << last
    return tuple(map(tuple, followers))


def _peak(effects: _Effects, order: Iterable[int]) -> int:
    """The most bytes live at once while steps run in ``order``."""
    done = live = peak = 0
    for step in order:
        during, after = effects.of(step, done)
        peak = max(peak, live + during)
        live += after
        done |= 1 << step
    return peak


_Rank: TypeAlias = tuple[int, int, tuple[int, ...], int]
"""Peak and live bytes, then the order without and with the last step: the least is best."""


def _search(problem: _Problem, effects: _Effects, steps: range, before: _Partial) -> _Partial:
    """``before`` with ``steps``, which only depend on each other and on completed steps."""
    count = len(steps)
    width = max(1, min(WIDEST, WORK // max(1, count * count)))
    free = tuple(step for step in steps if not problem.needs[step] & ~before.done)
    beam = [replace(before, ready=free)]
    followers = _followers(problem.needs, steps)
    for _ in range(count):
        reached: dict[int, tuple[_Rank, _Partial]] = {}
        for state in beam:
            for step in state.ready:
                during, after = effects.of(step, state.done)
                peak, live = max(state.peak, state.live + during), state.live + after
                rank = (peak, live, state.order, step)
                done = state.done | 1 << step
                old = reached.get(done)
                if old is None or rank < old[0]:
                    reached[done] = rank, state
        best = heapq.nsmallest(width, reached.values(), key=itemgetter(0))
        beam = [
            _after(problem, state, rank, followers[rank[3] - steps.start]) for rank, state in best
        ]
    return beam[0]


def _after(problem: _Problem, state: _Partial, rank: _Rank, followers: Sequence[int]) -> _Partial:
    """``state`` with the last step of ``rank``, on which ``followers`` depend."""
    peak, live, order, step = rank
    done = state.done | 1 << step
    freed = [s for s in followers if not problem.needs[s] & ~done]
    ready = (*(s for s in state.ready if s != step), *freed)
    return _Partial(done, (*order, step), ready, live, peak)


def _ordered_steps(
    program: Program, steps: Sequence[_Step], order: Sequence[int]
) -> tuple[Step, ...]:
    """Steps in ``order``, each preceded by the views it needs; unused views at the end."""
    views = {item.output: item for item in program.steps if isinstance(item, View)}
    items: list[Step] = []

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
