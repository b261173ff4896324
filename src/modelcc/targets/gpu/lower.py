"""A stage as a loop function, and the plainest schedule: a thread for each point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modelcc.ir.index import Bounds, Index, Sym, ceildiv, floordiv, mod, product, substitute
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
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Condition, Scalar, Stage
from modelcc.ir.types import I64, DType, TensorType
from modelcc.schedule.canonical import dimensions
from modelcc.schedule.expression import FreshNames, PointEmitter, accumulate
from modelcc.schedule.nest import LoopVar, Nest, linearise, merge_loops

Point = Mapping[str, Index]


@dataclass(frozen=True)
class StageLowering:
    """A stage of a program with these ``types`` and ``dims``, to become the function ``name``."""

    name: str
    stage: Stage
    types: Mapping[str, TensorType]
    dims: Bounds
    source: tuple[str, ...] = ()

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that it reads."""
        return tuple(dict.fromkeys(read.tensor for read in reads(self.stage.body)))

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The symbols that it takes."""
        used = (*self.inputs, self.stage.output)
        own = tuple((name, self.types[name]) for name in used)
        return tuple(sorted(dimensions((self.stage,), own) & self.dims.keys()))

    @cached_property
    def nest(self) -> Nest:
        """Its loops, as few as give every access a flat offset."""
        nest = linearise(self.stage, self.types, self.dims, frozenset(), {})
        return merge_loops((nest,))[0]

    @cached_property
    def names(self) -> FreshNames:
        """Fresh names in the function."""
        known = {v.name for v in self.nest.variables} | self.dims.keys() | self.types.keys()
        return FreshNames(frozenset(known))

    def function(self, body: Sequence[Stmt]) -> Function:
        """The function that does ``body``."""
        parameters = [Parameter(self._buffer(name)) for name in self.inputs]
        parameters.append(Parameter(self._buffer(self.stage.output), mutable=True))
        return Function(self.name, tuple(parameters), self.sizes, tuple(body), self.source)

    def _buffer(self, name: str) -> Buffer:
        type_ = self.types[name]
        return Buffer(name, type_.dtype, type_.physical.size(type_.shape))


@dataclass
class Evaluation:
    """Statements that find scalars at points, within one function."""

    names: FreshNames
    statements: list[Stmt] = field(default_factory=list[Stmt])

    def nested(self) -> Evaluation:
        """Of statements inside of others."""
        return Evaluation(self.names)

    def place(self, variables: Sequence[LoopVar], position: Index) -> dict[str, Index]:
        """The indices of ``variables`` at a ``position`` in row-major order."""
        if len(variables) == 1:
            return {variables[0].name: position}
        point: dict[str, Index] = {}
        for number, v in reversed(list(enumerate(variables))):
            extent = 1 if v.extent == 0 else v.extent  # of no points, which nobody visits
            own = position if number == 0 else mod(position, extent)
            symbol = self.names.fresh(v.name)
            self.statements.append(BindIndex(symbol, IndexOf(own, I64)))
            point[v.name] = Sym(symbol)
            position = floordiv(position, extent)
        return point

    def value(self, scalar: Scalar, point: Point) -> Expr:
        """``scalar`` at ``point``."""
        emitter = PointEmitter(self.names, None)
        value = emitter.emit(scalar, point, {})
        self.statements += emitter.statements
        return value

    def register(self, stem: str, value: float | int | bool, dtype: DType) -> Var:
        """A new register that holds ``value``."""
        name = self.names.fresh(stem)
        self.statements.append(Register(name, Const(value, dtype)))
        return Var(name, dtype)


@dataclass(frozen=True)
class PointwiseGroups:
    """A thread for each point, which does all of a reduction; so many ``threads`` to a group."""

    threads: int = 64

    def lower(self, lowering: StageLowering) -> Function:
        """The function of a stage."""
        nest, names = lowering.nest, lowering.names
        group, thread = names.fresh("g"), names.fresh("t")
        position = Sym(group) * self.threads + Sym(thread)
        total = product(v.extent for v in nest.parallel)
        inner = Evaluation(names)
        point = inner.place(nest.parallel, position)
        if nest.reduce and nest.combine:
            value = serial_reduction(nest, point, inner)
        else:
            value = inner.value(nest.body, point)
        stored = store_at(nest, point, value)
        body = guarded((Condition(position, "<", total),), [*inner.statements, stored])
        threads = For(thread, 0, self.threads, tuple(body), kind="thread")
        groups = ceildiv(total, self.threads)
        return lowering.function([For(group, 0, groups, (threads,), kind="grid")])


def serial_reduction(nest: Nest, point: Point, outer: Evaluation) -> Expr:
    """The reduction of ``nest`` at ``point``, term by term."""
    assert nest.combine is not None
    dtype = nest.body.dtype
    total = outer.register("sum", identity(nest.combine, dtype), dtype)
    inner = outer.nested()
    value = inner.value(nest.body, point)
    body = (*inner.statements, accumulate(nest.combine, total.name, value, 1))
    for v in reversed(nest.reduce):
        body = (For(v.name, 0, v.extent, body),)
    outer.statements += body
    return total


def store_at(nest: Nest, point: Point, value: Expr) -> Stmt:
    """The result of ``nest`` at ``point``."""
    return Store(nest.output, substitute(nest.store, point), value)


def guarded(conditions: tuple[Condition, ...], body: Sequence[Stmt]) -> list[Stmt]:
    """``body`` where ``conditions`` hold."""
    return [If(Predicate(conditions), tuple(body))]
