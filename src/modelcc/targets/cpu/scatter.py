"""Updates at indices from memory (scatter): a copy, then one pass over the updates, in rows of
vectors.

Updates that may collide at one element keep their order.  Along an axis that is an index of the
result by itself no updates collide, so such loops may be outermost, for threads, or innermost,
where the indices of a row of updates are loaded and checked once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, Sym, coefficient, floordiv, substitute
from modelcc.ir.loop import Expr, For, Function, Load, Stmt, Store
from modelcc.ir.scalar import Combine
from modelcc.ir.scalar_tree import index_symbols, outer_binds, reads, walk
from modelcc.ir.tensor import Apply, Bind, Read, Scalar, Stage
from modelcc.ir.types import TensorType
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.expression import FreshNames, PointEmitter, combine_function, vectorisable
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import LoopVar, Nest, linearise, merge_loops
from modelcc.schedule.parallel import Chosen, Point, SegmentedLoop, nest_loops
from modelcc.schedule.segments import Segment
from modelcc.schedule.sweeps import without_idle_loops
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.prefetch import LINE_BYTES
from modelcc.targets.cpu.scheduled_kernel import PARALLEL_CHUNKS, ScheduledKernel, buffer_parameter
from modelcc.targets.cpu.work import forks_if_worth, may_be_worth_a_fork

UNROLLED = 4
"""Unroll factor of a copy, in vectors."""


@dataclass(frozen=True)
class Updates:
    """Loops over updates, outermost first: ``apart`` (may be divided between threads, or None),
    those in which the indices change, and the rows; ``value`` is stored at ``nest.store``."""

    nest: Nest
    apart: LoopVar | None
    ordered: tuple[LoopVar, ...]
    rows: tuple[LoopVar, ...]
    places: tuple[Bind, ...]
    value: Scalar


def schedule_scatter(
    kernel: CanonicalKernel,
    initial: str,
    name: str,
    machine: CpuModel,
    source: tuple[str, ...] = (),
) -> tuple[ScheduledKernel, ...]:
    """Schedules the updates of a copy of ``initial``, the single stage of ``kernel``, as one
    function."""
    types, dims = dict(kernel.types), dict(kernel.dims)
    names = FreshNames(frozenset(dims))
    ((stage,), (output,)) = kernel.stages, kernel.outputs
    plan = plan_updates(stage, types, dims)
    worth = may_be_worth_a_fork(kernel.stages, types, dims)
    shares = worth and plan.apart is not None
    # A function forks at most once: for its updates if threads can share them, else for the copy.
    copies = worth and not shares
    statements = [
        *_copy(initial, output, types[output], names, machine, copies),
        *_emit(plan, names, machine, shares),
    ]
    alone = all(read.tensor != initial for read in reads(stage.body))
    in_place = ((output, initial),) if alone and initial not in kernel.constants else ()
    shared = frozenset(name for pair in in_place for name in pair)
    parameters = [buffer_parameter(n, types[n], False, shared) for n in kernel.inputs]
    parameters.append(buffer_parameter(output, types[output], True, shared))
    body = forks_if_worth(without_idle_loops(statements, dims), kernel.stages, types, dims)
    function = Function(name, tuple(parameters), tuple(dims), body, source)
    return (ScheduledKernel(function, {}, in_place),)


def plan_updates(stage: Stage, types: Mapping[str, TensorType], dims: Bounds) -> Updates:
    """The loops of a scatter's stage."""
    binds, _ = outer_binds(stage.body)
    lookups = {name for b in binds for name in index_symbols(b.value)}
    alone = {a.name for a in stage.axes if Sym(a.name) in stage.write}
    rows = alone - lookups
    nest = linearise(stage, types, dims, frozenset(), {})
    order = {a.name: (a.name in rows, n) for n, a in enumerate(stage.axes)}
    nest = replace(nest, parallel=tuple(sorted(nest.parallel, key=lambda v: order[v.name])))
    (nest,) = merge_loops((nest,))
    bytes_ = types[stage.output].dtype.bytes
    apart = next((v for v in nest.parallel if v.name in alone and _is_far(v, nest, bytes_)), None)
    places, value = outer_binds(nest.body)
    if stage.combine is not None:
        value = _combined(stage.combine, Read(stage.output, (nest.store,), value.dtype), value)
    rest = [v for v in nest.parallel if v is not apart]
    return Updates(
        nest,
        apart,
        tuple(v for v in rest if v.name not in rows),
        tuple(v for v in rest if v.name in rows),
        places,
        value,
    )


def _is_far(variable: LoopVar, nest: Nest, bytes_: int) -> bool:
    """Whether neighbours along ``variable`` are in different cache lines, so that threads do not
    share lines."""
    step = coefficient(nest.store, variable.name)
    return variable.extent != 1 and (not isinstance(step, int) or step * bytes_ >= LINE_BYTES)


def _combined(combine: Combine, there: Read, value: Scalar) -> Scalar:
    return Apply(combine_function(combine, value.dtype), (there, value), value.dtype)


