"""Checks that a tensor program is well formed: definitions, ranks, symbols, dtypes, ranges.

Properties that depend on named dimensions are reported only if provably wrong: see
:mod:`modelcc.ir.tensor_ranges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, Range, compare, symbols
from modelcc.ir.library import LibraryFunction, meaning_of
from modelcc.ir.library_verifier import verify_library_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.region_verifier import verify_carry, verify_condition, verify_states, verify_view
from modelcc.ir.scalar_tree import index_symbols, reads
from modelcc.ir.stage_verifier import verify_scatter, verify_stage, verify_symbols
from modelcc.ir.tensor import (
    Algorithm,
    Item,
    Kernel,
    ReadSize,
    Scatter,
    Stage,
    TensorProgram,
    View,
    counters,
    item_inputs,
    item_outputs,
    item_tensors,
    leaf_items,
)
from modelcc.ir.tensor_ranges import written_twice
from modelcc.ir.types import I64, TensorType


def verify_tensor_program(program: TensorProgram, before: TensorProgram | None = None) -> None:
    """Raise :class:`ModelError` naming the kernel, stage and source of the first broken rule.

    ``before`` is a program that is known to be well formed: kernels that it has as well, with
    tensors of the same types, are not checked again.
    """
    if program == before:
        return
    place = (f"tensor program {program.name!r}",)
    defined: set[str] = set()
    for name in (*program.inputs, *program.constants):
        if name in defined:
            raise ModelError(f"tensor {name!r} is defined twice", place)
        defined.add(name)
    _verify_types(program, place)
    inside = _TensorVerifier(program, before).items(program.items, program.dims, defined)
    _verify_order_of_sizes(program)
    for name in program.outputs:
        if name not in inside:
            raise ModelError(f"program output {name!r} is not computed by any kernel", place)
    verify_states(program.states, program.inputs, program.outputs, program.types, place)


class _TensorVerifier:
    """Checks the items of one program; kernels that are known to be well formed are skipped."""

    def __init__(self, program: TensorProgram, before: TensorProgram | None) -> None:
        self._program = program
        self._before = before
        self._known: dict[int, Bounds] = {}
        self._writers = {} if before is None else _writers(leaf_items(before.items))
        if before is not None:
            # Mostly the same object, which is cheap to compare.
            same = before.dims == program.dims
            known = _with_dims(before.items, program.dims if same else before.dims)
            self._known = {id(kernel): dims for kernel, dims in known}

    def items(self, items: Sequence[Item], dims: Bounds, outside: set[str]) -> set[str]:
        """Check items that see the tensors ``outside``; returns these and the ones they define."""
        program = self._program
        complete = {name: n for n, item in enumerate(items) for name in item_outputs(item)}
        defined = dict.fromkeys(outside, -1)
        known: set[int] = set()
        for position, item in enumerate(items):
            for name in item_inputs(item):
                _verify_defined(name, defined, complete, position, item_place(item))
            match item:
                case View():
                    verify_view(item, program.types, program.dims, item_place(item))
                case Kernel():
                    if self._is_known(item, dims):
                        known.add(id(item))
                    else:
                        verify_kernel(item, program.types, dims)
                case Scatter():
                    verify_scatter(item, program.types, dims, item_place(item))
                case Algorithm():
                    _verify_algorithm(item, program, dims)
                case ReadSize():
                    _verify_read_size(item, program)
                case Branch():
                    self._branch(item, dims, set(defined))
                case Repeat():
                    self._repeat(item, dims, set(defined))
            for name in item_outputs(item):
                again = name in defined and not isinstance(item, Kernel)
                if defined.get(name, position) == -1 or again:
                    raise ModelError(f"tensor {name!r} is defined twice", item_place(item))
                defined[name] = position
        self._disjoint(items, dims, known)
        return set(defined)

    def _is_known(self, kernel: Kernel, dims: Bounds) -> bool:
        known = self._known.get(id(kernel))
        if self._before is None or (known is not dims and known != dims):
            return False
        old, new = self._before.types, self._program.types
        return all(old.get(name) == new.get(name) for name in item_tensors(kernel))

    def _branch(self, branch: Branch[Item], dims: Bounds, outside: set[str]) -> None:
        place = item_place(branch)
        verify_condition(branch.condition, self._program.types, place)
        for items in (branch.then, branch.other):
            self.items(items, dims, outside)
            written = {n for i in items if not isinstance(i, View) for n in item_outputs(i)}
            missing = [name for name in branch.outputs if name not in written]
            if missing:
                raise ModelError(f"a side computes no {missing[0]!r} by a kernel", place)

    def _repeat(self, loop: Repeat[Item], dims: Bounds, outside: set[str]) -> None:
        program = self._program
        place = item_place(loop)
        if loop.counter in dims:
            raise ModelError(f"{loop.counter!r} is already a dimension or a counter", place)
        if loop.trips is None and loop.condition is None:
            raise ModelError("the loop has neither a bound nor a condition", place)
        verify_symbols("the bound", () if loop.trips is None else (loop.trips,), dims, place)
        states = [carry.state for carry in loop.carries]
        if loop.condition is not None:
            if loop.condition not in states:
                raise ModelError(f"condition {loop.condition!r} is no state of the loop", place)
            verify_condition(loop.condition, program.types, place)
        for carry in loop.carries:
            verify_carry(carry, program.types, place)
        self.items(loop.body, loop.inside(dims), outside | set(states))
        written = [n for i in loop.body if not isinstance(i, View) for n in item_outputs(i)]
        needed = (*(carry.next for carry in loop.carries), *loop.filled)
        for name in needed:
            if name not in written or needed.count(name) > 1:
                raise ModelError(f"no kernel of the body computes {name!r} for it alone", place)

    def _disjoint(self, items: Sequence[Item], dims: Bounds, known: Set[int]) -> None:
        """Parts of tensors neither overlap nor leave gaps; those written by ``known`` kernels, as
        before, are already checked."""
        for name, found in _writers(items).items():
            writers = {id(w.kernel) for w in found}
            before = {id(w.kernel) for w in self._writers.get(name, ())}
            if writers != before or not writers <= known:
                _verify_disjoint(name, found, self._program, dims)


def _with_dims(items: Sequence[Item], dims: Bounds) -> Iterator[tuple[Kernel, Bounds]]:
    """All kernels, each with the bounds of the sizes and counters around it."""
    for item in items:
        match item:
            case Kernel():
                yield item, dims
            case Branch():
                yield from _with_dims((*item.then, *item.other), dims)
            case Repeat():
                yield from _with_dims(item.body, item.inside(dims))
            case _:
                pass


def item_place(item: Item) -> tuple[str, ...]:
    """Location of ``item`` for messages: the user's names and its own."""
    match item:
        case Kernel():
            return (*item.source, f"kernel {item.name!r}")
        case Scatter():
            return (*item.source, f"scatter %{item.stage.output}")
        case View():
            return (*item.source, f"view {item.output!r}")
        case Algorithm():
            return (*item.source, f"algorithm {item.function.name!r}")
        case ReadSize():
            return (*item.source, f"read of {', '.join(map(repr, item.symbols))}")
        case Branch():
            return (*item.source, f"branch on {item.condition!r}")
        case Repeat():
            return (*item.source, f"loop over {item.counter!r}")


