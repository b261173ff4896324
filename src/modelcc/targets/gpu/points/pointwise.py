"""A thread for each element, or for a few neighbours: element-wise kernels, data movement, gathers,
and reductions of few terms.

grid g; thread t
  element g * threads + t of the iteration space, all of its reduction, the epilogue
"""

from __future__ import annotations

from modelcc.ir.index import Sym, ceildiv, coefficient, floordiv
from modelcc.ir.loop import Function
from modelcc.ir.tensor import Condition
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.group_schedule import Pointwise
from modelcc.schedule.lanes import Lanes
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching, extent_of


def lower_pointwise(kernel: GroupKernel, schedule: Pointwise) -> Function:
    """The function of a kernel; :class:`ScheduleError` if its stages do not share their axes, or
    vectors are not contiguous."""
    group, lanes = kernel.group, schedule.lanes
    if schedule.threads < 1 or lanes not in (1, 2, 4, 8) or not takes_lanes(group, lanes):
        raise ScheduleError("neighbours are no whole vectors side by side: threads, lanes")
    names, variables = kernel.names, group.final.parallel
    g, t = names.fresh("g"), names.fresh("t")
    total = floordiv(extent_of(variables), lanes)
    position = Sym(g) * schedule.threads + Sym(t)
    grid = ((g, ceildiv(total, schedule.threads)),)
    launch = Launching(grid, ((t, schedule.threads),), kernel.dims)
    lane = names.fresh("l")
    evaluation = Evaluation(names, lanes=Lanes(lane, lanes) if lanes > 1 else None)
    if lanes > 1:
        point = evaluation.place_vector(variables, position, lanes)
        point[variables[-1].name] += Sym(lane)
    else:
        point = evaluation.place(variables, position)
    reduced = [evaluation.reduce(nest, point) for nest in group.anchors]
    evaluation.finish(group, point, reduced)
    body = launch.guarded((Condition(position, "<", total),), evaluation.statements)
    return kernel.function(launch.around((), body))


def takes_lanes(group: Group, lanes: int) -> bool:
    """Whether vectors of ``lanes`` neighbours cover all results, and can be computed."""
    if lanes == 1:
        return True
    if not group.final.parallel or group.anchor is not None:
        return False
    last = group.final.parallel[-1]
    if not isinstance(last.extent, int) or last.extent % lanes:
        return False
    made = {nest.output for nest in group.nests}
    stored = (nest for nest in group.nests if nest.output in group.stored)
    whole = (vectorisable(n.body, last.name, lanes, made, aligned=True) for n in group.nests)
    return all(whole) and all(coefficient(nest.store, last.name) == 1 for nest in stored)
