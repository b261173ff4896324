"""Stages that walk rows (softmax, norms): threads share each row, and what it is reduced to.

grid g; thread r (rows), w (warps), t (places)
  for each walk: elements t, t + threads, … of the row, or vectors of them, kept in registers or
  found anew
    own = these reduced, or they are stored
  own of all threads are combined as in :mod:`modelcc.targets.gpu.rows.reduction`
  all threads go on with what the row is reduced to
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modelcc.ir.index import Index, Sym, ceildiv, coefficient, loop_range, minimum, symbols
from modelcc.ir.loop import Alloc, Expr, For, Function, Predicate, Select, Stmt, Var
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Condition, Read, Stage
from modelcc.ir.types import F32
from modelcc.passes.tensor.reduction_domain import ReductionDomain, reduction_domain
from modelcc.schedule.expression import accumulate
from modelcc.schedule.group_schedule import GroupRows
from modelcc.schedule.lanes import widen
from modelcc.schedule.nest import LoopVar, Nest, linearise, merge_loops
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import strip_indices
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching, extent_of
from modelcc.targets.gpu.rows.reduction import (
    lanes_of,
    one_lane,
    plain_reads,
    takes_vectors,
    verify_shares,
)
from modelcc.targets.gpu.rows.team import Team


@dataclass(frozen=True)
class RowStages:
    """Nests over ``outer`` and ``row`` loops, in the order of the kernel's stages; ``walking`` are
    the tensors that have an element for each place of a row."""

    outer: tuple[LoopVar, ...]
    row: tuple[LoopVar, ...]
    nests: tuple[Nest, ...]
    walking: frozenset[str]

    @cached_property
    def walks(self) -> tuple[tuple[Nest, ...], ...]:
        """Nests that one walk along the row can find together, none hanging on a reduction of its
        own walk; nests of no walk are in that of the reductions they follow."""
        found: list[list[Nest]] = [[]]
        unknown: set[str] = set()
        for nest in self.nests:
            used = {r.tensor for r in reads(nest.body)}
            waits = bool(used & unknown)
            if waits and (nest.reduce or nest.output in self.walking):
                found.append([])
                unknown = set()
                waits = False
            found[-1].append(nest)
            if nest.reduce or waits:
                unknown.add(nest.output)
        return tuple(map(tuple, found))


def find_rows(kernel: GroupKernel) -> RowStages:
    """The rows that the stages of a kernel walk; :class:`ScheduleError` if they share none."""
    domain = reduction_domain(kernel.kernel.stages)
    if domain is None or any(domain.repeats(s) for s in domain.stages if s.output in kernel.stored):
        raise ScheduleError("stages do not share their rows")
    nests: Sequence[Nest] = [_row_nest(kernel, domain, stage) for stage in domain.stages]
    outer = frozenset(a.name for a in domain.outer)
    nests = merge_loops(nests, outer)
    row = frozenset(v.name for v in nests[0].parallel) - outer
    nests = merge_loops(nests, row)
    loops = nests[0].parallel
    walking = frozenset(s.output for s in domain.stages if domain.walks_rows(s))
    return RowStages(
        tuple(v for v in loops if v.name not in row),
        tuple(v for v in loops if v.name in row),
        tuple(nests),
        walking,
    )


def _row_nest(kernel: GroupKernel, domain: ReductionDomain, stage: Stage) -> Nest:
    """Nest of one stage; its parallel loops are all of the domain."""
    made = frozenset(s.output for s in domain.stages)
    nest = linearise(stage, kernel.types, kernel.dims, made, {})
    loops = tuple(LoopVar(a.name, a.extent, a.name) for a in (*domain.outer, *domain.row))
    ranges = {**nest.ranges, **{v.name: loop_range(v.extent) for v in loops}}
    body = strip_indices(nest.body, made)
    return replace(nest, parallel=loops, ranges=ranges, body=body)


def lower_rows(kernel: GroupKernel, schedule: GroupRows) -> Function:
    """The function of a kernel; :class:`ScheduleError` if its stages share no rows, or threads
    keep less than a row."""
    stages = find_rows(kernel)
    verify_rows(kernel, schedule, stages)
    fresh = kernel.names.fresh
    g, total = fresh("g"), extent_of(stages.outer)
    team = Team.of(schedule, schedule.rows, fresh("r"), fresh("w"), fresh("t"))
    launch = Launching(((g, ceildiv(total, schedule.rows)),), team.loops, kernel.dims)
    outer, number = Evaluation(kernel.names), Sym(g) * schedule.rows + team.row
    shared = RowThreads(kernel, schedule, stages, team, launch, outer, number).walk()
    return kernel.function(launch.around(shared, outer.statements))


def verify_rows(kernel: GroupKernel, schedule: GroupRows, stages: RowStages) -> None:
    """:class:`ScheduleError` if threads cannot walk the ``stages`` of a kernel so."""
    for nest in stages.nests:
        verify_shares(schedule, nest.body.dtype if nest.reduce else F32)
    if schedule.rows < 1 or schedule.kept % schedule.lanes:
        raise ScheduleError("groups have rows, of which threads keep whole vectors")
    if schedule.ahead and not schedule.kept:
        raise ScheduleError("threads that keep nothing read nothing ahead: ahead, kept")
    if schedule.lanes > 1 and not takes_lanes(kernel, stages, schedule.lanes):
        raise ScheduleError("places of a row are no whole vectors: lanes")
    length = extent_of(stages.row)
    most = schedule.kept * schedule.threads
    if schedule.kept and not (isinstance(length, int) and length <= most):
        raise ScheduleError("threads keep whole rows: kept")


def reads_ahead(stages: RowStages) -> tuple[Read, ...]:
    """What is read along the row by no stage of the first walk, at places that nothing tells but
    the row's; a guard may keep others from what is not there."""
    first, *later = stages.walks
    known = {r.tensor for nest in first for r in reads(nest.body)}
    made = {nest.output for nest in stages.nests}
    last = {v.name for v in stages.row}

    def found(nest: Nest) -> Iterator[Read]:
        for read in plain_reads(nest.body):
            along = len(read.indices) == 1 and symbols(read.indices[0]) & last
            if along and read.tensor not in known | made:
                yield read

    return tuple(dict.fromkeys(r for walk in later for nest in walk for r in found(nest)))


