"""Loops over a graph body that is made of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.op import Builder
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.comparison import Greater
from modelcc.ops.control import At, If, Loop
from modelcc.ops.runtime_size import ReadSize

COUNTER = "iteration"
"""The counter of a loop; its value is an index in the body."""


@dataclass(frozen=True)
class Iteration:
    """What a body sees: its builder, the counter, and captured values by name."""

    build: GraphBuilder
    counter: Index
    captured: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.captured[name]

    def __contains__(self, name: str) -> bool:
        return name in self.captured

    def get(self, name: str) -> Value | None:
        """A captured value, if it is there."""
        return self.captured.get(name)

    def backwards(self, trips: Index) -> Iteration:
        """The same, with the counter from the last of ``trips`` down."""
        return replace(self, counter=trips - 1 - self.counter)

    def now(self, name: str, axis: int = 0) -> Value:
        """What a captured value holds at the counter along ``axis``, which is gone."""
        return of(At(axis, self.counter), self.captured[name])

    def if_any(
        self, count: Value, state: Value, step: Callable[[Iteration, Value], Value]
    ) -> Value:
        """``step`` of ``state`` if the only element of ``count`` is not 0, else ``state``."""
        given = {**self.captured, "state": state}
        sides: list[Graph] = []
        for chosen in (True, False):
            build = GraphBuilder("branch", {str(self.counter): Range(0, None)})
            inside = {n: Value(build, build.input(n, v.type)) for n, v in given.items()}
            old = inside.pop("state")
            new = step(Iteration(build, self.counter, inside), old) if chosen else old
            sides.append(build.build([new.name]))
        condition = of(Reshape(()), of(Greater(), count, count.lift(0)))
        operands = (v.name for v in (condition, *given.values()))
        return Value(self.build, self.build.emit(If(*sides), *operands))

    def size(self, count: Value, most: Index) -> Index:
        """The only element of ``count``, an i64 that a run computes, as an index."""
        name = self.build.dimension(f"{COUNTER}.size", Range(0, most))
        self.build.emit(ReadSize((name,)), count.name)
        return Sym(name)


Body = Callable[[Iteration, list[Value]], tuple[Sequence[Value], Sequence[Value]]]
"""Next states and slices of an iteration, from the states before it."""


def iterated(
    build: Builder,
    trips: Index,
    states: Sequence[Value],
    captured: Mapping[str, Value | None],
    body: Body,
    axes: Sequence[int] = (),
    counter: str = COUNTER,
    backwards: Sequence[bool] = (),
    conditional: bool = False,
) -> list[Value]:
    """Last states of ``trips`` iterations, then their slices, each stacked along its axis.

    Slices of axes that go ``backwards`` begin at the end.  Captured values that are None are left
    out.  If ``conditional``, the first state is a bool, and
    no iteration starts where it does not hold.
    """
    inner = GraphBuilder("iteration", {counter: Range(0, None)})
    given = {name: value for name, value in captured.items() if value is not None}
    old = [Value(inner, inner.input(f"state{n}", s.type)) for n, s in enumerate(states)]
    inside = {name: Value(inner, inner.input(name, v.type)) for name, v in given.items()}
    new, slices = body(Iteration(inner, Sym(counter), inside), old)
    graph = inner.build([v.name for v in (*new, *slices)])
    turned = tuple(backwards) or (False,) * len(axes)
    loop = Loop(graph, counter, trips, len(states), conditional, tuple(axes), turned)
    names = build.add(loop, *(v.name for v in (*states, *given.values())))
    return [Value(build, name) for name in names]