def _verify_algorithm(item: Algorithm, program: TensorProgram, dims: Bounds) -> None:
    place = item_place(item)
    verify_function(meaning_of(item.function))
    if isinstance(item.function, LibraryFunction):
        verify_library_function(item.function)
    names = (*item.inputs, *item.outputs)
    parameters = item.function.parameters
    if len(names) != len(parameters) or len(item.sizes) != len(item.function.sizes):
        raise ModelError("tensors and sizes do not fit the function's parameters", place)
    for name, parameter in zip(names, parameters, strict=True):
        found = program.types[name]
        if found.dtype != parameter.buffer.dtype or not found.physical.is_row_major:
            message = f"%{name} is {found}, no row-major {parameter.buffer.dtype}"
            raise ModelError(message, place)
        if parameter.mutable != (name in item.outputs):
            raise ModelError(f"%{name} must be written if, and only if, it is an output", place)
    verify_symbols("a size", item.sizes, dims, place)


def _verify_read_size(item: ReadSize, program: TensorProgram) -> None:
    place = item_place(item)
    found = program.types[item.tensor]
    if found.dtype != I64 or not found.physical.is_row_major:
        raise ModelError(f"sizes are read from row-major i64 elements, not from {found}", place)
    if compare(found.elements, "!=", len(item.symbols), program.dims) is True:
        raise ModelError(f"{found} does not hold {len(item.symbols)} sizes", place)
    verify_symbols("the item", [s for c in item.requires for s in (c.left, c.right)],
                    program.dims, place)  # fmt: skip
    unknown = [name for name in item.symbols if name not in program.dims]
    if unknown:
        raise ModelError(f"{unknown[0]!r} has no bounds", place)


