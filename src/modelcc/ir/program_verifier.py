"""Checks that host programs are well formed: names, bindings, launches, and lifetimes.

What depends on named dimensions is checked for a few values of them: wrong for one is wrong.
:mod:`modelcc.ir.program_walk` goes through the steps with these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, Index, evaluate, substitute, symbols
from modelcc.ir.loop import Function, Parameter
from modelcc.ir.loop_traversal import checks_in
from modelcc.ir.loop_verifier import verify_functions
from modelcc.ir.program import (
    Allocate,
    Binding,
    CopyTensor,
    Launch,
    Program,
    Step,
    counters,
)
from modelcc.ir.program_contents import Values, require_inside
from modelcc.ir.program_walk import step_place, walk_steps
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize
from modelcc.ir.types import BOOL, I64

SAMPLES = (0, 1, 6)
"""How far above their least values the named dimensions are taken."""


def verify_program(program: Program) -> None:
    """Raise :class:`ModelError` naming the first binding or step that breaks a rule of programs.

    Kernels verify; launches fit their kernels; tensors lie within the arena at multiples of 64
    bytes; what a step reads has been written and no tensor that overlaps it was written since.
    """
    verify_functions(program.functions)
    samples = _samples(program)
    late = frozenset(program.read_sizes)
    inner = late | counters(program.steps).keys()
    for index in (program.arena, *(d.value for d in program.definitions)):
        if symbols(index) & late:
            raise ModelError(f"{index} is needed before sizes are read", (program.name,))
    known = frozenset((*samples[0], *inner))
    for binding in program.bindings.values():
        _verify_binding(program, binding, samples, inner, known)
    for name in (*program.inputs, *program.outputs):
        if name not in program.bindings:
            raise ModelError(f"'{name}' has no binding", (program.name,))
    _verify_steps(program, program.steps, frozenset(samples[0]) - late)
    for values in samples:
        walk_steps(program, values)


def _samples(program: Program) -> tuple[Values, ...]:
    """Some values of all symbols."""
    known = set(program.dims)
    for definition in program.definitions:
        _require_symbols(definition.value, known, (program.name, definition.symbol))
        if definition.symbol in known:
            raise ModelError(f"'{definition.symbol}' is already defined", (program.name,))
        known.add(definition.symbol)
    _require_symbols(program.arena, known, (program.name, "arena"))
    samples: list[Values] = []
    for more in SAMPLES:
        values = _dimensions(program.dims, more)
        for definition in program.definitions:
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


def _require_symbols(index: Index, known: Set[str], where: tuple[str, ...]) -> None:
    if not symbols(index) <= known:
        raise ModelError(f"index symbol '{min(symbols(index) - known)}' is not defined", where)


def _verify_binding(
    program: Program,
    binding: Binding,
    samples: Sequence[Values],
    inner: frozenset[str],
    known: frozenset[str],
) -> None:
    where = (program.name, binding.name)
    for index in (*binding.type.shape, binding.offset):
        _require_symbols(index, known, where)
    owners = {
        "input": program.inputs,
        "output": program.outputs,
        "constant": tuple(program.constants),
    }
    if binding.place != "arena":
        if binding.name not in owners[binding.place]:
            raise ModelError(f"the program has no {binding.place} of this name", where)
        return
    if binding.segment:
        if binding.segment not in program.allocated:
            raise ModelError(f"segment '{binding.segment}' is never allocated", where)
        return
    if inner.isdisjoint(n for i in (*binding.type.shape, binding.offset) for n in symbols(i)):
        for values in samples:
            require_inside(program, binding, values)


# --- steps


def _verify_steps(program: Program, steps: Sequence[Step], known: frozenset[str]) -> None:
    functions = {f.name: f for f in program.functions}
    for step in steps:
        if isinstance(step, ReadSize):
            known = _verify_read(program, step, known)
        else:
            _verify_step(program, step, functions, known)


def _verify_read(program: Program, step: ReadSize, known: frozenset[str]) -> frozenset[str]:
    """``known`` with the symbols that the step reads."""
    where = step_place(step)
    _verify_named(program, (step.tensor,), where)
    found = program.bindings[step.tensor].type
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
            _require_symbols(0 if end is None else end, known, where)
    for demand in step.requires:
        for side in (demand.left, demand.right):
            _require_symbols(side, known, where)
    return known


def _verify_step(
    program: Program, step: Step, functions: Mapping[str, Function], known: frozenset[str]
) -> None:
    where = step_place(step)
    match step:
        case Launch():
            _verify_named(program, step.arguments, where)
            function = functions.get(step.function)
            if function is None:
                raise ModelError("there is no kernel of this name", where)
            for size in (*step.sizes, *(bound.extent for bound in step.bounds)):
                _require_symbols(size, known, where)
            _verify_launch(program, step, function)
        case CopyTensor():
            _verify_named(program, (step.target, step.source_tensor), where)
        case Allocate():
            _require_symbols(step.size, known, where)
        case ReadSize():
            pass
        case Branch():
            _verify_condition(program, step.condition, where)
            _verify_steps(program, step.then, known)
            _verify_steps(program, step.other, known)
        case Repeat():
            _verify_loop(program, step, known)


def _verify_loop(program: Program, loop: Repeat[Step], known: frozenset[str]) -> None:
    where = step_place(loop)
    if loop.counter in known:
        raise ModelError(f"'{loop.counter}' is already defined", where)
    if loop.trips is None and loop.condition is None:
        raise ModelError("the loop has neither a bound nor a condition", where)
    if loop.trips is not None:
        _require_symbols(loop.trips, known, where)
    if loop.condition is not None:
        _verify_condition(program, loop.condition, where)
    _verify_steps(program, loop.body, known | {loop.counter})


def _verify_named(program: Program, names: Iterable[str], where: tuple[str, ...]) -> None:
    for name in names:
        if name not in program.bindings:
            raise ModelError(f"tensor '{name}' has no binding", where)


def _verify_condition(program: Program, name: str, where: tuple[str, ...]) -> None:
    _verify_named(program, (name,), where)
    type = program.bindings[name].type
    if type.dtype != BOOL or type.elements != 1:
        raise ModelError(f"condition '{name}' must be one bool, not {type}", where)


def _verify_launch(program: Program, step: Launch, function: Function) -> None:
    counts = (len(step.arguments), len(step.sizes))
    wanted = (len(function.parameters), len(function.sizes))
    if counts != wanted:
        raise ModelError(
            f"the kernel takes {wanted[0]} tensors and {wanted[1]} sizes, not {counts[0]} and "
            f"{counts[1]}",
            step_place(step),
        )
    if len(step.bounds) != checks_in(function):
        message = f"the kernel has {checks_in(function)} checks, not {len(step.bounds)}"
        raise ModelError(message, step_place(step))
    for parameter, name in zip(function.parameters, step.arguments, strict=True):
        _verify_argument(parameter, program.bindings[name], step_place(step))


def _verify_argument(parameter: Parameter, binding: Binding, where: tuple[str, ...]) -> None:
    buffer = parameter.buffer
    if buffer.dtype not in (binding.type.dtype, binding.type.dtype.storage):
        raise ModelError(
            f"%{buffer.name} has elements of {buffer.dtype}, but '{binding.name}' is "
            f"{binding.type}",
            where,
        )
    if parameter.mutable and binding.place in ("input", "constant"):
        raise ModelError(f"'{binding.name}' is an {binding.place} and cannot be written", where)
