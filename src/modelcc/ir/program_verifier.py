"""Checks that host programs are well formed: names, bindings, launches, and lifetimes.

What depends on named dimensions is checked for a few values of them: wrong for one is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from modelcc.ir.index import Bounds, Index, evaluate, substitute, symbols
from modelcc.ir.loop import Function, Parameter
from modelcc.ir.loop_verifier import verify_functions
from modelcc.ir.op import ModelError
from modelcc.ir.program import Binding, CopyTensor, Launch, Program, Step

ALIGNMENT = 64
SAMPLES = (0, 1, 6)
"""How far above their least values the named dimensions are taken."""

Values: TypeAlias = Mapping[str, int]


def verify_program(program: Program) -> None:
    """Raise :class:`ModelError` naming the first binding or step that breaks a rule of programs.

    Kernels verify; launches fit their kernels; tensors lie within the arena at multiples of 64
    bytes; what a step reads has been written and no tensor that overlaps it was written since.
    """
    verify_functions(program.functions)
    samples = _samples(program)
    for binding in program.bindings.values():
        _verify_binding(program, binding, samples)
    for name in (*program.inputs, *program.outputs):
        if name not in program.bindings:
            raise ModelError(f"'{name}' has no binding", (program.name,))
    functions = {f.name: f for f in program.functions}
    for step in program.steps:
        _verify_step(program, step, functions, samples)
    _verify_lifetimes(program, functions, samples)


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


def _require_symbols(index: Index, known: set[str], where: tuple[str, ...]) -> None:
    missing = sorted(symbols(index) - known)
    if missing:
        raise ModelError(f"index symbol '{missing[0]}' is not defined", where)


def _given(values: Values) -> str:
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return f" (with {listed})" if listed else ""


def _verify_binding(program: Program, binding: Binding, samples: Sequence[Values]) -> None:
    where = (program.name, binding.name)
    for index in (*binding.type.shape, binding.offset):
        _require_symbols(index, set(samples[0]), where)
    owners = {
        "input": program.inputs,
        "output": program.outputs,
        "constant": tuple(program.constants),
    }
    if binding.place != "arena":
        if binding.name not in owners[binding.place]:
            raise ModelError(f"the program has no {binding.place} of this name", where)
        return
    for values in samples:
        start, end = _span(binding, values)
        arena = evaluate(program.arena, values)
        if start % ALIGNMENT:
            message = f"offset {start} is no multiple of {ALIGNMENT}{_given(values)}"
            raise ModelError(message, where)
        if start < 0 or end > arena:
            message = f"bytes {start} to {end} lie outside of an arena of {arena}{_given(values)}"
            raise ModelError(message, where)


def _span(binding: Binding, values: Values) -> tuple[int, int]:
    start = evaluate(binding.offset, values)
    return start, start + evaluate(binding.type.bytes, values)


# --- steps


def _place(step: Step) -> tuple[str, ...]:
    what = f"@{step.function}" if isinstance(step, Launch) else f"copy to '{step.target}'"
    return (*step.source, what)


def _verify_step(
    program: Program, step: Step, functions: dict[str, Function], samples: Sequence[Values]
) -> None:
    where = _place(step)
    launched = isinstance(step, Launch)
    for name in step.arguments if launched else (step.target, step.source_tensor):
        if name not in program.bindings:
            raise ModelError(f"tensor '{name}' has no binding", where)
    if launched:
        function = functions.get(step.function)
        if function is None:
            raise ModelError("there is no kernel of this name", where)
        for size in step.sizes:
            _require_symbols(size, set(samples[0]), where)
        _verify_launch(program, step, function, samples)
    else:
        _verify_copy(program, step, samples)


def _verify_copy(program: Program, step: CopyTensor, samples: Sequence[Values]) -> None:
    for values in samples:
        source, target = (
            evaluate(program.bindings[name].type.bytes, values)
            for name in (step.source_tensor, step.target)
        )
        if source != target:
            message = f"cannot copy {source} bytes to {target}{_given(values)}"
            raise ModelError(message, _place(step))


def _verify_launch(
    program: Program, step: Launch, function: Function, samples: Sequence[Values]
) -> None:
    counts = (len(step.arguments), len(step.sizes))
    wanted = (len(function.parameters), len(function.sizes))
    if counts != wanted:
        raise ModelError(
            f"the kernel takes {wanted[0]} tensors and {wanted[1]} sizes, not {counts[0]} and "
            f"{counts[1]}",
            _place(step),
        )
    for parameter, name in zip(function.parameters, step.arguments, strict=True):
        binding = program.bindings[name]
        _verify_argument(parameter, binding, _place(step))
        for values in samples:
            given = [evaluate(size, values) for size in step.sizes]
            sizes = dict(zip(function.sizes, given, strict=True))
            _verify_size(parameter, binding, sizes, values, _place(step))


def _verify_argument(parameter: Parameter, binding: Binding, where: tuple[str, ...]) -> None:
    buffer = parameter.buffer
    if binding.type.dtype != buffer.dtype:
        raise ModelError(
            f"%{buffer.name} has elements of {buffer.dtype}, but '{binding.name}' is "
            f"{binding.type}",
            where,
        )
    if parameter.mutable and binding.place in ("input", "constant"):
        raise ModelError(f"'{binding.name}' is an {binding.place} and cannot be written", where)


def _verify_size(
    parameter: Parameter,
    binding: Binding,
    sizes: Values,
    values: Values,
    where: tuple[str, ...],
) -> None:
    buffer = parameter.buffer
    wanted = evaluate(buffer.size, sizes) * buffer.dtype.bytes
    present = evaluate(binding.type.bytes, values)
    if wanted > present:
        raise ModelError(
            f"%{buffer.name} needs {wanted} bytes, but '{binding.name}' ({binding.type}) has "
            f"{present}{_given(values)}",
            where,
        )


# --- lifetimes

_Region: TypeAlias = tuple[tuple[int, int], ...] | str
"""Start and end in the arena for each sample, or the name of a tensor with its own memory."""


@dataclass(frozen=True)
class _Access:
    """Tensors a step reads and writes."""

    where: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def _verify_lifetimes(
    program: Program, functions: dict[str, Function], samples: Sequence[Values]
) -> None:
    """Each tensor read was written, and nothing that shares bytes with it was written since.

    Tensors with the same offset and size are views of each other.
    """
    memory = _Memory(program, samples)
    for access in _accesses(program.steps, functions):
        for name in access.reads:
            memory.read(name, access.where)
        for name in access.writes:
            memory.write(name, access)
    for name in program.outputs:
        if not memory.is_written(name):
            raise ModelError(f"output '{name}' is never written", (program.name,))


class _Memory:
    """Which tensors hold what was written to them."""

    def __init__(self, program: Program, samples: Sequence[Values]) -> None:
        inside = [b for b in program.bindings.values() if b.place == "arena"]
        self._spans = {b.name: tuple(_span(b, values) for values in samples) for b in inside}
        given = (b.name for b in program.bindings.values() if b.place in ("input", "constant"))
        self._written = {self._region(name) for name in given}
        self._overwritten: dict[_Region, str] = {}
        regions = list(dict.fromkeys(self._spans.values()))
        self._overlaps: dict[_Region, list[_Region]] = {
            a: [b for b in regions if a != b and _share_bytes(a, b)] for a in regions
        }

    def is_written(self, name: str) -> bool:
        """Whether a step has written the tensor."""
        return self._region(name) in self._written

    def read(self, name: str, where: tuple[str, ...]) -> None:
        """Check that the tensor can be read."""
        region = self._region(name)
        if region not in self._written:
            raise ModelError(f"'{name}' is read before any step has written it", where)
        if region in self._overwritten:
            raise ModelError(
                f"'{name}' is read after {self._overwritten[region]} has overwritten it", where
            )

    def write(self, name: str, access: _Access) -> None:
        """The tensor is written; what overlaps it is lost."""
        region = self._region(name)
        self._written.add(region)
        self._overwritten.pop(region, None)
        own = {self._region(other) for other in access.writes}
        for other in self._overlaps.get(region, ()):
            if other not in own:
                self._overwritten[other] = f"'{name}' of {', '.join(access.where)}"

    def _region(self, name: str) -> _Region:
        return self._spans.get(name, name)


def _share_bytes(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...]) -> bool:
    pairs = zip(a, b, strict=True)
    return any(max(a0, b0) < min(a1, b1) for (a0, a1), (b0, b1) in pairs)


def _accesses(steps: Sequence[Step], functions: dict[str, Function]) -> list[_Access]:
    found: list[_Access] = []
    for step in steps:
        if isinstance(step, CopyTensor):
            found.append(_Access(_place(step), (step.source_tensor,), (step.target,)))
            continue
        pairs = list(zip(functions[step.function].parameters, step.arguments, strict=True))
        reads = tuple(name for p, name in pairs if not p.mutable)
        found.append(_Access(_place(step), reads, tuple(n for p, n in pairs if p.mutable)))
    return found