def _verify_order_of_sizes(program: TensorProgram) -> None:
    """Symbols read from memory are bound once, and used only afterwards."""
    reads = [item for item in leaf_items(program.items) if isinstance(item, ReadSize)]
    pending = {name for item in reads for name in item.symbols}
    if not reads:
        return
    for item in leaf_items(program.items):
        if isinstance(item, ReadSize):
            again = [name for name in item.symbols if name not in pending]
            if again:
                raise ModelError(f"{again[0]!r} is read twice", item_place(item))
            pending -= set(item.symbols)
        early = sorted(item_symbols(item, program.types) & pending)
        if early:
            raise ModelError(f"uses {early[0]!r} before it is read", item_place(item))


def item_symbols(item: Item, types: Mapping[str, TensorType]) -> frozenset[str]:
    """Symbols that must have a value when ``item`` runs, except those it binds itself."""
    tensors = (*item_inputs(item), *item_outputs(item))
    found = {name for t in tensors for extent in types[t].shape for name in symbols(extent)}
    match item:
        case Kernel() | Scatter():
            for stage in item.stages if isinstance(item, Kernel) else (item.stage,):
                found |= {n for a in (*stage.axes, *stage.reduce) for n in symbols(a.extent)}
                own = {a.name for a in (*stage.axes, *stage.reduce)}
                found |= {n for i in stage.write for n in symbols(i)} - own
                found |= index_symbols(stage.body) - own
        case Algorithm():
            found |= {name for size in item.sizes for name in symbols(size)}
        case ReadSize():
            found |= item.needs
        case Repeat():
            found |= frozenset() if item.trips is None else symbols(item.trips)
        case View() | Branch():
            pass
    return frozenset(found)


def _verify_defined(
    name: str,
    defined: Mapping[str, int],
    complete: Mapping[str, int],
    position: int,
    place: tuple[str, ...],
) -> None:
    if name not in defined and name not in complete:
        hint = "list it among the outputs of the kernel that defines it"
        raise ModelError(f"reads tensor {name!r}, which nothing defines", place, hint)
    if name not in defined or complete.get(name, -1) >= position:
        message = f"reads tensor {name!r} before all of it is computed"
        raise ModelError(message, place, "items must be in execution order")


def _verify_types(program: TensorProgram, place: tuple[str, ...]) -> None:
    used = program.tensors()
    known = {**program.dims, **dict.fromkeys(counters(program.items))}
    for name in used:
        if not name or name not in program.types:
            raise ModelError(f"tensor {name!r} has no type", place)
        verify_symbols(f"type of {name!r}", program.types[name].shape, known, place)
        _verify_layout(name, program.types[name], place)
    spare = min(program.types.keys() - frozenset(used), default=None)
    if spare is not None:
        raise ModelError(f"there is a type for {spare!r}, which is no tensor", place)
    for name, constant in program.constants.items():
        if constant.type != program.types[name].with_layout(None):
            message = f"constant {name!r} holds {constant.type}, its type is {program.types[name]}"
            raise ModelError(message, place)


