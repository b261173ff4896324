"""Lowers scheduled kernels and their memory plan to a host program.

Before::

    %h = kernel @gemm(%x, %w)      %v = view %h      %y = kernel @softmax(%v)

After::

    region %h = arena[0]
    launch @gemm(%x, %w, %h)
    launch @softmax(%v, %y)        with %v bound where %h is
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import DIM, Index, Range, symbols
from modelcc.ir.program import Binding, CopyTensor, Launch, Program, Step
from modelcc.ir.scheduled import ScheduledProgram
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
    calls = kernels(scheduled)
    foreign = {n for s in plan.storages if s.place in ("input", "output") for n in s.tensors}
    unique = unique_functions(calls, foreign)
    launches = tuple(
        Launch(name, tuple(_bound(plan, t) for t in call.arguments), call.sizes, call.source)
        for name, call in zip(unique.names, calls, strict=True)
    )
    outputs = _output_names(scheduled, plan)
    copies = tuple(
        CopyTensor(bound, _bound(plan, name))
        for bound, name in zip(outputs, scheduled.outputs, strict=True)
        if bound != _bound(plan, name)
    )
    steps: tuple[Step, ...] = (*launches, *copies)
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


def _dims(scheduled: ScheduledProgram) -> dict[str, Range]:
    """Bounds of every dimension that matters: named by a tensor's shape or a kernel's size."""
    sizes = [dim for t in scheduled.types.values() for dim in t.shape]
    sizes += [size for call in kernels(scheduled) for size in call.sizes]
    named = sorted({name for size in sizes for name in symbols(size)})
    known = {name: bounds for name, bounds in scheduled.dims.items() if name in named}
    return known | {name: DIM for name in named if name not in known}


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
    for name in dict.fromkeys(n for step in steps for n in _mentioned(step)):
        if name not in bindings:
            place, offset = plan.home[name].place, _offset(plan, name)
            bindings[name] = Binding(name, scheduled.types[name], place, offset)
    return bindings


def _output_type(scheduled: ScheduledProgram, name: str) -> TensorType:
    found = scheduled.types[name]
    if not found.physical.is_row_major:
        raise ValueError(f"output '{name}' of {scheduled.name} has layout {found.layout}")
    return found


def _offset(plan: MemoryPlan, name: str) -> Index:
    return plan.offsets.get(plan.home[name].name, 0)


def _mentioned(step: Step) -> tuple[str, ...]:
    match step:
        case Launch():
            return step.arguments
        case CopyTensor():
            return (step.target, step.source_tensor)
