"""Abstract execution of loops, to count what they execute.

Trip counts and branches are evaluated where they depend on indices; of a loop with uneven
iterations, samples represent their neighbours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from modelcc.ir.index import Index, evaluate, split_affine, symbols
from modelcc.ir.library import ExternalCall, call_of, meaning_of
from modelcc.ir.loop import (
    Assign,
    BindIndex,
    Const,
    For,
    Function,
    If,
    IndexOf,
    Let,
    Load,
    Predicate,
    Register,
    RoutineCall,
    Stmt,
    Store,
    While,
)
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import CopyTensor, Launch, Program, Step
from modelcc.ir.region import Branch, Repeat
from modelcc.targets.mcu.timing import Counts, Kind

_Known = dict[tuple[str, tuple[int, ...]], Counts]

_SAMPLES = 24
"""Sampled iterations of a loop with uneven iterations."""

_EDGE = 4
"""Of these, the first and the last ones, at borders of images."""


@dataclass
class LoopWalk(ABC):
    """Counts what steps execute; each function with the same sizes is evaluated once."""

    known: _Known = field(default_factory=_Known)

    @abstractmethod
    def own(self, s: Stmt, seen: set[object], varying: frozenset[str] | None) -> Counts:
        """Counts of a statement without those inside; in a loop, if it depends on ``varying``.

        ``seen`` has the values that the block has computed before.
        """

    def prepared(self, body: Sequence[Stmt]) -> Sequence[Stmt]:
        """A block after the compiler's simplifications."""
        return body

    def once(self, loop: For) -> Counts:
        """Counts of loop invariants."""
        return Counter()

    def turn(self, loop: For, trips: int) -> Counts:
        """Counts of an iteration besides the body."""
        return Counter()

    def call(self, arguments: int) -> Counts:
        """Counts of a call besides the callee."""
        return Counter()

    def routine_call(self, s: RoutineCall) -> Counts:
        """Counts of a routine's call."""
        return self.call(len(s.arguments) + len(s.sizes))

    def moved(self, size: int, read: bool, known: bool) -> Counts:
        """Bytes that are copied, or set if they are not ``read``; ``known``: a compile-time
        constant size."""
        return Counter()

    def function(self, function: Function, sizes: tuple[int, ...]) -> Counts:
        """Counts of one call."""
        key = function.name, sizes
        if key not in self.known:
            self.known[key] = self.body(function, dict(zip(function.sizes, sizes, strict=False)))
        return self.known[key]

    def external(self, call: ExternalCall) -> Counts | None:
        """Counts of a library's function; None: those of its semantics."""
        return None

    def body(self, function: Function, env: Mapping[str, int]) -> Counts:
        """Counts of a function's body."""
        return self._block(function.body, env, None)

    def steps(self, steps: Sequence[Step], program: Program, env: Mapping[str, int]) -> Counts:
        """Counts of several steps."""
        return sum((self.step(step, program, env) for step in steps), Counter[Kind]())

    def step(self, step: Step, program: Program, env: Mapping[str, int]) -> Counts:
        """Counts of one step; of two branches, the more expensive one."""
        match step:
            case Launch():
                sizes = tuple(evaluate(size, env) for size in step.sizes)
                callee = program.callee[step.callee]
                call = call_of(callee)
                made = None if call is None else self.external(call)
                found = self.function(meaning_of(callee), sizes) if made is None else made
                return found + self.call(len(step.arguments) + len(sizes))
            case CopyTensor():
                return self.moved(evaluate(program.types[step.target].bytes, env), True, False)
            case Branch():
                sides = (self.steps(side, program, env) for side in (step.then, step.other))
                return max(sides, key=lambda counts: counts.total())
            case Repeat():
                trips = 1 if step.trips is None else evaluate(step.trips, env)
                inside = ({**env, step.counter: n} for n in range(trips))
                runs = (self.steps(step.body, program, each) for each in inside)
                return sum(runs, Counter[Kind]())
            case _:
                return Counter()

    def _block(
        self, body: Sequence[Stmt], env: Mapping[str, int], varying: frozenset[str] | None
    ) -> Counts:
        inside, seen, total = dict(env), set[object](), Counter[Kind]()
        for s in self.prepared(body):
            total += self.own(s, seen, varying)
            total += self._inner(s, inside, varying)
        return total

    def _inner(self, s: Stmt, env: dict[str, int], varying: frozenset[str] | None) -> Counts:
        """Counts of the statements in ``s``, and of its callees."""
        match s:
            case For():
                return self._loop(s, env)
            case If():
                return self._branch(s, env, varying)
            case While():
                return self._block(s.body, env, varying)
            case RoutineCall():
                sizes = tuple(evaluate(size, env) for size in s.sizes)
                return self.function(s.routine, sizes) + self.routine_call(s)
            case BindIndex(value=IndexOf(index=index)) if symbols(index) <= {*env}:
                env[s.symbol] = evaluate(index, env)
            case BindIndex():
                env[s.symbol] = 0  # depends on data
            case _:
                pass
        return Counter()

    def _branch(self, s: If, env: Mapping[str, int], varying: frozenset[str] | None) -> Counts:
        condition = s.condition
        if isinstance(condition, Predicate):
            holds = all(one.holds(env) for one in condition.conditions)
            return self._block(s.then if holds else s.other, env, varying)
        if s.rare:
            return self._block(s.other, env, varying)
        sides = [self._block(side, env, varying) for side in (s.then, s.other)]
        both = sides[0] + sides[1]
        return _times(both, 0.5)

    def _loop(self, loop: For, env: Mapping[str, int]) -> Counts:
        start, stop = evaluate(loop.start, env), evaluate(loop.stop, env)
        trips = max(0, -(-(stop - start) // loop.step))
        moved = moved_bytes(loop)
        if moved is not None:
            known = not symbols(loop.start) and not symbols(loop.stop)
            return self.moved(trips * moved[0], moved[1], known)
        places = _places(trips, _is_uneven(loop))
        varying, total = set_in(loop), self.once(loop)
        for place, weight in zip(places, _weights(places, trips), strict=True):
            inside = {**env, loop.variable: start + place * loop.step}
            run = self._block(loop.body, inside, varying)
            total += _times(run, weight)
        return total + _times(self.turn(loop, trips), trips)


def _times(counts: Counts, factor: float) -> Counts:
    found: Counts = Counter()
    for kind, count in counts.items():
        found[kind] = round(factor * count)
    return found


def set_in(loop: For) -> frozenset[str]:
    """Names set in an iteration: indices, values and memory."""
    found = {loop.variable}
    for s in statements(loop.body):
        match s:
            case For():
                found.add(s.variable)
            case Let() | Register() | Assign():
                found.add(s.name)
            case BindIndex():
                found.add(s.symbol)
            case Store():
                found.add(s.buffer)
            case RoutineCall():
                found.update(argument.buffer for argument in s.arguments)
            case _:
                pass
    return frozenset(found)


def moved_bytes(loop: For) -> tuple[int, bool] | None:
    """For a loop that only copies contiguous elements, or sets them: bytes of one, and whether it
    reads them."""
    if len(loop.body) != 1 or not isinstance(loop.body[0], Store):
        return None
    store = loop.body[0]
    value, rows = store.value, [store.offset]
    if isinstance(value, Load):
        rows.append(value.offset)
    elif not isinstance(value, Const):
        return None
    in_a_row = loop.step == 1 and all(_moves_by_one(row, loop.variable) for row in rows)
    return (value.dtype.bytes, isinstance(value, Load)) if in_a_row else None


def _moves_by_one(offset: Index, variable: str) -> bool:
    found = split_affine(offset, (variable,))
    return found is not None and found[0][variable] == 1


def _is_uneven(loop: For) -> bool:
    """Whether iterations differ in what they execute: conditions, bounds or sizes depend on the
    variable."""
    names = {loop.variable}
    for s in statements(loop.body):
        asked: list[Index] = []
        match s:
            case BindIndex(value=IndexOf(index=index)) if names & symbols(index):
                names.add(s.symbol)
            case For():
                asked = [s.start, s.stop]
            case If(condition=Predicate(conditions=conditions)):
                asked = [side for c in conditions for side in (c.left, c.right)]
            case RoutineCall():
                asked = [*s.sizes]
            case _:
                pass
        if any(names & symbols(index) for index in asked):
            return True
    return False


def _places(trips: int, uneven: bool) -> Sequence[int]:
    """Iterations to sample."""
    if not uneven:
        return range(min(1, trips))
    if trips <= _SAMPLES:
        return range(trips)
    inner = _SAMPLES - 2 * _EDGE
    spread = (_EDGE + round((n + 0.5) * (trips - 2 * _EDGE) / inner) for n in range(inner))
    return sorted({*range(_EDGE), *spread, *range(trips - _EDGE, trips)})


def _weights(places: Sequence[int], trips: int) -> list[float]:
    """How many iterations each of the sampled ``places`` represents: the nearest ones."""
    if not places:
        return []
    edges = [(a + b + 1) / 2 for a, b in pairwise(places)]
    ends = [0.0, *edges, float(trips)]
    return [after - before for before, after in pairwise(ends)]
