"""Abstract execution of a host program for given dimensions, tracking sizes and memory contents.

A loop of unknown or many iterations is executed for a few: enough to see every parity of its
counter, so that a state alternating between two halves of a buffer is found where it was left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from modelcc.ir.assignment import assignments
from modelcc.ir.condition import Condition
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, evaluate, symbols
from modelcc.ir.library import Callee
from modelcc.ir.loop import Parameter
from modelcc.ir.program import (
    Allocate,
    CopyTensor,
    Launch,
    Program,
    Step,
    Transfer,
    inner_steps,
    own_tensors,
)
from modelcc.ir.program_contents import Contents, DefinedTensors, Values, given_values
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View, size_conditions
from modelcc.ir.types import TensorType

WALKED = 4
"""Loops of at most this many iterations are executed completely."""

TRIED = 16
"""Values tried for each size that a step reads, until its constraints are satisfied."""

ATTEMPTS = 1 << 10
"""Combinations of these that are tried."""


def walk_steps(program: Program, values: Values) -> None:
    """:class:`ModelError` at the first step that is invalid with dimensions ``values``.

    Each tensor read was written, and no tensor that shares bytes with it was written since.
    Tensors with the same offset and size are views of each other; writing a state destroys what it
    replaces.  Steps that no run with these dimensions reaches, because of a constraint, are not
    checked.
    """
    dynamic = frozenset(program.read_sizes)
    walk = _Walk(program, {name: values[name] for name in dynamic})
    values = {name: value for name, value in values.items() if name not in dynamic}
    try:
        values = walk.steps(program.steps, values)
    except _EndOfRun:
        return
    for name in program.outputs:
        if not walk.memory.keeps(name, values):
            raise ModelError(f"output '{name}' is never written", (program.name,))


def step_place(step: Step) -> tuple[str, ...]:
    """Location of ``step`` for messages."""
    match step:
        case Launch():
            what = f"@{step.callee}"
        case View():
            what = f"view '{step.output}'"
        case CopyTensor():
            what = f"copy to '{step.target}'"
        case ReadSize():
            what = f"read of {', '.join(map(repr, step.symbols))}"
        case Transfer():
            what = f"transfer of '{step.tensor}'"
        case Allocate():
            what = f"allocation of '{step.name}'"
        case Branch():
            what = f"branch on '{step.condition}'"
        case Repeat():
            what = f"loop over '{step.counter}'"
    return (*step.source, what)


class _EndOfRun(Exception):  # noqa: N818 - no error: the program says so itself
    """Raised at a constraint on the dimensions that does not hold."""


_LoopState: TypeAlias = tuple[int, frozenset[tuple[str, int]], object, frozenset[tuple[str, int]]]
"""A loop and the state it depends on: values of symbols, memory contents, sizes of segments."""


class _Walk:
    def __init__(self, program: Program, dynamic: Values) -> None:
        self._program = program
        self._dynamic = dynamic
        self._inside = 0
        self._after: dict[_LoopState, tuple[Contents, dict[str, int]]] = {}
        self._mentioned: dict[int, frozenset[str]] = {}
        self.memory = DefinedTensors(program)

    def steps(self, steps: Sequence[Step], values: Values) -> Values:
        """Execute ``steps``; ``values`` with those of the symbols that they read."""
        for step in steps:
            match step:
                case ReadSize():
                    self.memory.access((step.tensor,), (), values, step_place(step))
                    values = {**values, **self._read(step, values)}
                case Allocate():
                    self.memory.sizes[step.name] = evaluate(step.size, values)
                case Launch():
                    self._launch(step, self._program.callee[step.callee], values)
                case View() | Transfer():
                    pass
                case CopyTensor():
                    self._copy(step, values)
                case Branch():
                    self._branch(step, values)
                case Repeat():
                    self._repeat(step, values)
        return values

    def _read(self, step: ReadSize, values: Values) -> Values:
        """Values that satisfy the step's constraints, if some are found easily."""
        constraints = size_conditions(step, self._program.dims)
        wanted = {name: self._dynamic[name] for name in step.symbols}
        sides = {
            evaluate(s, {**values, **wanted}) for c in step.requires for s in (c.left, c.right)
        }
        tried = [sorted({wanted[n], 0, 1, *sides}, reverse=True)[:TRIED] for n in step.symbols]
        found = _chosen(step.symbols, tried, constraints, values)
        if found is None and not step.symbols:
            raise _EndOfRun
        return wanted if found is None else found

    def _launch(self, step: Launch, function: Callee, values: Values) -> None:
        where = step_place(step)
        given = [evaluate(size, values) for size in step.sizes]
        sizes = dict(zip(function.sizes, given, strict=True))
        pairs = list(zip(function.parameters, step.arguments, strict=True))
        for parameter, name in pairs:
            _verify_size(parameter, name, self._program.types[name], sizes, values, where)
        reads = tuple(name for p, name in pairs if not p.mutable)
        self.memory.access(reads, tuple(n for p, n in pairs if p.mutable), values, where)

    def _copy(self, step: CopyTensor, values: Values) -> None:
        where = step_place(step)
        source, target = (
            evaluate(self._program.types[name].bytes, values)
            for name in (step.source_tensor, step.target)
        )
        if source != target:
            raise ModelError(f"cannot copy {source} bytes to {target}{given_values(values)}", where)
        self.memory.access((step.source_tensor,), (step.target,), values, where)

    def _branch(self, step: Branch[Step], values: Values) -> None:
        self.memory.access((step.condition,), (), values, step_place(step))
        before = self.memory.contents
        ends: list[Contents] = []
        for steps in (step.then, step.other):
            self.memory.contents = before.copy()
            outside = self.memory.enter()
            try:
                self.steps(steps, values)
            except _EndOfRun:
                continue  # with these dimensions no run continues after this side
            self.memory.leave(outside, step.outputs, values)
            ends.append(self.memory.contents)
        if not ends:
            raise _EndOfRun
        self.memory.contents = ends[0].merged(ends[-1])

    def _repeat(self, step: Repeat[Step], values: Values) -> None:
        """A loop; an inner one in a state seen before has the same effect."""
        if not self._inside:
            self._iterations(step, values)
            return
        mentioned = mentioned_symbols(self._program, step, self._mentioned)
        known = frozenset((n, v) for n, v in values.items() if n in mentioned)
        memory = self.memory
        state = (id(step), known, memory.contents.regions, frozenset(memory.sizes.items()))
        if state not in self._after:
            self._iterations(step, values)
            self._after[state] = memory.contents, memory.sizes
        contents, sizes = self._after[state]
        memory.contents, memory.sizes = contents.copy(), sizes.copy()

    def _iterations(self, step: Repeat[Step], values: Values) -> None:
        self._inside += 1
        where, outside = step_place(step), self.memory.enter()
        for carry in step.carries:
            self.memory.access((carry.initial,), (carry.state,), values, where)
        try:
            self._walked_iterations(step, values)
        finally:
            self._inside -= 1
        for carry in step.carries:
            self.memory.access((carry.state,), (carry.last,), values, where)
        self.memory.leave(outside, step.outputs, values)

    def _walked_iterations(self, step: Repeat[Step], values: Values) -> None:
        trips = None if step.trips is None else evaluate(step.trips, values)
        handed = (*(carry.state for carry in step.carries), *step.filled)
        for number in _walked(trips):
            inside, outside = {**values, step.counter: number}, self.memory.enter()
            if step.condition is not None:
                self.memory.access((step.condition,), (), inside, step_place(step))
            try:
                self.steps(step.body, inside)
            except _EndOfRun:
                if trips is None or step.condition is not None:
                    return  # there may be no such iteration
                raise
            for carry in step.carries:
                self.memory.access((carry.next,), (carry.state,), inside, step_place(step))
            self.memory.leave(outside, handed, inside)


