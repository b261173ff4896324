"""Updates at destinations from memory: a copy, then groups that own destinations.

grid g; thread t
  numbers g * threads + t: one for each owner and each point of the axes along which no two updates
  collide
    for each update along the other axes, in the model's order
      the owner of its destination, if that is this thread, changes the element

So results are deterministic, without atomics: updates that may collide belong to one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.index import Sym, ceildiv, coefficient, floordiv, mod, substitute
from modelcc.ir.loop import For, Function, Load, Stmt, Store
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Condition
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.group_schedule import GroupScatter, ListedScatter
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel, buffer_parameter
from modelcc.targets.gpu.choice import copying
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching, extent_of, only_where
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.scatter.group_updates import GroupUpdates, find_updates
from modelcc.targets.gpu.scatter.listed_scatter import lower_listed_scatter
from modelcc.targets.gpu.scatter.scatter_choice import updating


def schedule_group_scatter(
    kernel: CanonicalKernel,
    initial: str,
    name: str,
    machine: GpuModel,
    source: tuple[str, ...] = (),
    wanted: GroupScatter | ListedScatter | None = None,
) -> tuple[ScheduledKernel, ...]:
    """A copy of ``initial`` and the updates of the copy, which are the only stage of ``kernel``, as
    ``wanted`` or by default; :class:`ScheduleError` if ``wanted`` does not fit."""
    ((stage,), (output,)) = kernel.stages, kernel.outputs
    alone = all(read.tensor != initial for read in reads(stage.body))
    over = ((output, initial),) if alone and initial not in kernel.constants else ()
    copy = _copy(kernel, initial, f"{name}.copy", machine, source, bool(over))
    updates = find_updates(kernel)
    used = {read.tensor for read in reads(stage.body)}
    own = replace(kernel, inputs=tuple(n for n in kernel.inputs if n in used))
    grouped = GroupKernel(own, name, source)
    schedule = wanted or updating(grouped, updates, machine)
    if isinstance(schedule, ListedScatter):
        function = lower_listed_scatter(grouped, updates, schedule)
    else:
        function = lower_scatter(grouped, updates, schedule)
    return ScheduledKernel(copy, {}, over), ScheduledKernel(function, {}, ())


def lower_scatter(kernel: GroupKernel, updates: GroupUpdates, schedule: GroupScatter) -> Function:
    """The function of the updates; :class:`ScheduleError` if there are no threads or owners."""
    owners = schedule.owners
    if schedule.threads < 1 or owners < 1 or (owners > 1 and not updates.meeting):
        raise ScheduleError("groups have threads, and updates that may meet have owners")
    names = kernel.names
    g, t, o = names.fresh("g"), names.fresh("t"), names.fresh("o")
    owner = LoopVar(o, owners, o)
    beside = bool(updates.apart) and coefficient(updates.nest.store, updates.apart[-1].name) == 1
    shares = (owner,) if owners > 1 else ()
    loops = (*shares, *updates.apart) if beside else (*updates.apart, *shares)
    position, total = Sym(g) * schedule.threads + Sym(t), extent_of(loops)
    grid = ((g, ceildiv(total, schedule.threads)),)
    launch = Launching(grid, ((t, schedule.threads),), kernel.dims)
    outer = Evaluation(names)
    point = outer.place(loops, position)
    inner = outer.nested() if updates.meeting else outer
    at = inner.bound(updates.places, point)
    changed = inner.nested()
    changed.store(updates.nest, at, changed.value(updates.value, at))
    whose = mod(substitute(updates.where, at), owners)
    mine = (Condition(whose, "==", point[o]),) if owners > 1 else ()
    inner.statements += only_where(mine, changed.statements)
    if inner is not outer:
        outer.statements += _loops(updates.meeting, inner.statements)
    body = launch.guarded((Condition(position, "<", total),), outer.statements)
    return kernel.function(launch.around((), body))


def _loops(variables: Sequence[LoopVar], body: Sequence[Stmt]) -> Sequence[Stmt]:
    for v in reversed(variables):
        body = (For(v.name, 0, v.extent, tuple(body)),)
    return body


def _copy(
    kernel: CanonicalKernel,
    initial: str,
    name: str,
    machine: GpuModel,
    source: tuple[str, ...],
    shared: bool,
) -> Function:
    """Copies a row-major tensor; nothing if both have the same memory."""
    types, (output,) = dict(kernel.types), kernel.outputs
    type = types[initial]
    both = frozenset((initial, output)) if shared else frozenset[str]()
    names = GroupKernel(kernel, name).names
    g, t = names.fresh("g"), names.fresh("t")
    schedule = copying(type.elements, machine)
    lanes, threads = schedule.lanes, schedule.threads
    total = floordiv(type.elements, lanes)
    position = Sym(g) * threads + Sym(t)
    launch = Launching(((g, ceildiv(total, threads)),), ((t, threads),), dict(kernel.dims))
    moved = Load(initial, position * lanes, type.dtype, lanes)
    body: Sequence[Stmt] = (Store(output, position * lanes, moved),)
    body = launch.around((), launch.guarded((Condition(position, "<", total),), body))
    parameters = (
        buffer_parameter(initial, type, False, both),
        buffer_parameter(output, types[output], True, both),
    )
    return Function(name, parameters, tuple(dict(kernel.dims)), body, source)
