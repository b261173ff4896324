"""Reductions whose terms are shared among threads, which combine what each has.

grid g; thread r (results), w (warps), t (terms)
  own = the terms of the thread: every so-manieth, or vectors of them
  own combined with that of t xor 16, 8, 4, 2, 1; part[r, w] = own; barrier; all parts combined
  the first thread of a result does what follows

Where threads exchange no registers, or neighbours have neighbouring results, all is in memory:

  part[r, t] = own
  barrier, and the upper half is combined with the lower one, until one element is left
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from modelcc.ir.index import Index, Sym, ceildiv, coefficient, floordiv, minimum
from modelcc.ir.loop import (
    Alloc,
    Expr,
    For,
    Function,
    Reduce,
    Stmt,
)
from modelcc.ir.scalar import Combine
from modelcc.ir.scalar_tree import children
from modelcc.ir.tensor import Bind, Condition, Guard, Read, Scalar
from modelcc.ir.types import DType
from modelcc.schedule.expression import accumulate, combine_function, vectorisable
from modelcc.schedule.group_schedule import GroupReduction, GroupRows
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.contraction import find_contraction
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    extent_of,
)
from modelcc.targets.gpu.rows.team import Team

EXCHANGED_BITS = 32
"""Of a register that threads exchange."""


@dataclass(frozen=True)
class MadeFirst:
    """An operand that all threads of a group make in shared memory before they use it: ``code``
    adds what these do, in a team each, to an evaluation, and gives the memory."""

    tensor: str
    code: Callable[[Evaluation, Team, Launching], Sequence[Stmt]]


def lower_reduction(kernel: GroupKernel, schedule: GroupReduction) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it does not begin with a reduction, or
    terms are no whole vectors."""
    return kernel.function(reduction_body(kernel, schedule))


def reduction_body(
    kernel: GroupKernel, schedule: GroupReduction, first: MadeFirst | None = None
) -> tuple[Stmt, ...]:
    """What :func:`lower_reduction` does; what is read besides an operand that is made ``first`` is
    on its way meanwhile, as far as a thread reads ahead."""
    nest, s = kernel.group.anchor, schedule
    if nest is None or nest.combine is None or not share_terms(kernel.group.anchors):
        raise ScheduleError("threads share reductions")
    verify_shares(s, nest.body.dtype)
    if s.ahead < 1:
        raise ScheduleError("threads read vectors ahead")
    if s.results < 1 or (s.across and s.warp != 1):
        raise ScheduleError("groups have results, whose neighbours exchange no registers")
    if s.lanes > 1 and not takes_vectors(kernel.group.anchors, nest.reduce[-1:], s.lanes):
        raise ScheduleError("terms are no whole vectors: lanes")
    fresh = kernel.names.fresh
    few = few_rows(nest, s.rows) if s.rows > 1 else ()
    if s.rows != extent_of(few):
        raise ScheduleError("threads have all rows of a contraction: rows")
    teams = results_beside(nest, few) if s.columns > 1 else without(nest.parallel, few)
    verify_columns(kernel.group, s, teams)
    total = floordiv(extent_of(teams), s.columns)
    team = Team.of(s, s.results, fresh("r"), fresh("w"), fresh("t"))
    grid = fresh("g")
    launch = Launching(((grid, ceildiv(total, s.results)),), team.loops, kernel.dims)
    position = Sym(grid) * s.results + team.row
    inside = launch.unknown((Condition(position, "<", total),))
    outer = Evaluation(kernel.names)
    place = minimum(position, total - 1) if inside else position
    beside = lanes_of(kernel, s.columns)
    if beside is None:
        point = outer.place(teams, place)
    else:
        units = {v.name: 0 for v in without(nest.parallel, (*teams, *few))}
        point = {**units, **outer.place_vector(teams, place, s.columns)}
        point[teams[-1].name] += Sym(beside.variable)
    points = _rows_at(few, point)
    sums = _TermSums(kernel, s, team, outer, points, beside)
    shared = list(sums.begin(first, launch)) if first is not None else []
    owns = sums.own()
    parts = [team.part(fresh("part"), own.dtype) for own in owns]
    shared += [Alloc(part) for part in parts if part is not None]
    wholes = [
        team.combined(outer, nest.combine, own, part, everywhere=False)
        for own, part in zip(owns, parts, strict=True)
    ]
    last, each = outer.nested(beside), len(kernel.group.anchors)
    for number, at in enumerate(points):
        last.finish(kernel.group, at, wholes[number * each : (number + 1) * each])
    mine = (Condition(team.thread, "==", 0), Condition(position, "<", total))
    body = [*outer.statements, *launch.guarded(mine, last.statements)]
    return launch.around(shared, body)