def _verify_layout(name: str, type: TensorType, place: tuple[str, ...]) -> None:
    if type.layout is None:
        return
    axes = {part.axis for part in type.layout.parts}
    if type.layout.rank != type.rank or axes != set(range(type.rank)):
        plain = type.with_layout(None)
        raise ModelError(f"layout {type.layout} of {name!r} does not fit {plain}", place)


# --- kernels ---------------------------------------------------------------------------------


def verify_kernel(
    kernel: Kernel, types: Mapping[str, TensorType], dims: Mapping[str, Range]
) -> None:
    """As :func:`verify_tensor_program`, for one kernel among tensors of these ``types``."""
    place = item_place(kernel)
    for names, what in ((kernel.inputs, "input"), (kernel.outputs, "output")):
        if len(set(names)) != len(names):
            raise ModelError(f"an {what} is listed twice", place)
    written: dict[str, int] = {stage.output: n for n, stage in enumerate(kernel.stages)}
    _verify_interface(kernel, written, place)
    for position, stage in enumerate(kernel.stages):
        here = (*place, f"stage %{stage.output}")
        for name in read_tensors(stage):
            if name not in types:
                raise ModelError(f"reads {name!r}, which has no type", here)
            if written.get(name, -1) >= position:
                message = f"reads %{name} before all of it is computed"
                raise ModelError(message, here, "stages must be in order of execution")
        verify_stage(stage, types, dims, here)


def read_tensors(stage: Stage) -> tuple[str, ...]:
    """Names of the tensors that ``stage`` reads, in order of appearance."""
    return tuple(dict.fromkeys(read.tensor for read in reads(stage.body)))


def _verify_interface(kernel: Kernel, written: Mapping[str, int], place: tuple[str, ...]) -> None:
    used = {name for stage in kernel.stages for name in read_tensors(stage)}
    for name in kernel.inputs:
        if name in written:
            raise ModelError(f"input %{name} is written by a stage", place)
        if name not in used:
            raise ModelError(f"input %{name} is not read by any stage", place)
    for name in kernel.outputs:
        if name not in written:
            raise ModelError(f"output %{name} is not written by any stage", place)
    missing = sorted(used - set(kernel.inputs) - written.keys())
    if missing:
        raise ModelError(f"reads %{missing[0]}, which is no input of it", place)


# --- several writers of one tensor -----------------------------------------------------------


@dataclass(frozen=True)
class _WrittenStage:
    """A stage, its kernel and that kernel's number: kernels are expensive to compare."""

    stage: Stage
    kernel: Kernel
    number: int


def _writers(items: Iterable[Item]) -> dict[str, list[_WrittenStage]]:
    """The writers of each tensor."""
    writers: dict[str, list[_WrittenStage]] = {}
    for number, item in enumerate(items):
        if isinstance(item, Kernel):
            for stage in item.stages:
                writers.setdefault(stage.output, []).append(_WrittenStage(stage, item, number))
    return writers


def _verify_disjoint(
    name: str, found: Sequence[_WrittenStage], program: TensorProgram, dims: Bounds
) -> None:
    stages = [w.stage for w in found]
    moving = {n for stage in stages for index in stage.write for n in symbols(index)}
    counted = any(n in dims and n not in program.dims for n in moving)  # a part an iteration
    fault = written_twice(stages, program.types[name], dims, whole=not counted)
    if fault is not None:
        kernels = {w.number: w.kernel for w in found}
        places = [p for kernel in kernels.values() for p in item_place(kernel)]
        raise ModelError(fault, tuple(dict.fromkeys(places)))
    owners = {w.number: w.kernel for w in found if name not in w.kernel.outputs}
    if len(owners) > 1 or (owners and any(name in w.kernel.outputs for w in found)):
        message = f"%{name} is internal to this kernel but written by another one too"
        raise ModelError(message, item_place(next(iter(owners.values()))))