def _chosen(
    names: Sequence[str],
    tried: Sequence[Sequence[int]],
    constraints: Sequence[Condition],
    values: Values,
) -> Values | None:
    """``values`` of ``names`` among the candidates that satisfy the constraints, if a limited
    number of backtracking steps finds them: the search space is exponential."""
    numbers = dict(zip(names, tried, strict=True))

    def candidates(name: str, known: Values, later: Iterable[Sequence[Condition]]) -> Sequence[int]:
        return numbers[name]

    found = assignments(names, candidates, constraints, values)
    met = next((each for each in islice(found, ATTEMPTS) if each is not None), None)
    return None if met is None else {name: met[name] for name in names}


def _walked(trips: int | None) -> Sequence[int]:
    """Iterations to execute; consecutive ones differ by an odd number."""
    if trips is None:
        return (0, 1)
    if trips <= WALKED:
        return range(trips)
    return (0, 1, trips - 1) if trips % 2 else (0, 1, trips - 2, trips - 1)


def _verify_size(
    parameter: Parameter,
    name: str,
    type: TensorType,
    sizes: Values,
    values: Values,
    where: tuple[str, ...],
) -> None:
    buffer = parameter.buffer
    wanted = evaluate(buffer.size, sizes) * buffer.dtype.bytes
    present = evaluate(type.bytes, values)
    if wanted > present:
        raise ModelError(
            f"%{buffer.name} needs {wanted} bytes, but '{name}' ({type}) has "
            f"{present}{given_values(values)}",
            where,
        )


def mentioned_symbols(
    program: Program, step: Step, known: dict[int, frozenset[str]]
) -> frozenset[str]:
    """Symbols in sizes and offsets of a step and its inner steps; ``known`` memoises those of loops
    and branches, by identity."""
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
