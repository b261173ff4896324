"""Stages that walk rows (softmax, norms): threads share each row, and what it is reduced to.

grid g; thread r (rows), t (places)
  for each walk: elements t, t + threads, … of the row, kept in registers or found anew
    own = these reduced, or they are stored
  part[r, t] = own, combined as in :mod:`modelcc.targets.gpu.reduction`; barrier
  all threads go on with what the row is reduced to
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modelcc.ir.index import Index, Sym, ceildiv, loop_range, minimum
from modelcc.ir.loop import Alloc, Barrier, Expr, For, Function, Predicate, Select, Stmt, Var
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Condition, Stage
from modelcc.passes.tensor.reduction_domain import ReductionDomain, reduction_domain
from modelcc.schedule.expression import accumulate
from modelcc.schedule.group_schedule import GroupRows
from modelcc.schedule.nest import LoopVar, Nest, linearise, merge_loops
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import strip_indices
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Launching, extent_of
from modelcc.targets.gpu.reduction import SharedParts, is_power_of_two


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
    if kernel.checks:
        raise ScheduleError("threads share rows whose indices are known to be in their bounds")
    if not is_power_of_two(schedule.threads) or schedule.rows < 1:
        raise ScheduleError("groups of a power of two of threads share rows")
    stages = find_rows(kernel)
    length = extent_of(stages.row)
    most = schedule.kept * schedule.threads
    if schedule.kept and not (isinstance(length, int) and length <= most):
        raise ScheduleError("threads keep whole rows: kept")
    return _RowThreads(kernel, schedule, stages).function()


class _RowThreads:
    """What a thread does."""

    def __init__(self, kernel: GroupKernel, schedule: GroupRows, stages: RowStages) -> None:
        self._kernel, self._schedule, self._stages = kernel, schedule, stages
        fresh = kernel.names.fresh
        g, r, t = fresh("g"), fresh("r"), fresh("t")
        total = extent_of(stages.outer)
        loops = ((r, schedule.rows), (t, schedule.threads))
        grid = ((g, ceildiv(total, schedule.rows)),)
        self._launch = Launching(grid, loops, kernel.dims)
        self._row, self._thread = Sym(r), Sym(t)
        number = Sym(g) * schedule.rows + Sym(r)
        self._inside = (Condition(number, "<", total),)
        known = not self._launch.unknown(self._inside)
        self._outer = Evaluation(kernel.names)
        where = number if known else minimum(number, total - 1)
        self._point = self._outer.place(stages.outer, where)
        self._values: dict[str, Expr] = {}
        self._shared: list[Stmt] = []

    def function(self) -> Function:
        """Grid, threads, and what these do."""
        places = self._kept_places() if self._schedule.kept else None
        for walk in self._stages.walks:
            self._follow(walk)
            own = self._registers(walk)
            if places is not None:
                for place in places:
                    self._visit(walk, own, place)
            elif any(n.reduce or self._stores_row(n) for n in walk):
                self._walk(walk, own)
            self._combine(walk, own)
            self._follow(walk)
        return self._kernel.function(self._launch.around(self._shared, self._outer.statements))

    def _registers(self, walk: Sequence[Nest]) -> dict[str, Var]:
        outer = self._outer
        return {n.output: outer.register("own", outer.neutral(n)) for n in walk if n.reduce}

    def _stores_row(self, nest: Nest) -> bool:
        return nest.output in self._kernel.stored & self._stages.walking

    def _kept_places(self) -> list[_RowPlace]:
        """The places of a thread, whose values stay in registers."""
        length, threads = extent_of(self._stages.row), self._schedule.threads
        assert isinstance(length, int)
        places: list[_RowPlace] = []
        for number in range(-(-length // threads)):
            position = self._thread + number * threads
            there = () if (number + 1) * threads <= length else (Condition(position, "<", length),)
            evaluation = self._outer.beside()
            last = minimum(position, length - 1) if there else position
            point = {**self._point, **evaluation.place(self._stages.row, last)}
            places.append(_RowPlace(evaluation, point, there, {}))
        return places

    def _walk(self, walk: Sequence[Nest], own: dict[str, Var]) -> None:
        """Along the whole row, what is needed of earlier values being found anew."""
        place = self._kernel.names.fresh("p")
        inner = self._outer.nested()
        point = {**self._point, **inner.place(self._stages.row, Sym(place))}
        here = _RowPlace(inner, point, (), {})
        self._visit(walk, own, here)
        length = extent_of(self._stages.row)
        body = tuple(inner.statements)
        loop = For(place, self._thread, length, body, self._schedule.threads)
        self._outer.statements.append(loop)

    def _visit(self, walk: Sequence[Nest], own: dict[str, Var], place: _RowPlace) -> None:
        """What ``walk`` does at one place of the row."""
        for nest in walk:
            if nest.reduce:
                assert nest.combine is not None
                value = self._value(nest, place)
                if place.there:
                    neutral = place.evaluation.neutral(nest)
                    value = Select(Predicate(place.there), value, neutral)
                register = own[nest.output].name
                place.evaluation.statements.append(accumulate(nest.combine, register, value, 1))
            elif self._stores_row(nest):
                value = self._walking_value(nest, place)
                stored = place.evaluation.nested()
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
            total: Expr = own[nest.output]
            if self._schedule.threads > 1:
                name, rows = self._kernel.names.fresh("part"), self._schedule.rows
                part = SharedParts(name, total.dtype, self._schedule.threads, rows, False)
                self._shared.append(Alloc(part.buffer))
                outer.statements += part.combined(nest.combine, total, self._row, self._thread)
                outer.statements.append(Barrier())
                total = part.at(self._row, 0)
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
