"""Lowers scheduled kernels and their memory plan to a host program.

Before::

    %h = kernel @gemm(%x, %w)      %v = view %h      %y = kernel @softmax(%v)

After::

    region %h = arena[0]
    launch @gemm(%x, %w, %h)
    launch @softmax(%v, %y)        with %v bound where %h is
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from modelcc.ir.index import DIM, Index, Range, symbols
from modelcc.ir.program import (
    Allocate,
    Binding,
    CopyTensor,
    Launch,
    Program,
    Step,
    step_tensors,
)
from modelcc.ir.scheduled import KernelCall, ScheduledProgram
from modelcc.ir.tensor import ReadSize
from modelcc.ir.types import TensorType
from modelcc.passes.program.functions import unique_functions
from modelcc.passes.program.plan_memory import MemoryPlan
from modelcc.passes.program.storage import kernels


def lower_to_program(scheduled: ScheduledProgram, plan: MemoryPlan) -> Program:
    """The host program that runs ``scheduled`` in the memory that ``plan`` gives it.

    Outputs that no kernel can write directly (an input, a constant, the same tensor twice) are
    copied at the end.  One that bears an input's name, or an earlier output's, is bound as
    ``name.output``; ``outputs`` keeps the order of the scheduled program.
    """
    items = kernels(scheduled)
    calls = [item for item in items if isinstance(item, KernelCall)]
    foreign = {n for s in plan.storages if s.place in ("input", "output") for n in s.tensors}
    unique = unique_functions(calls, foreign)
    names = iter(unique.names)
    launches: list[Step] = [Allocate(m.name, m.size) for m in plan.late if m.step < 0]
    for number, item in enumerate(items):
        launches.append(_step(item, names, plan))
        launches += [Allocate(m.name, m.size, item.source) for m in plan.late if m.step == number]
    outputs = _output_names(scheduled, plan)
    steps = (*launches, *_copies(scheduled, outputs, plan))
    bindings = _bindings(scheduled, plan, steps, outputs)
    return Program(
        name=scheduled.name,
        inputs=scheduled.inputs,
        outputs=outputs,
        bindings=bindings,
        functions=unique.functions,
        steps=steps,
        arena=plan.arena,
        definitions=plan.definitions,
        constants={n: c for n, c in scheduled.constants.items() if n in bindings},
        dims=_dims(scheduled),
    )


def _step(item: KernelCall | ReadSize, names: Iterator[str], plan: MemoryPlan) -> Step:
    if isinstance(item, ReadSize):
        return replace(item, tensor=_bound(plan, item.tensor))
    arguments = tuple(_bound(plan, tensor) for tensor in item.arguments)
    return Launch(next(names), arguments, item.sizes, item.source)


def _copies(
    scheduled: ScheduledProgram, outputs: Sequence[str], plan: MemoryPlan
) -> Iterator[Step]:
    """Steps that write the outputs which no kernel writes, those of data-dependent size
    allocated before."""
    read = frozenset(scheduled.read_sizes)
    for bound, name in zip(outputs, scheduled.outputs, strict=True):
        if bound == _bound(plan, name):
            continue
        size = scheduled.types[name].bytes
        if symbols(size) & read:
            yield Allocate(bound, size)
        yield CopyTensor(bound, _bound(plan, name))


def _dims(scheduled: ScheduledProgram) -> dict[str, Range]:
    """Bounds of every dimension that matters: named by a tensor's shape or a kernel's size."""
    sizes = [dim for t in scheduled.types.values() for dim in t.shape]
    sizes += [size for call in kernels(scheduled) for size in call.sizes]
    reads = [item for item in kernels(scheduled) if isinstance(item, ReadSize)]
    read = {n: scheduled.dims[n] for item in reads for n in item.symbols}
    sizes += [side for item in reads for c in item.requires for side in (c.left, c.right)]
    ends = [end for known in read.values() for end in (known.lo, known.hi)]
    sizes += [end for end in ends if end is not None]
    named = sorted({name for size in sizes for name in symbols(size)} - read.keys())
    known = {name: bounds for name, bounds in scheduled.dims.items() if name in named}
    return known | {name: DIM for name in named if name not in known} | read


def _bound(plan: MemoryPlan, tensor: str) -> str:
    """The name steps use: arena tensors keep theirs, others share that of their buffer."""
    storage = plan.home[tensor]
    return tensor if storage.place == "arena" else storage.name


def _output_names(scheduled: ScheduledProgram, plan: MemoryPlan) -> tuple[str, ...]:
    taken = set(scheduled.inputs) | set(scheduled.constants)
    names: list[str] = []
    for output in scheduled.outputs:
        name = output
        while name in taken:
            name += ".output"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _bindings(
    scheduled: ScheduledProgram,
    plan: MemoryPlan,
    steps: Sequence[Step],
    outputs: Sequence[str],
) -> dict[str, Binding]:
    bindings: dict[str, Binding] = {}
    for name in scheduled.inputs:
        bindings[name] = Binding(name, scheduled.types[name], "input")
    for bound, name in zip(outputs, scheduled.outputs, strict=True):
        bindings[bound] = Binding(bound, _output_type(scheduled, name), "output")
    for name in dict.fromkeys(n for step in steps for n in step_tensors(step)):
        if name not in bindings:
            home = plan.home[name]
            segment = plan.segment.get(home.name, "")
            offset = _offset(plan, name)
            bindings[name] = Binding(name, scheduled.types[name], home.place, offset, segment)
    return bindings


def _output_type(scheduled: ScheduledProgram, name: str) -> TensorType:
    found = scheduled.types[name]
    if not found.physical.is_row_major:
        raise ValueError(f"output '{name}' of {scheduled.name} has layout {found.layout}")
    return found


def _offset(plan: MemoryPlan, name: str) -> Index:
    return plan.offsets.get(plan.home[name].name, 0)
