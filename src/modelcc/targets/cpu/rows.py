"""The row schedule: reductions along contiguous rows, fused with their producers and epilogues.

Softmax and layer norm traverse one row several times while it is in L1; every reduction keeps a few
vectors of partial results and folds them at the end of its traversal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, Sym, ceildiv, floordiv, loop_range, product, substitute
from modelcc.ir.loop import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    IndexOf,
    Let,
    Reduce,
    Register,
    ScalarCall,
    Select,
    Splat,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.scalar import Combine, identity
from modelcc.ir.scalar_tree import cost, reads, size, transform
from modelcc.ir.tensor import Read, Scalar, Stage
from modelcc.ir.types import BOOL, I32, TensorType
from modelcc.passes.tensor.fused_kernel import with_values
from modelcc.passes.tensor.reduction_domain import ReductionDomain
from modelcc.schedule.expression import (
    FreshNames,
    PointEmitter,
    accumulate,
    combine_function,
    vectorisable,
)
from modelcc.schedule.lanes import Lanes, regular, widen
from modelcc.schedule.nest import LoopVar, Nest, linearise, merge_loops
from modelcc.schedule.parallel import Chosen, Point, SegmentedLoop, nest_loops
from modelcc.schedule.schedule import Rows, ScheduleError
from modelcc.schedule.segments import Segment
from modelcc.schedule.structure import strip_indices
from modelcc.targets.cpu.machine import CpuModel

UNIT = LoopVar("unit", 1, "unit")
LOCAL_ROW_BYTES = 64 << 10
WORTH_STORING = 8
MOST_UNROLLED = 16
"""Maximum number of vectors at once in a schedule."""
LARGEST = 1024
"""Nodes of the largest expression that stages of a row are inlined to."""


@dataclass(frozen=True)
class RowPlan:
    """Nests over shared outer loops and one row loop; ``scratch`` rows live in local buffers.

    Rows of ``padded`` tensors are padded to whole vectors.
    """

    outer: tuple[LoopVar, ...]
    row: LoopVar
    nests: tuple[Nest, ...]
    stored: frozenset[str]
    walks: frozenset[str]
    scratch: Mapping[str, Buffer]
    lanes: int
    unroll: int
    padded: frozenset[str] = frozenset()

    @property
    def schedule(self) -> Rows:
        """The schedule of this plan."""
        return Rows(self.lanes, self.unroll)


def plan_rows(
    domain: ReductionDomain,
    outputs: frozenset[str],
    types: Mapping[str, TensorType],
    dims: Bounds,
    machine: CpuModel,
    wanted: Rows | None = None,
) -> RowPlan | None:
    """Plans a row kernel; None if its row axes do not merge into one loop, or if reused values
    would have to be recomputed.

    :class:`ScheduleError` if the ``wanted`` vectors do not fit.
    """
    inlined = _inline(domain, outputs)
    if inlined is None:
        return None
    domain, scratch_names = inlined
    internal = frozenset(s.output for s in domain.stages) - outputs
    scalars = frozenset(s.output for s in domain.stages if not domain.walks_rows(s))
    row_name = domain.row[-1].name if domain.row else UNIT.name
    nests = [_row_nest(s, domain, types, dims, internal, scalars) for s in domain.stages]
    outer_names = frozenset(a.name for a in domain.outer)
    nests = list(merge_loops(nests, outer_names))
    if len([v for v in nests[0].parallel if v.name not in outer_names]) > 1:
        return None
    nests = list(merge_loops(nests, frozenset({row_name})))
    row = next((v for v in nests[0].parallel if v.name == row_name), UNIT)
    outer = tuple(v for v in nests[0].parallel if v.name != row_name)
    lanes = _lane_count(nests, row, machine)
    if wanted is not None:
        lanes = _wanted(wanted, max(lanes, _lane_count(nests, row, machine.instruction_set)))
    scratch = {n: _row_buffer(n, nests, row.extent, lanes) for n in scratch_names}
    walks = frozenset(s.output for s in domain.stages if domain.walks_rows(s))
    unroll = _unroll(row, lanes) if wanted is None else wanted.unroll
    return RowPlan(outer, row, tuple(nests), outputs, walks, scratch, lanes, unroll)


def _wanted(wanted: Rows, most: int) -> int:
    """The lanes that a schedule requests."""
    if not 1 <= wanted.lanes <= most or wanted.lanes & (wanted.lanes - 1):
        known = f"up to {most} lanes here, a power of two"
        raise ScheduleError(f"vectors along rows have {known}, not {wanted.lanes}")
    if not 1 <= wanted.unroll <= MOST_UNROLLED:
        raise ScheduleError(f"unroll is 1 to {MOST_UNROLLED}, not {wanted.unroll}")
    return wanted.lanes


def _lane_count(nests: Sequence[Nest], row: LoopVar, machine: CpuModel) -> int:
    widths = [r.dtype.bits for n in nests for r in reads(n.body)]
    lanes = machine.lanes(max([32, *widths]))
    if row.extent == 1:
        return 1
    internal = {n.output for n in nests}
    fits = (vectorisable(n.body, row.name, lanes, internal) for n in nests)
    stores = (regular(n.store, row.name, lanes) for n in nests)
    return lanes if all(fits) and all(stores) else 1


def _unroll(row: LoopVar, lanes: int) -> int:
    if not isinstance(row.extent, int):
        return 2
    extent = row.extent
    return next((u for u in (4, 2) if extent >= u * lanes), 1)


def _row_buffer(name: str, nests: Sequence[Nest], extent: Index, lanes: int) -> Buffer:
    """Padded to whole vectors: masked stores would block store-to-load forwarding."""
    dtype = next(n.body.dtype for n in nests if n.output == name)
    return Buffer(scratch_row(name), dtype, ceildiv(extent, lanes) * lanes, "local")


def scratch_row(name: str) -> str:
    """Name of the local buffer that keeps one row of an internal tensor."""
    return f"{name}.row"


def _inline(
    domain: ReductionDomain, outputs: frozenset[str]
) -> tuple[ReductionDomain, list[str]] | None:
    """Inlines internal stages along rows; those worth storing keep a local row instead.  None if
    expressions become too large."""
    row_extent = product(a.extent for a in domain.row)
    bodies: dict[str, Scalar] = {}
    scratch: list[str] = []
    stages: list[Stage] = []
    sizes: dict[str, int] = {}
    for original in domain.stages:
        read = (sizes.get(r.tensor, 0) for r in reads(original.body))
        large = size(original.body) + sum(read)
        if large > LARGEST:
            return None
        stage = replace(original, body=with_values(original.body, bodies))
        if stage.output in outputs or not domain.walks_rows(stage):
            stages.append(stage)
        elif _worth_keeping(stage, domain, row_extent):
            scratch.append(stage.output)
            stages.append(stage)
        else:
            bodies[stage.output] = stage.body
            sizes[stage.output] = large
    return replace(domain, stages=tuple(stages)), scratch


def _worth_keeping(stage: Stage, domain: ReductionDomain, row_extent: Index) -> bool:
    if not isinstance(row_extent, int):
        return False
    readers = sum(any(r.tensor == stage.output for r in reads(s.body)) for s in domain.stages)
    fits = row_extent * stage.body.dtype.bytes <= LOCAL_ROW_BYTES
    return fits and readers > 1 and cost(stage.body) >= WORTH_STORING


def _row_nest(
    stage: Stage,
    domain: ReductionDomain,
    types: Mapping[str, TensorType],
    dims: Bounds,
    internal: frozenset[str],
    scalars: frozenset[str],
) -> Nest:
    """Nest of one stage; its parallel loops are all outer and row loops of the domain."""
    nest = linearise(stage, types, dims, internal | scalars, {})
    extents = {a.name: a.extent for a in (*domain.outer, *domain.row)}
    parallel = tuple(LoopVar(n, e, n) for n, e in extents.items())
    ranges = {**nest.ranges, **{n: loop_range(e) for n, e in extents.items()}}
    body = strip_indices(nest.body, scalars)
    scratch = internal - scalars
    position = _row_position(domain)
    body = transform(body, lambda node: _to_scratch_row(node, scratch, position))
    return replace(nest, parallel=parallel, ranges=ranges, body=body)


def _row_position(domain: ReductionDomain) -> Index:
    """Linear position in the row of a point of its axes."""
    position: Index = 0
    for axis in domain.row:
        position = position * axis.extent + Sym(axis.name)
    return position


def _to_scratch_row(node: Scalar, scratch: frozenset[str], position: Index) -> Scalar:
    if isinstance(node, Read) and node.tensor in scratch:
        return Read(scratch_row(node.tensor), (position,), node.dtype)
    return node


def emit_rows(plan: RowPlan, names: FreshNames, chunks: int) -> list[Stmt]:
    """Loop-level statements of a planned row kernel."""
    loops = [SegmentedLoop(v.name, (Segment(0, v.extent, 1, True),)) for v in plan.outer]

    def one_row(point: Point, chosen: Chosen) -> list[Stmt]:
        return _RowEmitter(plan, names, point).emit()

    return nest_loops(loops, names, one_row, chunks)


class _RowEmitter:
    """Emits one row: its stages in order, scalar results in registers."""

    def __init__(self, plan: RowPlan, names: FreshNames, point: Point) -> None:
        self.plan = plan
        self.names = names
        self.point = point
        self.scalars: dict[str, Expr] = {}
        self.statements: list[Stmt] = [Alloc(b) for b in plan.scratch.values()]
        self._scratch = plan.padded | frozenset(b.name for b in plan.scratch.values())

    def emit(self) -> list[Stmt]:
        for nest in self.plan.nests:
            if nest.reduce:
                self._finish_scalar(nest, self._reduce(nest))
            elif nest.output in self.plan.walks:
                self._walk(nest)
            else:
                emitter = PointEmitter(self.names, None)
                value = emitter.emit(nest.body, self.point, self.scalars)
                self.statements += emitter.statements
                self._finish_scalar(nest, value)
        return self.statements

    def _finish_scalar(self, nest: Nest, value: Expr) -> None:
        name = self.names.fresh("s")
        self.statements.append(Let(name, value))
        variable = Var(name, value.dtype)
        self.scalars[nest.output] = variable
        if nest.output in self.plan.stored:
            self.statements.append(Store(nest.output, substitute(nest.store, self.point), variable))

    def _value(self, body: Scalar, position: Index, active: Index | None) -> _Block:
        """``body`` at the vector of row positions starting at ``position``, or at one position."""
        row, count = self.plan.row.name, self.plan.lanes
        if count == 1 or active == 1:
            emitter = PointEmitter(self.names, None)
            value = emitter.emit(body, {**self.point, row: position}, self.scalars)
            return _Block(emitter.statements, value)
        lane = f"{row}l"
        masked = frozenset(r.tensor for r in reads(body)) - self._scratch
        emitter = PointEmitter(self.names, Lanes(lane, count, active, masked))
        point = {**self.point, row: position + Sym(lane)}
        value = emitter.emit(body, point, self.scalars)
        return _Block(emitter.statements, widen(value, count))

    def _walk(self, nest: Nest) -> None:
        """Store a row."""

        def store(position: Index, active: Index | None) -> list[Stmt]:
            block = self._value(nest.body, position, active)
            buffer, offset, stride = self._target(nest, position, block.value.lanes)
            active = None if buffer in self._scratch or active == 1 else active
            return [*block.statements, Store(buffer, offset, block.value, stride, active)]

        self.statements += self._blocks(lambda position, _: store(position, None), 1, store)

    def _target(self, nest: Nest, position: Index, count: int) -> tuple[str, Index, Index]:
        row = self.plan.row.name
        if nest.output in self.plan.scratch:
            return scratch_row(nest.output), position, 1
        if count == 1:
            return nest.output, substitute(nest.store, {**self.point, row: position}), 1
        lanes = Lanes(f"{row}l", count)
        point = {**self.point, row: position + Sym(lanes.variable)}
        return nest.output, *lanes.split(substitute(nest.store, point))

    def _reduce(self, nest: Nest) -> Expr:
        """Reduce a row to a scalar."""
        if nest.combine is None:
            raise ValueError("a reduction needs a combine")
        combine, dtype, count = nest.combine, nest.body.dtype, self.plan.lanes
        start = Const(identity(combine, dtype), dtype, count)
        registers = [self.names.fresh("acc") for _ in range(self.plan.unroll)]
        single: list[Expr] = []
        self.statements += [Register(r, start) for r in registers]

        def main(position: Index, part: int) -> list[Stmt]:
            block = self._value(nest.body, position, None)
            step = accumulate(combine, registers[part], block.value, count)
            return [*block.statements, step]

        def tail(position: Index, active: Index) -> list[Stmt]:
            block = self._value(nest.body, position, active)
            if active == 1:
                single.append(block.value)
                return block.statements
            value = Select(_first_lanes(active, count), block.value, start)
            return [*block.statements, accumulate(combine, registers[0], value, count)]

        self.statements += self._blocks(main, self.plan.unroll, tail)
        total = self._reduce_lanes(combine, [Var(r, dtype, count) for r in registers])
        function = combine_function(combine, dtype)
        return ScalarCall(function, (total, single[0]), dtype) if single else total

    def _reduce_lanes(self, combine: Combine, parts: Sequence[Expr]) -> Expr:
        function = combine_function(combine, parts[0].dtype)
        total = parts[0]
        for part in parts[1:]:
            total = ScalarCall(function, (total, part), part.dtype, part.lanes)
        return total if total.lanes == 1 else Reduce(function, total)

    def _blocks(
        self,
        main: Callable[[Index, int], list[Stmt]],
        unroll: int,
        tail: Callable[[Index, Index], list[Stmt]],
    ) -> list[Stmt]:
        """The row in ``unroll`` vectors at a time, single vectors, then the masked rest."""
        extent, count = self.plan.row.extent, self.plan.lanes
        vectors = floordiv(extent, count)
        rounds = floordiv(vectors, unroll)
        result = self._counted(rounds, 0, unroll * count, main, unroll)
        if unroll > 1 and vectors - rounds * unroll != 0:
            first = rounds * (unroll * count)
            result += self._counted(vectors - rounds * unroll, first, count, main, 1)
        rest = extent - vectors * count
        if rest != 0:
            result += tail(vectors * count, rest)
        return result

    def _counted(
        self,
        times: Index,
        first: Index,
        step: int,
        main: Callable[[Index, int], list[Stmt]],
        parts: int,
    ) -> list[Stmt]:
        def once(start: Index) -> list[Stmt]:
            width = self.plan.lanes
            return [s for part in range(parts) for s in main(start + part * width, part)]

        if times == 0:
            return []
        if times == 1:
            return once(first)
        counter = self.names.fresh(self.plan.row.name)
        return [For(counter, 0, times, tuple(once(first + Sym(counter) * step)))]


@dataclass(frozen=True)
class _Block:
    statements: list[Stmt]
    value: Expr


def _first_lanes(active: Index, count: int) -> Expr:
    """Mask of the lanes below ``active``."""
    lane = IndexOf(0, I32, count, 1)
    limit = Splat(IndexOf(active, I32), count)
    return ScalarCall("lt", (lane, limit), BOOL, count)
