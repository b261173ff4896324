"""Lowers one canonical kernel with a schedule, or by default, to a loop function.

The default is the first kind that fits: blocks of rows, groups of stages, sums of rows, unrelated
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from modelcc.ir.index import Bounds, coefficient, product
from modelcc.ir.library import LibraryFunction, meaning_of
from modelcc.ir.loop import Function, Stmt
from modelcc.ir.scalar_tree import depends_on, reads
from modelcc.ir.types import Layout, TensorType
from modelcc.passes.tensor.reduction_domain import reduction_domain
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.compute_at import group_stages, in_blocks
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.schedule import (
    ComputeAt,
    LibraryCall,
    NoScheduleError,
    Part,
    Parts,
    RowBlocks,
    Rows,
    RowSums,
    Schedule,
    ScheduleError,
    StraightRows,
    Tiled,
)
from modelcc.schedule.structure import make_group
from modelcc.schedule.sweeps import without_idle_loops
from modelcc.targets.cpu.border import clear_border
from modelcc.targets.cpu.in_place import pairs_in_place, pairs_of_parts
from modelcc.targets.cpu.libraries import external_call, library_calls
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.pieces import Piece, groups_of, parts_of
from modelcc.targets.cpu.plan import Plan
from modelcc.targets.cpu.row_blocks import emit_row_blocks, find_row_blocks
from modelcc.targets.cpu.row_sums import MOST_TERMS, emit_row_sums, find_row_sums
from modelcc.targets.cpu.rows import RowPlan, emit_rows, plan_rows
from modelcc.targets.cpu.scheduled_kernel import PARALLEL_CHUNKS, ScheduledKernel, buffer_parameter
from modelcc.targets.cpu.steps import Steps
from modelcc.targets.cpu.straight_rows import emit_straight_rows, find_straight_rows
from modelcc.targets.cpu.streaming import streams
from modelcc.targets.cpu.tiled import emit_tiled
from modelcc.targets.cpu.work import forks_if_worth, may_be_worth_a_fork, nanoseconds


class _Lowered(NamedTuple):
    """Statements, the schedule, the layouts of constants, and (output, input) pairs in place."""

    statements: list[Stmt]
    schedule: Schedule
    layouts: Mapping[str, Layout] = {}
    in_place: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class _Workload:
    kernel: CanonicalKernel
    names: FreshNames
    machine: CpuModel
    together: frozenset[tuple[str, str]] = frozenset()

    @property
    def types(self) -> Mapping[str, TensorType]:
        return dict(self.kernel.types)

    @property
    def dims(self) -> Bounds:
        return dict(self.kernel.dims)

    @property
    def worth_a_fork(self) -> bool:
        """Whether the whole kernel may take long enough to pay for threads."""
        return may_be_worth_a_fork(self.kernel.stages, self.types, self.dims)


def schedule_kernel(
    kernel: CanonicalKernel,
    name: str,
    machine: CpuModel,
    source: tuple[str, ...] = (),
    wanted: Schedule | None = None,
    states: frozenset[tuple[str, str]] = frozenset(),
) -> ScheduledKernel:
    """The function ``name`` of a kernel, scheduled as ``wanted`` or else by default.

    ``states`` are (output, input) pairs to be computed in place, if possible.
    :class:`NoScheduleError` if no default fits; :class:`ScheduleError` if ``wanted`` does not.
    """
    if wanted is None and machine.preferred:
        wanted = next(library_calls(kernel, machine), None)
    if isinstance(wanted, LibraryCall):
        call = external_call(kernel, wanted, machine)
        plain = _by_loops(kernel, name, machine, source, Parts((Tiled(),)), frozenset())
        return ScheduledKernel(LibraryFunction(call, meaning_of(plain.function)), {}, (), wanted)
    return _by_loops(kernel, name, machine, source, wanted, states)


def _by_loops(
    kernel: CanonicalKernel,
    name: str,
    machine: CpuModel,
    source: tuple[str, ...],
    wanted: Schedule | None,
    states: frozenset[tuple[str, str]],
) -> ScheduledKernel:
    types = dict(kernel.types)
    names = FreshNames(frozenset(name for name, _ in kernel.dims))
    statements: list[Stmt] = []
    for output in kernel.outputs:
        statements += clear_border(output, types[output], names, machine)
    lowered = _lowered(_Workload(kernel, names, machine, states), wanted)
    layouts = lowered.layouts
    laid_out = {n: t.with_layout(layouts.get(n, t.layout)) for n, t in types.items()}
    shared = frozenset(name for pair in lowered.in_place for name in pair)
    parameters = [buffer_parameter(n, laid_out[n], False, shared) for n in kernel.inputs]
    parameters += [buffer_parameter(n, laid_out[n], True, shared) for n in kernel.outputs]
    dims: Bounds = dict(kernel.dims)
    statements += lowered.statements
    body = without_idle_loops(statements, dims) if dims else tuple(statements)
    body = forks_if_worth(body, kernel.stages, types, dims)
    function = Function(name, tuple(parameters), tuple(dims), body, source)
    in_place = tuple(dict.fromkeys(lowered.in_place))
    return ScheduledKernel(function, layouts, in_place, lowered.schedule)


def _lowered(workload: _Workload, wanted: Schedule | None) -> _Lowered:
    if wanted is not None:
        if type(wanted) not in _KINDS:
            raise ScheduleError("processors have no groups of threads")
        lower, what = _KINDS[type(wanted)]
        lowered = lower(workload, wanted)
        if lowered is None:
            raise ScheduleError(f"the kernel is not {what}")
        return lowered
    found = (lower(workload, None) for lower, _ in _KINDS.values())
    return next(lowered for lowered in found if lowered is not None)


def _row_blocks(workload: _Workload, wanted: RowBlocks | None) -> _Lowered | None:
    kernel, machine = workload.kernel, workload.machine
    blocks = find_row_blocks(kernel, machine, wanted)
    if blocks is None:
        return None
    parallel = workload.worth_a_fork if wanted is None else wanted.parallel
    statements, planned = emit_row_blocks(blocks, kernel, workload.names, machine, parallel)
    tiles = {name: tiled for name, (_, tiled) in planned.products.items()}
    steps = planned.steps.schedules
    schedule = RowBlocks(blocks.rows, blocks.keys or 0, parallel, **tiles, steps=steps)
    return _Lowered(statements, schedule)


def _row_sums(workload: _Workload, wanted: RowSums | None) -> _Lowered | None:
    parallel = workload.worth_a_fork if wanted is None else wanted.parallel
    machine = workload.machine if parallel else replace(workload.machine, threads=1)
    found = find_row_sums(workload.kernel, machine)
    if found is None:
        return None
    if wanted is not None:
        if wanted.block < 1:
            raise ScheduleError(f"a block has columns, not {wanted.block}")
        if not 0 <= wanted.terms <= MOST_TERMS:
            raise ScheduleError(f"up to {MOST_TERMS} rows are added at once, not {wanted.terms}")
        found = replace(found, block=wanted.block, terms=wanted.terms or found.terms)
    steps = Steps() if wanted is None else Steps(wanted.steps)
    args = workload.kernel, workload.names, workload.machine
    statements = emit_row_sums(found, *args, parallel, steps)
    steps.check()
    return _Lowered(statements, RowSums(found.block, parallel, found.terms, steps.schedules))


def _compute_at(workload: _Workload, wanted: ComputeAt | None) -> _Lowered | None:
    """Group by group, interleaved block by block if there are blocks."""
    kernel, machine = workload.kernel, workload.machine
    grouped = group_stages(kernel)
    if grouped is None:
        return None
    if wanted is not None and len(wanted.groups) != len(grouped.groups):
        raise ScheduleError(f"there are {len(grouped.groups)} groups, not {len(wanted.groups)}")
    pieces = groups_of(kernel, grouped)
    plans: list[Plan] = []
    layouts: dict[str, Layout] = {}
    asked = [None] * len(pieces) if wanted is None else wanted.groups
    for piece, one in zip(pieces, asked, strict=True):
        plan, layout = piece.plan(machine, one)
        layouts |= layout
        plans.append(plan)
    chunks = _group_chunks(pieces) if wanted is None else [p.parallel for p in wanted.groups]
    _check_one_fork([c > 1 for c in chunks], grouped.outer)
    ahead = streams(grouped, plans, kernel.constants)
    statements: list[Stmt] = []
    for plan, stream, parts in zip(plans, ahead, chunks, strict=True):
        statements += emit_tiled(plan, workload.names, parts, stream, frozenset(grouped.scratch))
    several = product(axis.extent for axis in grouped.outer) != 1
    worth = workload.worth_a_fork and several if wanted is None else wanted.parallel
    types = {**workload.types, **grouped.scratch}
    together = workload.together
    in_place = [
        pair for plan in plans for pair in _alone_in_place(plan, plans, kernel, types, together)
    ]
    schedules = zip(plans, chunks, strict=True)
    groups = tuple(replace(plan.schedule, parallel=parts) for plan, parts in schedules)
    body = in_blocks(grouped, workload.names, statements, worth)
    return _Lowered(body, ComputeAt(groups, worth), layouts, in_place)


def _group_chunks(groups: Sequence[Piece]) -> list[int]:
    """A function forks at most once: for its blocks, else for the first group."""
    first, *rest = groups
    worth = not first.outer and may_be_worth_a_fork(first.stages, first.types, first.dims)
    return [PARALLEL_CHUNKS if worth else 1, *(1 for _ in rest)]


def _check_one_fork(parallel: Sequence[bool], outer: Sequence[object] = ()) -> None:
    if sum(parallel) > (0 if outer else 1):
        raise ScheduleError("a function forks once: one part may be parallel")


def _alone_in_place(
    plan: Plan,
    plans: Sequence[Plan],
    kernel: CanonicalKernel,
    types: Mapping[str, TensorType],
    together: frozenset[tuple[str, str]],
) -> list[tuple[str, str]]:
    """(output, input) pairs of one group, whose input no other group reads."""
    if plan.overwrites_early:
        return []
    others = [n for p in plans if p is not plan for n in p.group.nests]
    read = {r.tensor for n in others for r in reads(n.body)}
    found = pairs_in_place(plan.group.nests, plan.group.stored, kernel, types, together)
    return [(output, name) for output, name in found if name not in read]


def _parts(workload: _Workload, wanted: Parts | None) -> _Lowered:
    """Unrelated parts, one after the other."""
    parts = parts_of(workload.kernel)
    if wanted is not None:
        if len(wanted.parts) != len(parts):
            raise ScheduleError(f"there are {len(parts)} parts, not {len(wanted.parts)}")
        _check_one_fork([_is_parallel(part) for part in wanted.parts])
    # A function forks at most once: for its most expensive part.
    times = [nanoseconds(part.stages, part.types) for part in parts]
    dearest = times.index(max(times)) if times else 0
    lowered: list[_LoweredPart] = []
    for number, part in enumerate(parts):
        worth = number == dearest and may_be_worth_a_fork(part.stages, part.types, part.dims)
        one = None if wanted is None else wanted.parts[number]
        lowered.append(_part(workload, part, worth, one))
    return _Lowered(
        [statement for part in lowered for statement in part.statements],
        Parts(tuple(part.schedule for part in lowered)),
        {name: layout for part in lowered for name, layout in part.layouts.items()},
        [pair for part in lowered for pair in part.in_place],
    )


def _is_parallel(part: Part) -> bool:
    return part.parallel is True if isinstance(part, StraightRows) else part.parallel > 1


class _LoweredPart(NamedTuple):
    statements: list[Stmt]
    schedule: Part
    layouts: Mapping[str, Layout] = {}
    in_place: Sequence[tuple[str, str]] = ()


def _part(workload: _Workload, piece: Piece, worth: bool, wanted: Part | None) -> _LoweredPart:
    """Stages that belong together, on threads if ``worth`` it or as ``wanted``."""
    kernel, names, machine = workload.kernel, workload.names, workload.machine
    types = workload.types
    rows = None
    if wanted is None or isinstance(wanted, StraightRows):
        rows = find_straight_rows(piece.stages, types, workload.dims)
    if rows is not None:
        parallel = worth if wanted is None else wanted.parallel is True
        steps = Steps(wanted.parts if isinstance(wanted, StraightRows) else ())
        body, plans = emit_straight_rows(rows, kernel, names, machine, parallel, steps)
        steps.check()
        in_place = pairs_of_parts(plans, kernel, types)
        parts = tuple(plan.schedule for plan in plans)
        return _LoweredPart(body, StraightRows(parts, parallel), {}, in_place)
    if isinstance(wanted, StraightRows):
        raise ScheduleError("no part moves rows that are bent at their ends")
    plan, layouts = _plan(piece.with_choices(), machine, wanted)
    chunks = (PARALLEL_CHUNKS if worth else 1) if wanted is None else wanted.parallel
    schedule = replace(plan.schedule, parallel=chunks)
    if isinstance(plan, RowPlan):
        in_place = pairs_in_place(plan.nests, plan.stored, kernel, types)
        return _LoweredPart(emit_rows(plan, names, chunks), schedule, layouts, in_place)
    nests = () if plan.overwrites_early else plan.group.nests
    in_place = pairs_in_place(nests, plan.group.stored, kernel, types, workload.together)
    return _LoweredPart(emit_tiled(plan, names, chunks), schedule, layouts, in_place)


def _plan(
    piece: Piece, machine: CpuModel, wanted: Tiled | Rows | None
) -> tuple[Plan | RowPlan, Mapping[str, Layout]]:
    outputs, types, dims = piece.stored, piece.types, piece.dims
    shared = piece.on_shared_axes()
    tiled = isinstance(wanted, Tiled)
    if isinstance(wanted, Tiled) and shared is not None:
        return shared.plan(machine, wanted)
    if wanted is None and shared is not None and not _prefers_rows(shared):
        return shared.plan(machine, None)
    domain = None if tiled else reduction_domain(piece.stages)
    if domain is not None and not any(
        domain.repeats(s) for s in domain.stages if s.output in outputs
    ):
        asked = wanted if isinstance(wanted, Rows) else None
        rows = plan_rows(domain, outputs, types, dims, machine, asked)
        if rows is not None:
            return rows, {}
    if wanted is not None:
        raise ScheduleError(f"stages do not share their {'axes' if tiled else 'rows'}")
    if shared is None:
        raise NoScheduleError
    return shared.plan(machine, None)


def _prefers_rows(piece: Piece) -> bool:
    """Whether rows are contiguous along the reduction but not along the output's inner loop."""
    if not piece.stages[0].reduce:
        return False
    group = make_group(piece.stages, piece.stored, piece.types, piece.dims, piece.packable)
    anchor = group.anchor
    if anchor is None:
        return False
    found = [r for r in reads(anchor.body) if len(r.indices) == 1]
    loads = [r for r in found if r.tensor not in piece.packable]
    row = [coefficient(r.indices[0], anchor.reduce[-1].name) for r in loads]
    if 1 not in row or any(c not in (0, 1) for c in row):
        return False
    inner = next((v for v in reversed(group.final.parallel) if v.extent != 1), None)
    if inner is None:
        return True
    across = [coefficient(r.indices[0], inner.name) for r in loads]
    moves = depends_on(anchor.body, inner.name)
    return not moves or any(c not in (0, 1) for c in across)


_KINDS: Mapping[type, tuple[Callable[..., _Lowered | None], str]] = {
    RowBlocks: (_row_blocks, "two contractions of which one sums rows of the other"),
    ComputeAt: (_compute_at, "made of groups of stages that hand on values"),
    RowSums: (_row_sums, "one row times a long matrix that comes at run time"),
    Parts: (_parts, ""),
}
"""The lowerings by kind of schedule, in the order in which the default tries them."""
