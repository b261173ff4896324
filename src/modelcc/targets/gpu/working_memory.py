"""Memory that kernels work in beside their operands and results.

Partial sums are a tensor of the launch's own, which is gone behind it.  Counters that groups arrive
at are 0 before a launch and after it, so that all launches of a block of steps have the same ones.
A kernel clears them where the block begins: they are in the arena of the call, so that calls at the
same time have their own, and one that was broken off leaves nothing to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.index import Sym, ceildiv
from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop import (
    Arrive,
    Buffer,
    Const,
    For,
    Function,
    If,
    Parameter,
    Predicate,
    Store,
)
from modelcc.ir.loop_traversal import statements
from modelcc.ir.naming import Names
from modelcc.ir.program import Launch, Program, Step
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import Condition
from modelcc.ir.types import I32, TensorType

ARRIVALS = "arrivals"

_THREADS = 256


def with_working_memory(program: Program) -> Program:
    """``program`` before memory is planned, whose launches have all that their functions take."""
    names = Names([*program.types, *program.callee])
    giver = _Giver(program.callee, names, names.fresh(f"clear_{ARRIVALS}"))
    steps = giver.steps(program.steps)
    if not giver.types:
        return program
    clearing = (_clearing(giver.clear),) if giver.clears else ()
    types = {**program.types, **giver.types}
    return replace(program, steps=steps, callees=(*program.callees, *clearing), types=types)


@dataclass
class _Giver:
    """Gives launches memory; ``clear`` is the function that clears counters."""

    callees: Mapping[str, Callee]
    names: Names
    clear: str
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    clears: bool = False

    def steps(self, given: Sequence[Step]) -> tuple[Step, ...]:
        """Steps of a block, which clears the counters first that are for the largest launch."""
        sizes = [self._counters(step) for step in given if isinstance(step, Launch)]
        most = max(sizes, default=0)
        if not most:
            return tuple(self._step(step, "") for step in given)
        counters = self.names.fresh(ARRIVALS)
        self.types[counters] = TensorType((most,), I32)
        self.clears = True
        first = Launch(self.clear, (counters,), (most,))
        return (first, *(self._step(step, counters) for step in given))

    def _step(self, step: Step, counters: str) -> Step:
        match step:
            case Launch():
                return self._launch(step, counters)
            case Branch():
                return replace(step, then=self.steps(step.then), other=self.steps(step.other))
            case Repeat():
                return replace(step, body=self.steps(step.body))
            case _:
                return step

    def _launch(self, step: Launch, counters: str) -> Launch:
        given, partial = [*step.arguments], [*step.partial]
        function = meaning_of(self.callees[step.callee])
        arrived = _arrived(function)
        for parameter in function.parameters[len(given) :]:
            buffer = parameter.buffer
            if buffer.name in arrived:
                given.append(counters)
                partial.append(counters)
                continue
            name = self.names.fresh(f"{step.arguments[-1]}.{buffer.name}")
            self.types[name] = TensorType((buffer.size,), buffer.dtype)
            given.append(name)
        return replace(step, arguments=tuple(given), partial=tuple(partial))

    def _counters(self, step: Launch) -> int:
        function = meaning_of(self.callees[step.callee])
        arrived = _arrived(function)
        buffers = (p.buffer for p in function.parameters if p.buffer.name in arrived)
        sizes = [buffer.size for buffer in buffers]
        return max((size for size in sizes if isinstance(size, int)), default=0)


def _arrived(function: Function) -> frozenset[str]:
    """Counters that its groups arrive at."""
    inside = statements(function.body)
    return frozenset(s.counters for s in inside if isinstance(s, Arrive))


def _clearing(name: str) -> Function:
    """The function that sets so many counters to 0."""
    count, group, thread = Sym("n"), Sym("g"), Sym("t")
    place = group * _THREADS + thread
    there = Predicate((Condition(place, "<", count),))
    cleared = If(there, (Store(ARRIVALS, place, Const(0, I32)),))
    threads = For(thread.name, 0, _THREADS, (cleared,), kind="thread")
    grid = For(group.name, 0, ceildiv(count, _THREADS), (threads,), kind="grid")
    counters = Parameter(Buffer(ARRIVALS, I32, count), mutable=True)
    return Function(name, (counters,), (count.name,), (grid,))