def takes_lanes(kernel: GroupKernel, stages: RowStages, lanes: int) -> bool:
    """Whether rows can be walked by vectors, whose results lie side by side."""
    if not takes_vectors(stages.nests, stages.row, lanes):
        return False
    last = stages.row[-1].name
    stored = (n for n in stages.nests if n.output in kernel.stored & stages.walking)
    return all(coefficient(nest.store, last) == 1 for nest in stored)


class RowThreads:
    """What a thread of a ``team`` does with row ``number``, among the statements of ``outer``, in
    loops that are launched so."""

    def __init__(
        self,
        kernel: GroupKernel,
        schedule: GroupRows,
        stages: RowStages,
        team: Team,
        launch: Launching,
        outer: Evaluation,
        number: Index,
    ) -> None:
        self._kernel, self._schedule, self._stages = kernel, schedule, stages
        self._team, self._launch, self._outer = team, launch, outer
        self._thread = team.thread
        self._lanes = lanes_of(kernel, schedule.lanes)
        total = extent_of(stages.outer)
        self._inside = (Condition(number, "<", total),)
        known = not launch.unknown(self._inside)
        where = number if known else minimum(number, total - 1)
        self._point = outer.place(stages.outer, where)
        self._values: dict[str, Expr] = {}
        self._shared: list[Stmt] = []

    def walk(self) -> Sequence[Stmt]:
        """All walks; memory that they take."""
        places = self._kept_places() if self._schedule.kept else None
        for walk in self._stages.walks:
            self._follow(walk)
            own = self._registers(walk)
            if places is not None:
                for place in places:
                    self._visit(walk, own, place)
                if walk is self._stages.walks[0] and self._schedule.ahead:
                    self._read_ahead(places)
            elif any(n.reduce or self._stores_row(n) for n in walk):
                self._walk(walk, own)
            self._combine(walk, own)
            self._follow(walk)
        return self._shared

    def _registers(self, walk: Sequence[Nest]) -> dict[str, Var]:
        outer, lanes = self._outer, self._schedule.lanes
        neutral = {n.output: widen(outer.neutral(n), lanes) for n in walk if n.reduce}
        return {name: outer.register("own", value) for name, value in neutral.items()}

    def _stores_row(self, nest: Nest) -> bool:
        return nest.output in self._kernel.stored & self._stages.walking

    def _kept_places(self) -> list[_RowPlace]:
        """The places of a thread, whose values stay in registers."""
        whole, threads = extent_of(self._stages.row), self._schedule.threads
        assert isinstance(whole, int)
        places: list[_RowPlace] = []
        length = whole // self._schedule.lanes
        for number in range(-(-length // threads)):
            position = self._thread + number * threads
            there = () if (number + 1) * threads <= length else (Condition(position, "<", length),)
            evaluation = self._outer.beside(self._lanes)
            last = minimum(position, length - 1) if there else position
            point = {**self._point, **evaluation.place_lanes(self._stages.row, last)}
            places.append(_RowPlace(evaluation, point, there, {}))
        return places

    def _read_ahead(self, places: Sequence[_RowPlace]) -> None:
        for place in places:
            for read in reads_ahead(self._stages):
                place.evaluation.value(read, place.point)

    def _walk(self, walk: Sequence[Nest], own: dict[str, Var]) -> None:
        """Along the whole row, what is needed of earlier values being found anew."""
        place = self._kernel.names.fresh("p")
        inner = self._outer.nested(self._lanes)
        point = {**self._point, **inner.place_lanes(self._stages.row, Sym(place))}
        here = _RowPlace(inner, point, (), {})
        self._visit(walk, own, here)
        length = ceildiv(extent_of(self._stages.row), self._schedule.lanes)
        body = tuple(inner.statements)
        loop = For(place, self._thread, length, body, self._schedule.threads)
        self._outer.statements.append(loop)

    def _visit(self, walk: Sequence[Nest], own: dict[str, Var], place: _RowPlace) -> None:
        """What ``walk`` does at one place of the row."""
        for nest in walk:
            if nest.reduce:
                assert nest.combine is not None
                lanes = self._schedule.lanes
                value = widen(self._value(nest, place), lanes)
                if place.there:
                    neutral = widen(place.evaluation.neutral(nest), lanes)
                    value = Select(widen(Predicate(place.there), lanes), value, neutral)
                register = own[nest.output].name
                place.evaluation.statements.append(accumulate(nest.combine, register, value, lanes))
            elif self._stores_row(nest):
                value = self._walking_value(nest, place)
                stored = place.evaluation.nested(self._lanes)
                stored.store(nest, place.point, value)
                conditions = (*self._inside, *place.there)
                place.evaluation.statements += self._launch.guarded(conditions, stored.statements)

    def _value(self, nest: Nest, place: _RowPlace) -> Expr:
        """The body of ``nest`` at a place, where values of earlier stages are found first."""
        by_name = {n.output: n for n in self._stages.nests}
        needed = dict.fromkeys(r.tensor for r in reads(nest.body) if r.tensor in by_name)
        for name in needed:
            if name in self._stages.walking:
                self._walking_value(by_name[name], place)
        return place.evaluation.value(nest.body, place.point, {**self._values, **place.values})

    def _walking_value(self, nest: Nest, place: _RowPlace) -> Expr:
        if nest.output not in place.values:
            value = self._value(nest, place)
            place.values[nest.output] = place.evaluation.named("v", value)
        return place.values[nest.output]

    def _combine(self, walk: Sequence[Nest], own: dict[str, Var]) -> None:
        """All threads get what the row is reduced to."""
        outer = self._outer
        for nest in walk:
            if not nest.reduce:
                continue
            assert nest.combine is not None
            total = one_lane(nest.combine, own[nest.output])
            part = self._team.part(self._kernel.names.fresh("part"), total.dtype)
            self._shared += [] if part is None else [Alloc(part)]
            total = self._team.combined(outer, nest.combine, total, part, everywhere=True)
            self._finish(nest, outer.named("s", total))

    def _follow(self, walk: Sequence[Nest]) -> None:
        """Values of whole rows, which every thread finds as soon as what they need is known."""
        made = {n.output for n in self._stages.nests}
        for nest in walk:
            needed = {r.tensor for r in reads(nest.body)} & made
            known = self._values.keys()
            if nest.reduce or nest.output in self._stages.walking | known or needed - known:
                continue
            value = self._outer.value(nest.body, self._point, self._values)
            self._finish(nest, self._outer.named("s", value))

    def _finish(self, nest: Nest, value: Expr) -> None:
        self._values[nest.output] = value
        if nest.output in self._kernel.stored:
            stored = self._outer.nested()
            stored.store(nest, self._point, value)
            mine = (Condition(self._thread, "==", 0), *self._inside)
            self._outer.statements += self._launch.guarded(mine, stored.statements)


@dataclass
class _RowPlace:
    """A place of a row: where it is, whether it is ``there``, and values found at it."""

    evaluation: Evaluation
    point: dict[str, Index]
    there: tuple[Condition, ...]
    values: dict[str, Expr]
