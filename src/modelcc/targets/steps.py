"""The steps of a host program, in any language that a :class:`StepSyntax` prints.

This part is independent of the language: which addresses, sizes and checks precede which step,
their scopes, and the status of a run.

A run receives ``inputs``, ``outputs`` and ``constants``, arrays of buffer addresses in the
program's order, of which those of states' outputs are ignored: they alias their inputs; ``arena``,
aligned to 64 bytes; ``sizes``, the values of ``program.dims`` in order, to which those that are
read from memory are written; ``pool``, null or a thread pool; and, if the program allocates at run
time, ``host``: a function ``allocate(context, which, bytes)`` and its context, where ``which`` is
an index into ``program.allocated``.  The status is 0, 1 + the position of the failed check of sizes
(:func:`modelcc.ir.program.checks`), that of :func:`modelcc.ir.program.index_bounds` for an index
out of range, or :data:`OUT_OF_MEMORY`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index
from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.program import (
    Allocate,
    CopyTensor,
    Launch,
    Place,
    Program,
    Step,
    Transfer,
    checks,
    leaves,
    own_tensors,
    step_tensors,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View, size_conditions

Block: TypeAlias = Callable[[], None]
"""Writes the steps of a branch or loop; their definitions go out of scope at its end."""

OUT_OF_MEMORY = -1
"""The status of a run whose host refuses an allocation."""


class StepSyntax(Protocol):
    """Prints parts of steps; addresses are operands in its language."""

    arena: str
    pool: str

    def clock(self, times: str, position: int) -> None:
        """Records the time in an array."""

    def comment(self, text: str) -> None:
        """A comment."""

    def zeros(self, count: int) -> str:
        """The address of ``count`` i64, initialised to 0, with the lifetime of the run."""
        ...

    def size(self, symbol: str, position: int, read: tuple[str, int] | None) -> None:
        """Defines a symbol by the caller's sizes; or loads it as an i64 from an address, and
        records it there."""

    def define(self, symbol: str, value: Index) -> None:
        """Defines a symbol by an expression of others."""

    def passed(self, name: str, place: Place, position: int) -> str:
        """The address of a tensor passed by the caller."""
        ...

    def within(self, name: str, start: str, offset: Index) -> str:
        """The address of a tensor at ``offset`` bytes from ``start``."""
        ...

    def allocate(self, name: str, which: int, size: Index) -> str:
        """The address returned by the host's allocator; without one the run ends,
        :data:`OUT_OF_MEMORY`."""
        ...

    def require(self, condition: Condition, status: int) -> None:
        """Ends the run with ``status`` unless ``condition`` holds, computed without overflow."""

    def call(self, function: Callee, arguments: Sequence[str | Index]) -> None:
        """Calls a kernel; string arguments are addresses."""

    def leave_if_noted(self, faults: str, number: int, status: int) -> None:
        """Ends the run, with the index in the arena, if check ``number`` of a kernel has failed."""

    def copy(self, target: str, source: str, size: Index) -> None:
        """Copies bytes between addresses that may overlap."""

    def branch(self, condition: str, then: Block, other: Block | None) -> None:
        """One of two blocks, by the bool at an address."""

    def loop(self, step: Repeat[Step], condition: Callable[[], str], body: Block) -> None:
        """The iterations of ``step``, each with an address of its condition, if it has one."""


def write_steps(program: Program, syntax: StepSyntax, times: str = "") -> None:
    """Writes the steps of ``program``, with the time between steps recorded in an array
    ``times``."""
    walk = _StepWalk(program, syntax)
    walk.sizes()
    for position, step in enumerate(program.steps):
        if times:
            syntax.clock(times, position)
        walk.step(step)
    if times:
        syntax.clock(times, len(program.steps))


class _StepWalk:
    """State of the traversal at a step: known addresses, and the number of checks so far."""

    def __init__(self, program: Program, syntax: StepSyntax) -> None:
        self._program = program
        self._syntax = syntax
        self._positions = {name: position for position, name in enumerate(program.dims)}
        self._addresses = ChainMap[str, str]()
        self._sizes_checked = 0
        self._status = len(checks(program))
        launches = (step for step in leaves(program.steps) if isinstance(step, Launch))
        count = 2 * max((len(launch.bounds) for launch in launches), default=0)
        self._faults = syntax.zeros(count) if count else ""

    def sizes(self) -> None:
        dynamic = frozenset(self._program.read_sizes)
        for name, position in self._positions.items():
            if name not in dynamic:
                self._syntax.size(name, position, None)
        for definition in self._program.placed.definitions:
            self._syntax.define(definition.symbol, definition.value)

    def step(self, step: Step) -> None:
        for name in self._ahead(step):
            self._address(name)
        if step.source:
            self._syntax.comment(", ".join(step.source))
        match step:
            case Launch():
                self._launch(step)
            case CopyTensor():
                target, source = self._address(step.target), self._address(step.source_tensor)
                self._syntax.copy(target, source, self._program.types[step.target].bytes)
            case Branch():
                other = self._block(step.other) if step.other else None
                self._syntax.branch(self._address(step.condition), self._block(step.then), other)
            case Repeat():
                self._repeat(step)
            case ReadSize():
                self._read_size(step)
            case Allocate():
                which = self._program.allocated.index(step.name)
                address = self._syntax.allocate(step.name, which, step.size)
                self._addresses[step.name] = address
            case Transfer():
                pass  # a single memory space
            case View():
                raise ValueError(f"view {step.output!r} has no place")

    def _ahead(self, step: Step) -> Sequence[str]:
        """Tensors whose addresses come before a step: of a loop, those invariant in it."""
        if not isinstance(step, Repeat):
            return () if isinstance(step, ReadSize) and not step.symbols else own_tensors(step)
        asked, bindings = self._program.allocated, self._program.placed.bindings
        return [n for n in step_tensors(step) if bindings[n].place != "arena" and n not in asked]

    def _address(self, name: str) -> str:
        if name not in self._addresses:
            binding = self._program.placed.bindings[name]
            if binding.place == "arena":
                start = self._addresses[binding.segment] if binding.segment else self._syntax.arena
                found = self._syntax.within(name, start, binding.offset)
            else:
                position = self._program.position(name)
                found = self._syntax.passed(name, binding.place, position)
            self._addresses[name] = found
        return self._addresses[name]

    def _launch(self, step: Launch) -> None:
        function = self._program.callee[step.callee]
        last = [self._faults] if step.bounds else []
        last += [self._syntax.pool] if parallel_loop(meaning_of(function)) else []
        self._syntax.call(function, [*map(self._address, step.arguments), *step.sizes, *last])
        for number in range(len(step.bounds)):
            self._status += 1
            self._syntax.leave_if_noted(self._faults, number, self._status)

    def _read_size(self, step: ReadSize) -> None:
        for element, name in enumerate(step.symbols):
            read = self._address(step.tensor), element
            self._syntax.size(name, self._positions[name], read)
        for condition in size_conditions(step, self._program.dims):
            self._sizes_checked += 1
            self._syntax.require(condition, self._sizes_checked)

    def _repeat(self, step: Repeat[Step]) -> None:
        outside = self._addresses
        self._addresses = outside.new_child()
        condition = step.condition or ""
        self._syntax.loop(step, lambda: self._address(condition), self._block(step.body))
        self._addresses = outside

    def _block(self, steps: Sequence[Step]) -> Block:
        def write() -> None:
            outside = self._addresses
            self._addresses = outside.new_child()
            for step in steps:
                self.step(step)
            self._addresses = outside

        return write
