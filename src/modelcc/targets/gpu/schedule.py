"""How a stage runs on groups of threads: three schedules, and which is the default.

They show that a target for accelerators is schedules and a table; none of them is tuned.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.program import Launch, Program, Step
from modelcc.ir.tensor import Item, Kernel, Stage, TensorProgram, View
from modelcc.ir.types import TensorType
from modelcc.targets.gpu.lower import PointwiseGroups, StageLowering
from modelcc.targets.gpu.reduction import ReducingGroups
from modelcc.targets.gpu.tiles import SharedTiles, find_product

GroupSchedule: TypeAlias = PointwiseGroups | ReducingGroups | SharedTiles


def default_schedule(lowering: StageLowering) -> GroupSchedule:
    """Tiles for products, a group for each other reduction, else a thread for each point."""
    if find_product(lowering.nest) is not None:
        return SharedTiles()
    return ReducingGroups() if lowering.nest.reduce else PointwiseGroups()


def schedule_groups(program: TensorProgram, wanted: GroupSchedule | None = None) -> Program:
    """A launch for each stage of the kernels of ``program``, scheduled as ``wanted`` or by default.

    :class:`ModelError` for what is no kernel or view, and if ``wanted`` does not fit a stage.
    """
    types = dict(program.types)
    stages = [(k, s) for k in program.items if isinstance(k, Kernel) for s in k.stages]
    for _, stage in stages:
        plain = TensorType(tuple(axis.extent for axis in stage.axes), stage.body.dtype)
        types.setdefault(stage.output, plain)
    parts = Counter(stage.output for _, stage in stages)
    lowerings: list[StageLowering] = []
    steps: list[Step] = []
    for item in program.items:
        for stage in _stages(item):
            name = f"k{len(lowerings)}_{stage.output}"
            lowerings.append(StageLowering(name, stage, types, program.dims, item.source))
            steps.append(_launch(lowerings[-1], parts))
        if isinstance(item, View):
            steps.append(item)
    functions = tuple((wanted or default_schedule(one)).lower(one) for one in lowerings)
    return Program(
        program.name, program.inputs, program.outputs, tuple(steps), types, functions,
        program.constants, program.dims,
    )  # fmt: skip


def _stages(item: Item) -> tuple[Stage, ...]:
    match item:
        case Kernel():
            return item.stages
        case View():
            return ()
        case _:
            what = type(item).__name__
            raise ModelError(f"groups of threads have no schedule for {what}", item.source)


def _launch(lowering: StageLowering, parts: Counter[str]) -> Launch:
    output = lowering.stage.output
    return Launch(
        lowering.name,
        (*lowering.inputs, output),
        tuple(map(Sym, lowering.sizes)),
        lowering.source,
        partial=(output,) if parts[output] > 1 else (),
    )
