"""Kernels that copy rows with guarded or clamped ends: row by row, with a loop for each part.

Padding, with h outside of the split axis::

    for h:
      y[h, 3 … w + 2] = x[h, 0 … w - 1]     as vectors
      y[h, 0 … 2] = 0.0
      y[h, w + 3 … w + 5] = 0.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    bounds_of,
    floordiv,
    loop_range,
    mod,
    product,
    substitute,
)
from modelcc.ir.loop import BindIndex, IndexOf, Stmt
from modelcc.ir.scalar_tree import substitute_stage
from modelcc.ir.tensor import Axis, Stage
from modelcc.ir.types import I64, TensorType
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.choices import with_choices
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.parallel import Chosen, Point, SegmentedLoop, nest_loops
from modelcc.schedule.schedule import StraightRows as Schedule
from modelcc.schedule.segments import Segment
from modelcc.schedule.straight_runs import straight_runs
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.pieces import Piece
from modelcc.targets.cpu.plan import Plan
from modelcc.targets.cpu.scheduled_kernel import PARALLEL_CHUNKS
from modelcc.targets.cpu.steps import Steps
from modelcc.targets.cpu.tiled import emit_tiled

LONG = 256
"""Row length from which on loops with row-dependent bounds are faster than selects."""


@dataclass(frozen=True)
class StraightRowPlan:
    """For each point of the ``outer`` axes, the stages of the ``parts`` of a row, longest first.

    Parts have the remaining axes; ``sizes`` are the names of symbolic lengths.
    """

    outer: tuple[Axis, ...]
    parts: tuple[Stage, ...]
    sizes: tuple[tuple[str, Index], ...]


def find_straight_rows(
    stages: tuple[Stage, ...], types: Mapping[str, TensorType], dims: Bounds
) -> StraightRowPlan | None:
    """The parts of the rows of an elementwise stage, if these vectorise better than the whole."""
    if len(stages) != 1:
        return None
    # Selects take longer than skipping elements, except in short rows.
    as_it_is = _worth_leaving_out(stages[0])
    (stage,) = stages if as_it_is else with_choices(stages, types, dims)
    runs = straight_runs(stage, types, dims)
    if runs is None:
        return None
    within = (tuple(a for a in part.axes if a not in runs.outer) for part in runs.parts)
    parts = zip(runs.parts, within, strict=True)
    cut = tuple(replace(part, axes=axes) for part, axes in parts)
    return StraightRowPlan(runs.outer, cut, runs.sizes)


def _worth_leaving_out(stage: Stage) -> bool:
    """Whether rows are long enough for loops with row-dependent bounds."""
    last = stage.axes[-1].extent if stage.axes else 0
    return not isinstance(last, int) or last >= LONG


def emit_straight_rows(
    rows: StraightRowPlan,
    kernel: CanonicalKernel,
    names: FreshNames,
    machine: CpuModel,
    worth: bool,
    steps: Steps,
) -> tuple[list[Stmt], list[Plan]]:
    """Statements, on several threads if ``worth`` it, and the plans of the parts, which ``steps``
    makes and records."""
    own = {axis.name: names.fresh(axis.name) for axis in rows.outer}
    own |= {size: names.fresh(_SIZE) for size, _ in rows.sizes}
    outer = tuple(replace(axis, name=own[axis.name]) for axis in rows.outer)
    values: dict[str, Index] = {old: Sym(new) for old, new in own.items()}
    dims: Bounds = {**dict(kernel.dims), **{a.name: loop_range(a.extent) for a in outer}}
    sizes: dict[str, Index] = {own[name]: substitute(size, values) for name, size in rows.sizes}
    for name, size in sizes.items():
        dims = {**dims, name: Range(0, bounds_of(size, dims).hi)}
    types: Mapping[str, TensorType] = dict(kernel.types)
    stored = frozenset(kernel.outputs)
    # All axes but the last are fused into one loop: the first may be a batch of one.
    planes = product(axis.extent for axis in outer[:-1]) if worth and len(outer) > 2 else 1
    alone = all(axis.extent == 1 for axis in outer)
    plans: list[Plan] = []

    def row(point: Point, chosen: Chosen) -> list[Stmt]:
        body: list[Stmt] = _bound(outer, point, planes != 1)
        body += [BindIndex(name, IndexOf(size, I64)) for name, size in sizes.items()]
        for number, part in enumerate(rows.parts):
            inner = (substitute_stage(part, values),)
            plan = steps.tiled(Piece(inner, stored, types, dims, frozenset()), machine)
            plans.append(plan)
            chunks = PARALLEL_CHUNKS if worth and alone and number == 0 else 1
            body += emit_tiled(plan, names, chunks)
        return body

    extents = {axis.name: axis.extent for axis in (outer if planes == 1 else outer[-1:])}
    loops = [SegmentedLoop(name, (Segment(0, e, 1, True),)) for name, e in extents.items()]
    if planes != 1:
        loops = [SegmentedLoop(_PLANE, (Segment(0, planes, 1, True),)), *loops]
    statements = nest_loops(loops, names, row, PARALLEL_CHUNKS if worth and not alone else 1)
    return statements, plans


def planned_parts(
    kernel: CanonicalKernel, piece: Piece, wanted: Schedule, machine: CpuModel
) -> Steps:
    """The parts of a piece of ``kernel`` by ``wanted``, a schedule that fits."""
    dims, steps = dict(kernel.dims), Steps(wanted.parts)
    rows = find_straight_rows(piece.stages, dict(kernel.types), dims)
    if rows is not None:
        emit_straight_rows(
            rows, kernel, FreshNames(frozenset(dims)), machine, wanted.parallel, steps
        )
    return steps


_PLANE = "plane"

_SIZE = "run"


def _bound(outer: tuple[Axis, ...], point: Point, fused: bool) -> list[Stmt]:
    """Binds the axes to their names, all but the last from the number of a plane if ``fused``."""
    found: dict[str, Index] = {} if fused else dict(point)
    if fused:
        position = point[_PLANE]
        for number, axis in reversed(list(enumerate(outer[:-1]))):
            found[axis.name] = position if number == 0 else mod(position, axis.extent)
            position = floordiv(position, axis.extent)
        found[outer[-1].name] = point[outer[-1].name]
    return [BindIndex(axis.name, IndexOf(found[axis.name], I64)) for axis in outer]
