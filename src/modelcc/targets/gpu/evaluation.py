"""Kernels on their way to functions of groups, and statements that find scalars at points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from modelcc.ir.index import (
    Bounds,
    Index,
    Sym,
    compare,
    floordiv,
    loop_range,
    mod,
    product,
    simplify,
    substitute,
)
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.loop import (
    BindIndex,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Parameter,
    Predicate,
    Register,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.loop_group_verifier import TOGETHER
from modelcc.ir.loop_traversal import statements
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import map_indices, walk
from modelcc.ir.tensor import Bind, Condition, Scalar
from modelcc.ir.types import I64, TensorType
from modelcc.passes.loop.note_checks import note_checks
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.passes.tensor.twin_products import twin_stages
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.expression import FreshNames, PointEmitter, accumulate
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import LoopVar, Nest, linearise, merge_loops, merge_terms
from modelcc.schedule.register_arrays import emit_array
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import Group, make_group
from modelcc.targets.cpu.scheduled_kernel import buffer_parameter

Point = Mapping[str, Index]
NO_VALUES: Mapping[str, Expr] = {}
UNKNOWN: Bounds = {}


@dataclass(frozen=True)
class GroupKernel:
    """A canonical kernel that is to become the function ``name``, maybe a part of a ``whole``
    one."""

    kernel: CanonicalKernel
    name: str
    source: tuple[str, ...] = ()
    whole: GroupKernel | None = None

    def part(self, kernel: CanonicalKernel) -> GroupKernel:
        """Some stages of it, whose names are those of the same function."""
        return GroupKernel(kernel, self.name, self.source, self)

    @cached_property
    def types(self) -> Mapping[str, TensorType]:
        """Of tensors in memory."""
        return dict(self.kernel.types)

    @cached_property
    def dims(self) -> Bounds:
        """Named sizes."""
        return dict(self.kernel.dims)

    @cached_property
    def stored(self) -> frozenset[str]:
        """Results in memory."""
        return frozenset(self.kernel.outputs)

    @cached_property
    def names(self) -> FreshNames:
        """Fresh names in the function."""
        if self.whole is not None:
            return self.whole.names
        axes = [a.name for s in self.kernel.stages for a in (*s.axes, *s.reduce)]
        parts = [f"{name}{part}" for name in axes for part in ("", "o", "v", "b")]
        made = [stage.output for stage in self.kernel.stages]
        return FreshNames(frozenset((*parts, *made, *self.dims, *self.types)))

    @property
    def checks(self) -> bool:
        """Whether threads may find indices out of their bounds."""
        return bool(self._bounds)

    @property
    def leaves(self) -> bool:
        """Whether a thread has to end that finds one, since there may be no index in its bound."""
        return any(not compare(bound.extent, ">=", 1, self.dims) for bound in self._bounds)

    @cached_property
    def _bounds(self) -> Sequence[IndexBound]:
        nodes = (node for stage in self.kernel.stages for node in walk(stage.body))
        return [n.bound for n in nodes if isinstance(n, Bind) and n.bound is not None]

    def function(self, body: Sequence[Stmt], working: Sequence[Buffer] = ()) -> Function:
        """The function that does ``body``; no thread leaves before others that wait for it.  Behind
        its operands and results it takes memory that it is ``working`` in."""
        kernel, types = self.kernel, self.types
        if self.checks and any(isinstance(s, TOGETHER) for s in statements(body)):
            body = note_checks(body, self.dims)
        nobody = frozenset[str]()
        parameters = [buffer_parameter(n, types[n], False, nobody) for n in kernel.inputs]
        parameters += [buffer_parameter(n, types[n], True, nobody) for n in kernel.outputs]
        parameters += [Parameter(buffer, mutable=True) for buffer in working]
        return Function(self.name, tuple(parameters), tuple(self.dims), tuple(body), self.source)

    @cached_property
    def group(self) -> Group:
        """Its stages over one space of points; :class:`ScheduleError` if they have none."""
        if len(self.kernel.stages) == 1:
            (stage,) = self.kernel.stages
            nest = linearise(stage, self.types, self.dims, frozenset(), {})
            nests = map(merge_terms, merge_loops(without_units((nest,))))
            return Group(tuple(nests), self.stored, {}, frozenset(), {})
        shared = shared_axes(self.kernel.stages) or twin_stages(self.kernel.stages)
        if shared is None:
            raise ScheduleError("stages do not share their axes")
        group = make_group(shared, self.stored, self.types, self.dims, frozenset(), pad=False)
        if any(nest.own for nest in group.nests):
            raise ScheduleError("stages hand on arrays")
        nests = merge_loops(without_units(group.nests))
        return replace(group, nests=tuple(map(merge_terms, nests)))


@dataclass
class Evaluation:
    """Statements that find scalars at points, within one block of straight code."""

    names: FreshNames
    statements: list[Stmt] = field(default_factory=list[Stmt])
    lanes: Lanes | None = None

    def __post_init__(self) -> None:
        self._emitter = PointEmitter(self.names, self.lanes)
        self._emitter.statements = self.statements

    def nested(self, lanes: Lanes | None = None) -> Evaluation:
        """Of statements inside of others."""
        return Evaluation(self.names, lanes=lanes)

    def inside(self) -> Evaluation:
        """Of statements inside of these, at the same points: what was loaded is there."""
        found = Evaluation(self.names, lanes=self.lanes)
        found._emitter = self._emitter.nested()
        found._emitter.statements = found.statements
        return found

    def beside(self, lanes: Lanes | None = None) -> Evaluation:
        """Of another point, or vector of points, whose statements stand among these."""
        return Evaluation(self.names, self.statements, lanes)

    def bind(self, stem: str, index: Index) -> Index:
        """``index`` under a name."""
        return index if isinstance(index, int) else self.bind_value(stem, IndexOf(index, I64))

    def bind_value(self, stem: str, value: Expr) -> Index:
        """A scalar integer as an index."""
        symbol = self.names.fresh(stem)
        self.statements.append(BindIndex(symbol, value))
        return Sym(symbol)

    def place(
        self, variables: Sequence[LoopVar], position: Index, ranges: Bounds = UNKNOWN
    ) -> dict[str, Index]:
        """The indices of ``variables`` at a ``position`` in row-major order, by what is known of
        the symbols in it."""
        if len(variables) == 1:
            return {variables[0].name: self.bind(variables[0].name, position)}
        point: dict[str, Index] = {}
        for number, v in reversed(list(enumerate(variables))):
            extent = 1 if v.extent == 0 else v.extent  # of no points, which nobody visits
            own = position if number == 0 else simplify(mod(position, extent), ranges)
            point[v.name] = self.bind(v.name, own)
            position = simplify(floordiv(position, extent), ranges)
            position = self.bind("q", position) if number > 1 and not ranges else position
        return point

    def place_vector(
        self, variables: Sequence[LoopVar], position: Index, lanes: int, ranges: Bounds = UNKNOWN
    ) -> dict[str, Index]:
        """:meth:`place` of vector number ``position`` of ``lanes`` points each, which divide the
        last extent: their first one, whose last index is seen to be a multiple of ``lanes``."""
        *outer, last = variables
        cut = LoopVar(last.name, floordiv(last.extent, lanes), last.axis, last.multiplier)
        point = self.place((*outer, cut), position, ranges)
        return {**point, last.name: point[last.name] * lanes}

    def place_lanes(self, variables: Sequence[LoopVar], position: Index) -> dict[str, Index]:
        """:meth:`place`; with lanes, all points of vector number ``position``."""
        if self.lanes is None:
            return self.place(variables, position)
        point = self.place_vector(variables, position, self.lanes.count)
        last = variables[-1].name
        return {**point, last: point[last] + Sym(self.lanes.variable)}

    def value(self, scalar: Scalar, point: Point, made: Mapping[str, Expr] = NO_VALUES) -> Expr:
        """``scalar`` at ``point``, where tensors that are ``made`` have these values."""
        return self._emitter.emit(scalar, point, made)

    def bound(self, places: Sequence[Bind], point: Point) -> Point:
        """``point`` with the indices from memory that ``places`` are there."""
        for place in places:
            point = self._emitter.bind(place, point, NO_VALUES)
        return point

    def named(self, stem: str, value: Expr) -> Expr:
        """``value`` under a name, unless it is a constant."""
        return value if isinstance(value, Const) else self._emitter.name(stem, value)

    def register(self, stem: str, value: Expr) -> Var:
        """A new register that holds ``value``."""
        name = self.names.fresh(stem)
        self.statements.append(Register(name, value))
        return Var(name, value.dtype, value.lanes)

    def neutral(self, nest: Nest) -> Const:
        """What a reduction begins with."""
        assert nest.combine is not None
        return Const(identity(nest.combine, nest.body.dtype), nest.body.dtype)

    def finish(self, group: Group, point: Point, reduced: Sequence[Expr]) -> None:
        """Results of a group at ``point``, where its reductions have given what is ``reduced``."""
        made, given = dict[str, Expr](), iter(reduced)
        for nest in group.nests:
            value = next(given) if nest.reduce else self.value(nest.body, point, made)
            made[nest.output] = self.named("v", value)
            if nest.output in group.stored:
                self.store(nest, point, made[nest.output])

    def arrays(self, group: Group, point: Point, ranges: Bounds) -> None:
        """Results of stages that hand on small arrays at ``point``, by what is known of its
        symbols."""
        self._emitter.ranges = ranges
        made: dict[str, Expr] = {}
        for nest in group.nests:
            if nest.own:
                emit_array(group, nest, self._emitter, point, made)
                continue
            made[nest.output] = self.named("v", self.value(nest.body, point, made))
            if nest.output in group.stored:
                self.store(nest, point, made[nest.output])

    def store(self, nest: Nest, point: Point, value: Expr) -> None:
        """The result of ``nest`` at ``point``."""
        offset = substitute(nest.store, point)
        if self.lanes is None:
            self.statements.append(Store(nest.output, offset, value))
            return
        start, stride = self.lanes.split(offset)
        wide = widen(value, self.lanes.count)
        self.statements.append(Store(nest.output, start, wide, stride))

    def reduce(self, nest: Nest, point: Point) -> Expr:
        """The reduction of ``nest`` at ``point``, term by term."""
        assert nest.combine is not None
        total = self.register("sum", self.neutral(nest))
        inner = self.nested()
        value = inner.value(nest.body, point)
        body = (*inner.statements, accumulate(nest.combine, total.name, value, 1))
        for v in reversed(nest.reduce):
            body = (For(v.name, 0, v.extent, body),)
        self.statements += body
        return total


def without_units(nests: Sequence[Nest]) -> tuple[Nest, ...]:
    """Nests that reduce nothing without loops of one point, which move along no result and would
    stand behind those that do."""
    units = {v.name for nest in nests for v in nest.parallel if v.extent == 1}
    if not units or any(nest.reduce for nest in nests):
        return tuple(nests)
    zero = dict.fromkeys(units, 0)

    def kept(nest: Nest) -> Nest:
        parallel = tuple(v for v in nest.parallel if v.name not in units)
        body = map_indices(nest.body, lambda i: substitute(i, zero))
        store = substitute(nest.store, zero)
        return replace(nest, parallel=parallel or nest.parallel[:1], store=store, body=body)

    return tuple(map(kept, nests))


def extent_of(variables: Sequence[LoopVar]) -> Index:
    """Points along ``variables``."""
    return product(v.extent for v in variables)


def not_implied(conditions: Sequence[Condition], ranges: Bounds) -> tuple[Condition, ...]:
    """Conditions that may not hold within ``ranges``."""

    def holds(c: Condition) -> bool:
        return compare(c.left, c.comparison, c.right, ranges) is True

    return tuple(c for c in conditions if not holds(c))


def only_where(conditions: Sequence[Condition], body: Sequence[Stmt]) -> list[Stmt]:
    """``body`` where all ``conditions`` hold."""
    return [If(Predicate(tuple(conditions)), tuple(body))] if conditions else list(body)


@dataclass(frozen=True)
class Launching:
    """Loops over groups and over threads, outermost first, by names and extents."""

    grid: tuple[tuple[str, Index], ...]
    threads: tuple[tuple[str, int], ...]
    dims: Bounds

    @cached_property
    def ranges(self) -> Bounds:
        """Of the loops' variables and named sizes."""
        loops = (*self.grid, *self.threads)
        return {**self.dims, **{name: loop_range(extent) for name, extent in loops}}

    def unknown(self, conditions: Sequence[Condition]) -> tuple[Condition, ...]:
        """Conditions that may not hold."""
        return not_implied(conditions, self.ranges)

    def guarded(self, conditions: Sequence[Condition], body: Sequence[Stmt]) -> list[Stmt]:
        """``body`` where all ``conditions`` hold."""
        return only_where(self.unknown(conditions), body)

    def around(self, shared: Sequence[Stmt], body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """``body`` in the loops over threads, ``shared`` before it in those over groups."""
        inner = tuple(body)
        for name, count in reversed(self.threads):
            inner = (For(name, 0, count, inner, kind="thread"),)
        inner = (*shared, *inner)
        for name, extent in reversed(self.grid):
            inner = (For(name, 0, extent, inner, kind="grid"),)
        return inner