def share_terms(nests: Sequence[Nest]) -> bool:
    """Whether ``nests`` reduce the same terms in the same way, each for the same results."""
    first = nests[0]
    facts = first.parallel, first.reduce, first.combine, first.body.dtype
    return all((n.parallel, n.reduce, n.combine, n.body.dtype) == facts for n in nests)


def few_rows(nest: Nest, most: int) -> tuple[LoopVar, ...]:
    """The loops over rows of a contraction, or over its columns, if these are up to ``most``, and
    known: what its other operand is read once for; none if there are no such."""
    found = find_contraction(nest)
    for side in () if found is None else (found.rows, found.columns):
        extent = extent_of(side)
        if isinstance(extent, int) and 1 < extent <= most:
            return side
    return ()


def _rows_at(few: Sequence[LoopVar], point: Point) -> list[Point]:
    """All points along ``few`` loops, each with the others of ``point``."""
    extents = [range(v.extent) for v in few if isinstance(v.extent, int)]
    names = [v.name for v in few]
    return [{**point, **dict(zip(names, at, strict=True))} for at in product(*extents)]


class _TermSums:
    """What a thread's terms are combined to by each nest that reduces, at each of ``points``, one
    after the other, each of which may have others ``beside`` it."""

    def __init__(
        self,
        kernel: GroupKernel,
        s: GroupReduction,
        team: Team,
        outer: Evaluation,
        points: Sequence[Point],
        beside: Lanes | None,
    ) -> None:
        self._s, self._team, self._outer, self._names = s, team, outer, kernel.names
        self._points, self._beside = points, beside
        self._nests = nests = kernel.group.anchors
        zero = widen(outer.neutral(nests[0]), max(s.lanes, s.columns))
        self._registers = [outer.register("own", zero) for _ in points for _ in nests]
        self._term = kernel.names.fresh("k")
        self._count = ceildiv(extent_of(nests[0].reduce), s.lanes)
        self._lanes = beside or lanes_of(kernel, s.lanes)
        self._done = 0

    def begin(self, first: MadeFirst, launch: Launching) -> Sequence[Stmt]:
        """The first vectors; all that they need besides what is made ``first`` is read before
        that.  Memory that this takes."""
        several = 0
        if isinstance(self._count, int):
            several = min(self._s.ahead, self._count // self._s.threads)
        inner = self._outer.beside(self._lanes)
        places = self._places(inner, self._vectors(self._team.thread, several))
        for place in places:
            for body, point in self._each():
                for read in plain_reads(body):
                    if read.tensor != first.tensor:
                        inner.value(read, {**point, **place})
        shared = first.code(self._outer, self._team, launch)
        if places:
            sums = inner.inside()
            sums.statements += self._added(sums, places)
            # A loop, of one turn: behind the last one the next kernel may be launched.
            turn = self._names.fresh("n")
            self._outer.statements.append(For(turn, 0, 1, tuple(sums.statements)))
        self._done = several * self._s.threads
        return shared

    def own(self) -> list[Expr]:
        """All sums."""
        s, start, count = self._s, self._team.thread, self._count
        step, done = s.threads * s.ahead, self._done
        if s.ahead > 1 and isinstance(count, int):
            whole = done + (count - done) // step * step
            if whole > done:
                several = self._terms(self._vectors(Sym(self._term), s.ahead))
                loop = For(self._term, start + done, whole, several, step)
                self._outer.statements.append(loop)
            rest = (count - whole) // s.threads
            if rest:
                self._outer.statements += self._terms(self._vectors(start + whole, rest))
            done = whole + rest * s.threads
        if done != count:
            left = self._terms([Sym(self._term)])
            loop = For(self._term, start + done, count, left, s.threads)
            self._outer.statements.append(loop)
        combine = self._nests[0].combine
        assert combine is not None
        owns = self._registers
        return [one_lane(combine, own) if self._beside is None else own for own in owns]

    def _vectors(self, first: Index, several: int) -> list[Index]:
        return [first + number * self._s.threads for number in range(several)]

    def _each(self) -> list[tuple[Scalar, Point]]:
        return [(nest.body, point) for point in self._points for nest in self._nests]

    def _places(self, inner: Evaluation, vectors: Sequence[Index]) -> list[Point]:
        place = inner.place_lanes if self._beside is None else inner.place
        return [place(self._nests[0].reduce, vector) for vector in vectors]

    def _terms(self, vectors: Sequence[Index]) -> tuple[Stmt, ...]:
        """The ``vectors`` of all points, which are read before the first one is used."""
        inner = self._outer.nested(self._lanes)
        more = [s for vector in vectors for s in self._added(inner, self._places(inner, [vector]))]
        return (*inner.statements, *more)

    def _added(self, inner: Evaluation, places: Sequence[Point]) -> list[Stmt]:
        """What adds all values at ``places``, which ``inner`` finds."""
        combine, wide = self._nests[0].combine, max(self._s.lanes, self._s.columns)
        assert combine is not None
        found: list[Stmt] = []
        for place in places:
            for own, (body, point) in zip(self._registers, self._each(), strict=True):
                value = widen(inner.value(body, {**point, **place}), wide)
                found.append(accumulate(combine, own.name, value, wide))
        return found


def plain_reads(scalar: Scalar) -> Iterator[Read]:
    """Reads at places that nothing tells but the point's; a guard may keep others from what is not
    there."""
    match scalar:
        case Read():
            yield scalar
        case Bind() | Guard():
            return
        case _:
            for part in children(scalar):
                yield from plain_reads(part)


def without(loops: Sequence[LoopVar], others: Sequence[LoopVar]) -> tuple[LoopVar, ...]:
    """``loops`` that are none of ``others``."""
    return tuple(v for v in loops if v not in others)


def results_beside(nest: Nest, few: Sequence[LoopVar]) -> tuple[LoopVar, ...]:
    """Loops of several results but the ``few`` that the same threads have, in their order."""
    return tuple(v for v in without(nest.parallel, few) if v.extent != 1)


def verify_columns(group: Group, s: GroupReduction, along: Sequence[LoopVar]) -> None:
    """:class:`ScheduleError` if a thread cannot have so many columns beside each other."""
    if s.columns == 1:
        return
    if s.columns not in (2, 4, 8) or s.lanes > 1 or not s.across:
        raise ScheduleError("neighbours of a thread are up to eight results of one term: columns")
    if not are_beside(group, along, s.columns):
        raise ScheduleError("results are no whole vectors: columns")


def are_beside(group: Group, along: Sequence[LoopVar], columns: int) -> bool:
    """Whether all of ``group`` can be computed for whole vectors of so many results along the last
    loop of ``along``, where these lie side by side."""
    stored = (nest for nest in group.nests if nest.output in group.stored)
    return takes_vectors(group.nests, along, columns) and all(
        coefficient(nest.store, along[-1].name) == 1 for nest in stored
    )


def verify_shares(s: GroupReduction | GroupRows, dtype: DType) -> None:
    """:class:`ScheduleError` if threads cannot combine what they have of ``dtype``."""
    if not is_power_of_two(s.threads) or not is_power_of_two(s.warp) or s.warp > s.threads:
        raise ScheduleError("groups of a power of two of threads share rows and reductions")
    if s.lanes not in (1, 2, 4, 8):
        raise ScheduleError("vectors have up to eight elements: lanes")
    if s.warp > 1 and dtype.bits != EXCHANGED_BITS:
        raise ScheduleError(f"threads exchange registers of {EXCHANGED_BITS} bits: warp")


def takes_vectors(nests: Sequence[Nest], along: Sequence[LoopVar], lanes: int) -> bool:
    """Whether ``nests`` can be computed for whole vectors along the last loop of ``along``."""
    if not along or not isinstance(along[-1].extent, int) or along[-1].extent % lanes:
        return False
    made = {nest.output for nest in nests}
    last = along[-1].name
    return all(vectorisable(nest.body, last, lanes, made, aligned=True) for nest in nests)


def lanes_of(kernel: GroupKernel, count: int) -> Lanes | None:
    """Vectors of ``count`` elements."""
    return Lanes(kernel.names.fresh("l"), count) if count > 1 else None


def one_lane(combine: Combine, value: Expr) -> Expr:
    """All lanes of ``value`` combined."""
    return value if value.lanes == 1 else Reduce(combine_function(combine, value.dtype), value)


def is_power_of_two(count: int) -> bool:
    """Whether ``count`` can be halved down to 1."""
    return count > 0 and count & (count - 1) == 0
