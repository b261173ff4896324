"""A linear numbering of a program's steps, and live ranges of tensors.

Calls, and reads of sizes, are numbered in the order of the text.  A branch takes a number before
its sides, one after the other, for reading its condition; a loop takes one before its body, to set
its states, and one after it::

    0  call @a(%x, %h)                      h: 0 … 4, for every iteration reads it
    1  repeat [t < 8] carry(%s = …) {         s: 1 … 2
    2    call @b(%s, %h, %n)                n: 2 … 3
    3    call @c(%n, %m)
    4  }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from modelcc.ir.index import Bounds
from modelcc.ir.program import Allocate, CopyTensor, Launch, Program, Step, Transfer
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View

Call: TypeAlias = Launch | ReadSize


@dataclass(frozen=True)
class LoopSpan:
    """A loop and its numbers: before its body and after it."""

    loop: Repeat[Step]
    begin: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """``calls`` by number; ``touches``: numbers at which tensors are accessed, views counting as
    their base; ``loops``, inner ones first; ``end`` is the first unused number."""

    calls: dict[int, Call] = field(default_factory=dict[int, "Call"])
    touches: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    bases: Mapping[str, str] = field(default_factory=dict[str, str])
    loops: tuple[LoopSpan, ...] = ()
    end: int = 0

    def bounds(self, dims: Bounds) -> Bounds:
        """``dims`` and the counters of all loops."""
        bounds = dict(dims)
        for span in reversed(self.loops):
            bounds = span.loop.inside(bounds)
        return bounds

    @cached_property
    def read_at(self) -> Mapping[str, int]:
        """The number of the last read of each symbol."""
        reads = ((n, call) for n, call in self.calls.items() if isinstance(call, ReadSize))
        return {name: number for number, call in reads for name in call.symbols}

    def needed(self, base: str, given: bool = False) -> tuple[int, int] | None:
        """First and last number at which the value of a tensor, not a view, is needed.

        A tensor used both inside and outside of a loop is needed in all of its iterations; so is
        one that is ``given`` before the first step.
        """
        at = self.touches.get(base)
        if not at:
            return None
        at = [-1, *at] if given else at
        first, last = min(at), max(at)
        for span in self.loops:
            inside = any(span.begin < p < span.end for p in at)
            outlives = first < span.begin or last > span.end or base in span.loop.filled
            if inside and outlives:
                first, last = min(first, span.begin), max(last, span.end)
        return first, last


def timeline(program: Program) -> Timeline:
    """The timeline of ``program``."""
    writer = _StepNumbering(program.bases)
    writer.steps(program.steps)
    return Timeline(writer.calls, writer.touches, program.bases, tuple(writer.loops), writer.now)


class _StepNumbering:
    def __init__(self, bases: Mapping[str, str]) -> None:
        self._bases = bases
        self.calls: dict[int, Call] = {}
        self.touches: dict[str, list[int]] = {}
        self.loops: list[LoopSpan] = []
        self.now = 0

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Launch() | ReadSize():
                    self.calls[self.now] = step
                    self._touch(*step.arguments)
                case Transfer():
                    self._touch(step.tensor)
                case Branch():
                    self._touch(step.condition)
                    self.steps(step.then)
                    self.steps(step.other)
                case Repeat():
                    self._loop(step)
                case View() | CopyTensor() | Allocate():
                    pass

    def _loop(self, loop: Repeat[Step]) -> None:
        begin = self.now
        self._touch(*(n for c in loop.carries for n in (c.initial, c.state)))
        self.steps(loop.body)
        self.loops.append(LoopSpan(loop, begin, self.now))
        self._touch(*(n for c in loop.carries for n in (c.next, c.last)))

    def _touch(self, *names: str) -> None:
        for name in names:
            self.touches.setdefault(self._bases.get(name, name), []).append(self.now)
        self.now += 1
