"""Checks that host programs are well formed: names, bindings, launches, and lifetimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from modelcc.ir.index import Bounds, Index, Range, compare, substitute, symbols
from modelcc.ir.loop import Function, Parameter
from modelcc.ir.loop_verifier import verify_functions
from modelcc.ir.op import ModelError
from modelcc.ir.program import Binding, CopyTensor, Launch, Program, Step

ALIGNMENT = 64


def verify_program(program: Program) -> None:
    """Raise :class:`ModelError` naming the first binding or step that breaks a rule of programs.

    Kernels verify; launches fit their kernels; tensors lie within the arena at multiples of 64
    bytes; what a step reads has been written and no tensor that may overlap it was written since.
    """
    verify_functions(program.functions)
    known = _verify_symbols(program)
    for binding in program.bindings.values():
        _verify_binding(program, binding, known)
    for name in (*program.inputs, *program.outputs, *program.constants):
        if name not in program.bindings and name not in program.constants:
            raise ModelError(f"'{name}' has no binding", (program.name,))
    functions = {f.name: f for f in program.functions}
    for step in program.steps:
        _verify_step(program, step, functions, known)
    _verify_lifetimes(program, functions, known)


def _verify_symbols(program: Program) -> Bounds:
    known: dict[str, Range] = dict(program.dims)
    for definition in program.definitions:
        _require_symbols(definition.value, known, (program.name, definition.symbol))
        if definition.symbol in known:
            raise ModelError(f"'{definition.symbol}' is already defined", (program.name,))
        known[definition.symbol] = Range(None, None)
    _require_symbols(program.arena, known, (program.name, "arena"))
    return known


def _require_symbols(index: Index, known: Bounds, where: tuple[str, ...]) -> None:
    missing = sorted(symbols(index) - set(known))
    if missing:
        raise ModelError(f"index symbol '{missing[0]}' is not defined", where)


def _verify_binding(program: Program, binding: Binding, known: Bounds) -> None:
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
    offset = _expanded(program, binding.offset)
    end, arena = offset + binding.type.bytes, _expanded(program, program.arena)
    if isinstance(offset, int) and offset % ALIGNMENT:
        raise ModelError(f"offset {offset} is no multiple of {ALIGNMENT}", where)
    if compare(offset, ">=", 0, known) is False or compare(end, "<=", arena, known) is False:
        raise ModelError(
            f"bytes {offset} to {end} lie outside of the arena, which has {arena}", where
        )


def _expanded(program: Program, index: Index) -> Index:
    """The index without defined symbols, only dimensions."""
    for definition in reversed(program.definitions):
        index = substitute(index, {definition.symbol: definition.value})
    return index


# --- steps


def _place(step: Step) -> tuple[str, ...]:
    what = f"@{step.function}" if isinstance(step, Launch) else f"copy to '{step.target}'"
    return (*step.source, what)


def _verify_step(
    program: Program, step: Step, functions: dict[str, Function], known: Bounds
) -> None:
    where = _place(step)
    for name in _mentioned(step):
        if name not in program.bindings:
            raise ModelError(f"tensor '{name}' has no binding", where)
    match step:
        case Launch():
            function = functions.get(step.function)
            if function is None:
                raise ModelError("there is no kernel of this name", where)
            for size in step.sizes:
                _require_symbols(size, known, where)
            _verify_launch(program, step, function, known)
        case CopyTensor():
            sizes = [program.bindings[n].type.bytes for n in (step.target, step.source_tensor)]
            if compare(sizes[0], "==", sizes[1], known) is False:
                raise ModelError(f"cannot copy {sizes[1]} bytes to {sizes[0]}", where)


def _mentioned(step: Step) -> tuple[str, ...]:
    if isinstance(step, Launch):
        return step.arguments
    return (step.target, step.source_tensor)


def _verify_launch(program: Program, step: Launch, function: Function, known: Bounds) -> None:
    where = _place(step)
    counts = (len(step.arguments), len(step.sizes))
    wanted = (len(function.parameters), len(function.sizes))
    if counts != wanted:
        raise ModelError(
            f"the kernel takes {wanted[0]} tensors and {wanted[1]} sizes, not {counts[0]} and "
            f"{counts[1]}",
            where,
        )
    sizes = dict(zip(function.sizes, step.sizes, strict=True))
    for parameter, name in zip(function.parameters, step.arguments, strict=True):
        _verify_argument(program, parameter, program.bindings[name], sizes, known, where)


def _verify_argument(
    program: Program,
    parameter: Parameter,
    binding: Binding,
    sizes: dict[str, Index],
    known: Bounds,
    where: tuple[str, ...],
) -> None:
    buffer = parameter.buffer
    if binding.type.dtype != buffer.dtype:
        raise ModelError(
            f"%{buffer.name} has elements of {buffer.dtype}, but '{binding.name}' is "
            f"{binding.type}",
            where,
        )
    if parameter.mutable and binding.place in ("input", "constant"):
        raise ModelError(f"'{binding.name}' is an {binding.place} and cannot be written", where)
    wanted = _expanded(program, substitute(buffer.size, sizes) * buffer.dtype.bytes)
    if compare(wanted, "<=", binding.type.bytes, known) is False:
        raise ModelError(
            f"%{buffer.name} needs {wanted} bytes, but '{binding.name}' ({binding.type}) has "
            f"{binding.type.bytes}",
            where,
        )


# --- lifetimes


_Region: TypeAlias = tuple[Index | str, Index]
"""Start and end in the arena, or the name of a tensor with memory of its own."""


@dataclass(frozen=True)
class _Access:
    """Tensors a step reads and writes."""

    where: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def _verify_lifetimes(program: Program, functions: dict[str, Function], known: Bounds) -> None:
    """Each tensor read was written, and nothing that may share its bytes was written since.

    Tensors with the same offset and size are views of each other.
    """
    memory = _Memory(program, known)
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

    def __init__(self, program: Program, known: Bounds) -> None:
        self._known = known
        inside = [b for b in program.bindings.values() if b.place == "arena"]
        self._spans = {b.name: _span(program, b) for b in inside}
        given = [b.name for b in program.bindings.values() if b.place in ("input", "constant")]
        self._written = {self._region(name) for name in given}
        self._overwritten: dict[_Region, str] = {}
        regions = list(dict.fromkeys(self._spans.values()))
        self._overlaps = {a: [b for b in regions if self._meet(a, b)] for a in regions}

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
        return self._spans.get(name, (name, 0))

    def _meet(self, a: _Region, b: _Region) -> bool:
        """Whether different regions are certain to share bytes."""
        if a == b or isinstance(a[0], str) or isinstance(b[0], str):
            return False
        starts_before = compare(a[0], "<", b[1], self._known)
        return bool(starts_before and compare(b[0], "<", a[1], self._known))


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


def _span(program: Program, binding: Binding) -> _Region:
    start = _expanded(program, binding.offset)
    return start, start + binding.type.bytes
