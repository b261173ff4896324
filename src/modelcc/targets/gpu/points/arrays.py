"""Stages that pass small arrays to each other: a thread holds all of them in registers.

grid g; thread t
  element g * threads + t of the iteration space of a run of stages, or a few neighbours
  elements of the first array, of what the thread loads
  elements of the next one, of those …
  results

Winograd's transforms are such stages.  Runs with other shared axes, such as whole tiles and those
at an image's border, have groups of their own, one run after the other, in the same launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from modelcc.ir.index import Index, Sym, ceildiv, coefficient, floordiv, loop_range, symbols
from modelcc.ir.loop import Function, Stmt
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Condition, Stage
from modelcc.passes.tensor.register_axes import shared_depth
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import GroupArrays
from modelcc.schedule.lanes import Lanes
from modelcc.schedule.nest import Nest, merge_loops
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import Group, make_group
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    extent_of,
    without_units,
)
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.sizes import count

THREADS = 128
"""Per group: these kernels take many registers, and larger groups would fit few times on an SM."""

MOST_ELEMENTS = 80
"""Elements of an array times vector lanes: more would spill, or leave an SM with few threads."""

POINTS_OF_UNIT = 256
"""Vectors that each SM should have before they are made wider."""

ADDRESSES = 44
"""Registers for addresses, conditions and loads in flight, besides an array."""


def lower_arrays(kernel: GroupKernel, schedule: GroupArrays) -> Function:
    """The function of a kernel; :class:`ScheduleError` if its stages do not pass arrays, or vectors
    are not contiguous."""
    runs, lanes = array_runs(kernel), schedule.lanes
    if schedule.threads < 1 or lanes not in (1, 2, 4, 8):
        raise ScheduleError("arrays have threads, and vectors of up to eight")
    if not all(_takes_lanes(run, lanes) for run in runs):
        raise ScheduleError("neighbours are no whole vectors side by side: lanes")
    g, t = kernel.names.fresh("g"), kernel.names.fresh("t")
    counts = [ceildiv(_vectors(run, lanes), schedule.threads) for run in runs]
    *starts, total = accumulate(counts, initial=0)
    launch = Launching(((g, total),), ((t, schedule.threads),), kernel.dims)
    body: list[Stmt] = []
    for run, start, groups in zip(runs, starts, counts, strict=True):
        own = (Condition(Sym(g), ">=", start), Condition(Sym(g), "<", start + groups))
        position = (Sym(g) - start) * schedule.threads + Sym(t)
        inner = _run(kernel, run, lanes, position, launch)
        body += launch.guarded(own, inner)
    return kernel.function(launch.around((), body))


def _run(
    kernel: GroupKernel, run: Group, lanes: int, position: Index, launch: Launching
) -> list[Stmt]:
    """The work of the thread at ``position`` of a run, if there is an element for it."""
    names, variables = kernel.names, run.final.parallel
    lane = Lanes(names.fresh("l"), lanes) if lanes > 1 else None
    evaluation = Evaluation(names, lanes=lane)
    point = evaluation.place_lanes(variables, position)
    reach = dict(kernel.dims)
    for v in variables:
        extent = floordiv(v.extent, lanes) if v is variables[-1] else v.extent
        own = symbols(point[v.name]) - {lane.variable if lane else ""}
        reach |= {name: loop_range(extent) for name in own}
    evaluation.arrays(run, point, reach)
    return launch.guarded((Condition(position, "<", _vectors(run, lanes)),), evaluation.statements)


def _vectors(run: Group, lanes: int) -> Index:
    return floordiv(extent_of(run.final.parallel), lanes)


def array_runs(kernel: GroupKernel) -> tuple[Group, ...]:
    """Runs of stages that pass arrays, each with axes that all its stages share;
    :class:`ScheduleError` if there are other stages."""
    return tuple(_group(kernel, run) for run in _runs(kernel.kernel.stages))


def _runs(stages: Sequence[Stage]) -> Iterator[list[Stage]]:
    """``stages``, cut where one reads none of the results since the last cut."""
    run: list[Stage] = []
    for stage in stages:
        made = {s.output for s in run}
        if run and made.isdisjoint(r.tensor for r in reads(stage.body)):
            yield run
            run = []
        run.append(stage)
    yield run


def _group(kernel: GroupKernel, run: Sequence[Stage]) -> Group:
    shared = None if shared_depth(run) is None else shared_axes(run)
    if shared is None:
        raise ScheduleError("stages hand on no arrays")
    made = make_group(shared, kernel.stored, kernel.types, kernel.dims, frozenset(), pad=False)
    return replace(made, nests=merge_loops(without_units(made.nests)))


def _takes_lanes(run: Group, lanes: int) -> bool:
    """Whether vectors of ``lanes`` neighbours cover all elements, and are contiguous everywhere."""
    if lanes == 1:
        return True
    if not run.final.parallel:
        return False
    last, made = run.final.parallel[-1], {nest.output for nest in run.nests}
    if not isinstance(last.extent, int) or last.extent % lanes:
        return False
    return all(_is_wide(nest, last.name, lanes, made) for nest in run.nests) and all(
        coefficient(nest.store, last.name) == 1 for nest in run.nests if nest.output in run.stored
    )


def _is_wide(nest: Nest, along: str, lanes: int, made: set[str]) -> bool:
    steps = [coefficient(r.indices[0], along) for r in reads(nest.body) if r.tensor not in made]
    beside = all(step in (0, 1) for step in steps)
    return beside and vectorisable(nest.body, along, lanes, made, aligned=True)


def array_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupArrays]:
    """Schedules of stages that pass arrays: wide vectors where registers and SMs allow."""
    runs = array_runs(kernel)
    points = sum(count(run.final.parallel) for run in runs)
    elements = _elements(runs)
    threads = min(THREADS, machine.group_threads)
    for lanes in (4, 2, 1):
        few = elements * lanes <= MOST_ELEMENTS and lanes <= machine.lanes
        enough = points >= lanes * machine.units * POINTS_OF_UNIT
        if lanes == 1 or (few and enough and all(_takes_lanes(run, lanes) for run in runs)):
            yield GroupArrays(threads, lanes)


def array_registers(kernel: GroupKernel, schedule: GroupArrays) -> int:
    """Registers a thread is expected to take: those of its largest array, and addresses."""
    return _elements(array_runs(kernel)) * schedule.lanes + ADDRESSES


def _elements(runs: Sequence[Group]) -> int:
    return max(nest.points for run in runs for nest in run.nests)