def _copy(
    source: str, target: str, type: TensorType, names: FreshNames, machine: CpuModel, parallel: bool
) -> list[Stmt]:
    """Statements that copy a row-major tensor."""
    size: Index = type.elements
    lanes = machine.lanes(max(8, type.dtype.bits))

    def copied(offset: Index, active: Index | None) -> Store:
        return Store(target, offset, Load(source, offset, type.dtype, lanes, 1, active), 1, active)

    block = lanes * UNROLLED
    blocks = floordiv(size, block)
    variable = names.fresh("c")
    starts = [Sym(variable) * block + n * lanes for n in range(UNROLLED)]
    kind = "parallel" if parallel else "serial"
    statements: list[Stmt] = []
    if blocks != 0:
        body = tuple(copied(start, None) for start in starts)
        statements.append(For(variable, 0, blocks, body, kind=kind))
    rest = size - blocks * block
    if rest == 0:
        return statements
    first, number = names.fresh("c"), floordiv(rest + lanes - 1, lanes)
    at = Sym(first) * lanes
    tail = copied(blocks * block + at, rest - at)
    return [*statements, For(first, 0, number, (tail,))]


def _emit(plan: Updates, names: FreshNames, machine: CpuModel, parallel: bool) -> list[Stmt]:
    """Statements of the updates; the loop ``apart`` in ``parallel``."""
    emitter = _UpdateEmitter(plan, names, machine)
    outer = [] if plan.apart is None else [plan.apart]

    def inner(point: Point, chosen: Chosen) -> list[Stmt]:
        return emitter.ordered(point)

    return nest_loops(_loops(outer), names, inner, PARALLEL_CHUNKS if parallel else 1)


def _loops(variables: Sequence[LoopVar]) -> list[SegmentedLoop]:
    return [SegmentedLoop(v.name, (Segment(0, v.extent, 1, True),)) for v in variables]


class _UpdateEmitter:
    def __init__(self, plan: Updates, names: FreshNames, machine: CpuModel) -> None:
        self._plan = plan
        self._names = names
        self._lanes = _lanes(plan, machine)

    def ordered(self, outside: Point) -> list[Stmt]:
        """The loops in which indices change, in the model's order."""

        def inner(point: Point, chosen: Chosen) -> list[Stmt]:
            return self._rows({**outside, **point})

        return nest_loops(_loops(self._plan.ordered), self._names, inner, 1)

    def _rows(self, outside: Point) -> list[Stmt]:
        emitter = PointEmitter(self._names, None)
        at: Mapping[str, Index] = outside
        for place in self._plan.places:
            at = emitter.bind(place, at, {})
        rows = self._plan.rows
        if not rows:
            return [*emitter.statements, *self._single(at)]

        def inner(point: Point, chosen: Chosen) -> list[Stmt]:
            return self._row({**at, **point})

        return [*emitter.statements, *nest_loops(_loops(rows[:-1]), self._names, inner, 1)]

    def _single(self, at: Point) -> list[Stmt]:
        emitter = PointEmitter(self._names, None)
        value = emitter.emit(self._plan.value, at, {})
        return [*emitter.statements, self._store(substitute(self._plan.nest.store, at), value)]

    def _row(self, at: Point) -> list[Stmt]:
        """The innermost loop: whole vectors, then a partial one."""
        row, lanes = self._plan.rows[-1], self._lanes
        if lanes == 1:
            counter = self._names.fresh(row.name)
            body = self._single({**at, row.name: Sym(counter)})
            return [For(counter, 0, row.extent, tuple(body))]
        vectors = floordiv(row.extent, lanes)
        rest = row.extent - vectors * lanes
        statements: list[Stmt] = []
        if vectors == 1:
            statements += self._vector(at, 0, None)
        elif vectors != 0:
            counter = self._names.fresh(row.name)
            body = self._vector(at, Sym(counter) * lanes, None)
            statements.append(For(counter, 0, vectors, tuple(body)))
        if rest != 0:
            statements += self._vector(at, vectors * lanes, rest)
        return statements

    def _vector(self, at: Point, position: Index, active: Index | None) -> list[Stmt]:
        row = self._plan.rows[-1].name
        touched = frozenset(r.tensor for r in reads(self._plan.value))
        lanes = Lanes(f"{row}l", self._lanes, active, touched)
        emitter = PointEmitter(self._names, lanes)
        point = {**at, row: position + Sym(lanes.variable)}
        value = widen(emitter.emit(self._plan.value, point, {}), lanes.count)
        offset, stride = lanes.split(substitute(self._plan.nest.store, point))
        return [*emitter.statements, self._store(offset, value, stride, active)]

    def _store(
        self, offset: Index, value: Expr, stride: Index = 1, active: Index | None = None
    ) -> Store:
        return Store(self._plan.nest.output, offset, value, stride, active)


def _lanes(plan: Updates, machine: CpuModel) -> int:
    """Elements of a row in one vector; 1 if they are not contiguous."""
    if not plan.rows:
        return 1
    row = plan.rows[-1]
    widths = [max(8, node.dtype.bits) for node in walk(plan.value)]
    lanes = machine.lanes(max(widths))
    while isinstance(row.extent, int) and lanes > max(1, row.extent):
        lanes //= 2
    beside = coefficient(plan.nest.store, row.name) == 1
    return lanes if beside and vectorisable(plan.value, row.name, lanes) else 1
