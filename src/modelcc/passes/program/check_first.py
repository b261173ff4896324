"""Checks indices before a state is written: a run that fails leaves states unchanged.

Before, with a check in the kernel that changes the state::

    state %next over %cache
    launch @update(%place, %row, %cache, %next) in_place(%next over %cache) check below [64]

After::

    launch @update.checks(%place) check below [64]
    launch @update.checked(%place, %row, %cache, %next) in_place(%next over %cache)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.library import Callee
from modelcc.ir.loop import Function
from modelcc.ir.program import Launch, Program, Step, step_tensors
from modelcc.ir.region import Branch, Repeat
from modelcc.passes.loop.split_checks import checks_alone, without_checks
from modelcc.passes.program.order_states import overwritten


def check_first(program: Program) -> Program:
    """``program`` with checks split from steps that write states, and run before them."""
    if not program.states:
        return program
    splitting = _Splitting(program)
    steps = splitting.steps()
    if not splitting.callees:
        return program
    called = {step.callee for step in steps if isinstance(step, Launch)}
    called |= {inner.callee for step in steps for inner in _inside(step)}
    kept = [callee for callee in program.callees if callee.name in called]
    return replace(program, steps=steps, callees=(*kept, *splitting.callees.values()))


def _inside(step: Step) -> Sequence[Launch]:
    match step:
        case Branch():
            inner = (*step.then, *step.other)
        case Repeat():
            inner = step.body
        case _:
            return ()
    found = [s for s in inner if isinstance(s, Launch)]
    return [*found, *(launch for s in inner for launch in _inside(s))]


@dataclass(frozen=True)
class _Split:
    """A launch split in two."""

    checks: Launch
    rest: Launch


class _Splitting:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._bases = program.bases
        self._made = {self._base(output) for output in program.states}
        self._made.update(*overwritten(program).values())
        self.callees: dict[str, Callee] = {}

    def steps(self) -> tuple[Step, ...]:
        """All steps; ``callees`` collects the new functions."""
        found: list[Step] = []
        for step in self._program.steps:
            touched = {*map(self._base, step_tensors(step))}
            split = None
            if isinstance(step, Launch) and step.bounds and touched & self._made:
                split = self._split(step)
            found += [step] if split is None else [split.checks, split.rest]
            if touched & self._made:
                self._made |= {*map(self._base, self._results(step))}
        return tuple(found)

    def _results(self, step: Step) -> Sequence[str]:
        match step:
            case Launch():
                return self._program.results(step)
            case Branch() | Repeat():
                return step.outputs
            case _:
                return ()

    def _base(self, name: str) -> str:
        return self._bases.get(name, name)

    def _split(self, launch: Launch) -> _Split | None:
        function = self._program.callee[launch.callee]
        checks = checks_alone(function) if isinstance(function, Function) else None
        if checks is None or not isinstance(function, Function):
            return None
        pairs = zip(function.parameters, launch.arguments, strict=True)
        given = {parameter.buffer.name: name for parameter, name in pairs}
        read = tuple(given[parameter.buffer.name] for parameter in checks.parameters)
        rest = without_checks(function)
        self.callees |= {checks.name: checks, rest.name: rest}
        first = Launch(checks.name, read, launch.sizes, launch.source, launch.bounds)
        return _Split(first, replace(launch, callee=rest.name, bounds=()))
