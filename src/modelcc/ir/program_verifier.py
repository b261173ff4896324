"""Checks that host programs are well formed: names, types, launches, memory, and lifetimes.

Properties that depend on named dimensions are checked for a few values of these: wrong for one is
wrong.  :mod:`modelcc.ir.program_walk` traverses the steps with these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, evaluate, substitute
from modelcc.ir.library import Callee, LibraryFunction, call_of, meaning_of
from modelcc.ir.library_verifier import verify_library_function
from modelcc.ir.loop import Function, Parameter
from modelcc.ir.loop_traversal import arrived_at, checks_in
from modelcc.ir.loop_verifier import verify_functions
from modelcc.ir.placement_verifier import require_symbols, verify_placement
from modelcc.ir.program import (
    Allocate,
    CopyTensor,
    Launch,
    Placement,
    Program,
    Step,
    Transfer,
    counters,
    own_tensors,
)
from modelcc.ir.program_contents import Values
from modelcc.ir.program_walk import step_place, walk_steps
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.region_verifier import verify_carry, verify_condition, verify_states, verify_view
from modelcc.ir.tensor import ReadSize, View
from modelcc.ir.types import I64

SAMPLES = (0, 1, 6)
"""Values of the named dimensions above their least ones."""


def verify_program(program: Program, before: Program | None = None) -> None:
    """Raise :class:`ModelError` naming the first tensor or step that breaks a rule of programs.

    Kernels verify; launches fit their kernels; tensors that a step reads have been written, and
    not been overwritten since.  With a placement tensors are within the arena at multiples of 64
    bytes, and all are placed; without one branches and loops return what they compute.

    ``before`` is a program that is known to be well formed: kernels that it has as well are not
    checked again, nor are the same steps with kernels of the same signatures.
    """
    if program is before:
        return
    _verify_callees(program, before)
    samples = _samples(program)
    dynamic = frozenset(program.read_sizes)
    inner = dynamic | counters(program.steps).keys()
    known = frozenset((*samples[0], *inner))
    for name, type in program.types.items():
        for index in type.shape:
            require_symbols(index, known, (program.name, name))
    if program.placement is not None:
        verify_placement(program, program.placement, samples, inner, known)
    for name in (*program.inputs, *program.outputs, *program.constants, *program.arrivals):
        _verify_named(program, (name,), (program.name,))
    given = program.inputs, program.outputs
    verify_states(program.states, *given, program.types, (program.name,))
    verifier = _ProgramVerifier(program)
    verifier.steps(program.steps, frozenset(samples[0]) - dynamic)
    if before is None or not _runs_alike(program, before):
        for values in samples:
            walk_steps(program, values)


def _verify_callees(program: Program, before: Program | None) -> None:
    old: Mapping[str, Callee] = {} if before is None else before.callee
    names = program.callee.keys()
    if len(names) != len(program.callees):
        verify_functions(tuple(map(meaning_of, program.callees)))
    changed = [f for f in program.callees if not _does_the_same(f, old.get(f.name))]
    verify_functions(tuple(map(meaning_of, changed)))
    for callee in changed:
        if isinstance(callee, LibraryFunction):
            verify_library_function(callee)


def _does_the_same(callee: Callee, before: Callee | None) -> bool:
    """Whether only alignments and names of sources differ.  Bodies are expensive to compare:
    another object counts as changed."""
    if before is None or meaning_of(callee).body is not meaning_of(before).body:
        return False
    if call_of(callee) != call_of(before):
        return False
    return callee.sizes == before.sizes and _unaligned(callee) == _unaligned(before)


def _unaligned(callee: Callee) -> list[Parameter]:
    return [replace(p, buffer=replace(p.buffer, align=1)) for p in callee.parameters]


def _runs_alike(program: Program, before: Program) -> bool:
    """Whether steps access the same memory in the same order, whatever their kernels compute."""
    same = (
        program.steps is before.steps
        and program.types is before.types
        and program.placement is before.placement
        and program.dims is before.dims
        and program.states == before.states
        and program.arrivals == before.arrivals
    )
    return same and all(
        new.parameters == old.parameters and new.sizes == old.sizes
        for new, old in zip(program.callees, before.callees, strict=True)
    )


def _samples(program: Program) -> tuple[Values, ...]:
    """Some assignments of values to all symbols."""
    known = set(program.dims)
    placement = program.placement or Placement({})
    for definition in placement.definitions:
        require_symbols(definition.value, known, (program.name, definition.symbol))
        if definition.symbol in known:
            raise ModelError(f"'{definition.symbol}' is already defined", (program.name,))
        known.add(definition.symbol)
    require_symbols(placement.arena, known, (program.name, "arena"))
    samples: list[Values] = []
    for more in SAMPLES:
        values = _dimensions(program.dims, more)
        for definition in placement.definitions:
            values[definition.symbol] = evaluate(definition.value, values)
        if values not in samples:
            samples.append(values)
    return tuple(samples)


def _dimensions(dims: Bounds, more: int) -> dict[str, int]:
    values: dict[str, int] = {}
    for position, (name, known) in enumerate(dims.items()):
        low = 1 if known.lo is None else substitute(known.lo, values)
        high = None if known.hi is None else substitute(known.hi, values)
        value = (low if isinstance(low, int) else 1) + more * (position + 1)
        values[name] = min(value, high) if isinstance(high, int) else value
    return values


def _verify_named(program: Program, names: Iterable[str], where: tuple[str, ...]) -> None:
    for name in names:
        if name not in program.types:
            raise ModelError(f"there is no tensor '{name}'", where)


class _ProgramVerifier:
    """Checks the steps of one program; ``known`` are the index symbols that have a value."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._placed = program.placement is not None
        self._given = {"input": {*program.inputs}, "constant": {*program.constants}}
        self._checks: dict[str, int] = {}

    def steps(self, steps: Sequence[Step], known: frozenset[str]) -> None:
        """Check steps and their inner steps in order."""
        for step in steps:
            where = step_place(step)
            _verify_named(self._program, own_tensors(step), where)
            touched = () if isinstance(step, Launch) else own_tensors(step)
            if met := {*touched}.intersection(self._program.arrivals):
                raise ModelError(f"'{min(met)}' is for arrivals alone", where)
            if isinstance(step, View) if self._placed else isinstance(step, CopyTensor | Allocate):
                planned = "already" if self._placed else "not yet"
                raise ModelError(f"memory is {planned} planned", where)
            if isinstance(step, ReadSize):
                known = self._read(step, known, where)
            else:
                self._step(step, known, where)

    def _step(self, step: Step, known: frozenset[str], where: tuple[str, ...]) -> None:
        match step:
            case Launch():
                self._launch(step, known, where)
            case View():
                verify_view(step, self._program.types, self._program.dims, where)
            case Allocate():
                require_symbols(step.size, known, where)
            case Branch():
                self._branch(step, known, where)
            case Repeat():
                self._loop(step, known, where)
            case CopyTensor() | ReadSize() | Transfer():
                pass

    def _read(
        self, step: ReadSize, known: frozenset[str], where: tuple[str, ...]
    ) -> frozenset[str]:
        """``known`` with the symbols that the step reads."""
        program = self._program
        found = program.types[step.tensor]
        if found.dtype != I64:
            raise ModelError(f"sizes are read from i64 elements, not from {found}", where)
        for name in step.symbols:
            if name in known:
                raise ModelError(f"'{name}' is already defined", where)
            if name not in program.dims:
                raise ModelError(f"symbol '{name}' has no bounds", where)
        known |= frozenset(step.symbols)
        for name in step.symbols:
            for end in (program.dims[name].lo, program.dims[name].hi):
                require_symbols(0 if end is None else end, known, where)
        for constraint in step.requires:
            for side in (constraint.left, constraint.right):
                require_symbols(side, known, where)
        return known

    def _branch(self, branch: Branch[Step], known: frozenset[str], where: tuple[str, ...]) -> None:
        verify_condition(branch.condition, self._program.types, where)
        for steps in (branch.then, branch.other):
            self.steps(steps, known)
            self._verify_written(branch.outputs, steps, where)

    def _loop(self, loop: Repeat[Step], known: frozenset[str], where: tuple[str, ...]) -> None:
        if loop.counter in known:
            raise ModelError(f"'{loop.counter}' is already defined", where)
        if loop.trips is None and loop.condition is None:
            raise ModelError("the loop has neither a bound nor a condition", where)
        if loop.trips is not None:
            require_symbols(loop.trips, known, where)
        if loop.condition is not None:
            verify_condition(loop.condition, self._program.types, where)
        for carry in loop.carries:
            verify_carry(carry, self._program.types, where)
        self.steps(loop.body, known | {loop.counter})
        made = (*(carry.next for carry in loop.carries), *loop.filled)
        self._verify_written(made, loop.body, where)

    def _verify_written(
        self, names: Sequence[str], steps: Sequence[Step], where: tuple[str, ...]
    ) -> None:
        """A region's outputs are written in it."""
        if not names:
            return
        if self._placed:
            raise ModelError(f"memory is already planned, and hands on '{names[0]}'", where)
        written: set[str] = set()
        for step in steps:
            if isinstance(step, Launch):
                written.update(self._program.results(step))
            elif isinstance(step, Branch | Repeat):
                written.update(step.outputs)
        missing = next((name for name in names if name not in written), None)
        if missing is not None:
            raise ModelError(f"no step within computes '{missing}'", where)

    def _launch(self, step: Launch, known: frozenset[str], where: tuple[str, ...]) -> None:
        program = self._program
        callee = program.callee.get(step.callee)
        if callee is None:
            raise ModelError("there is no kernel of this name", where)
        for size in (*step.sizes, *(bound.extent for bound in step.bounds)):
            require_symbols(size, known, where)
        function = meaning_of(callee)
        counts = (len(step.arguments), len(step.sizes))
        wanted = (len(function.parameters), len(function.sizes))
        if counts != wanted:
            message = f"the kernel takes {wanted[0]} tensors and {wanted[1]} sizes"
            raise ModelError(f"{message}, not {counts[0]} and {counts[1]}", where)
        if len(step.bounds) != self._checks_in(function):
            message = f"the kernel has {self._checks_in(function)} checks, not {len(step.bounds)}"
            raise ModelError(message, where)
        for parameter, name in zip(function.parameters, step.arguments, strict=True):
            self._argument(parameter, name, where)
        self._verify_arrivals(function, step, where)
        self._verify_apart(function, step, where)
        written = program.results(step)
        for name in (*(output for output, _ in step.in_place), *step.partial):
            if name not in written:
                raise ModelError(f"the kernel does not write '{name}'", where)

    def _verify_arrivals(self, function: Function, step: Launch, where: tuple[str, ...]) -> None:
        """Counters of arrivals are 0 again only if they are used for nothing else."""
        if self._program.arrivals:
            arrived = arrived_at(function)
            for parameter, name in zip(function.parameters, step.arguments, strict=True):
                if name in self._program.arrivals and parameter.buffer.name not in arrived:
                    message = f"'{name}' is for arrivals, and none are at %{parameter.buffer.name}"
                    raise ModelError(message, where)

    def _checks_in(self, function: Function) -> int:
        found = self._checks.get(function.name)
        if found is None:
            found = self._checks[function.name] = checks_in(function)
        return found

    def _verify_apart(self, function: Function, step: Launch, where: tuple[str, ...]) -> None:
        """A kernel that writes a state over its input declares that the two may alias."""
        states = self._program.updated
        pairs = zip(function.parameters, step.arguments, strict=True)
        alone = {name for parameter, name in pairs if not parameter.shared}
        for output in (n for n in self._program.results(step) if n in states):
            over = states[output]
            if over in step.arguments and (output in alone or over in alone):
                message = f"'{output}' is in the memory of '{over}', which the kernel does not know"
                raise ModelError(message, where)

    def _argument(self, parameter: Parameter, name: str, where: tuple[str, ...]) -> None:
        buffer, type = parameter.buffer, self._program.types[name]
        if buffer.dtype not in (type.dtype, type.dtype.storage):
            message = f"%{buffer.name} has elements of {buffer.dtype}, but '{name}' is {type}"
            raise ModelError(message, where)
        if not parameter.mutable:
            return
        base = self._program.bases.get(name, name)
        for kind, names in self._given.items():
            if base in names:
                raise ModelError(f"'{name}' is an {kind} and cannot be written", where)
