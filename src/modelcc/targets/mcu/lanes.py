"""Epilogues of sums, row by row: a loop that processors with vectors run for several rows at once.

It is a separate routine if all its operands are contiguous along rows or uniform: then layers share
it, and processors may have an implementation of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.argument import Argument
from modelcc.ir.index import Index, Sym, coefficient, substitute, symbols
from modelcc.ir.loop import Buffer, Expr, For, Load, Parameter, RoutineCall, Stmt, Store
from modelcc.ir.scalar_tree import reads, transform, walk
from modelcc.ir.tensor import Apply, Cast, Number, Read, Scalar, Select
from modelcc.ir.types import I32, DType
from modelcc.schedule.expression import FreshNames, PointEmitter
from modelcc.schedule.nest import Nest
from modelcc.targets.mcu.blocks import WORD, routine
from modelcc.targets.mcu.products import Product

LANES = 4

_ROW = "r"
_PLAIN = (Read, Number, Apply, Cast, Select)


@dataclass(frozen=True)
class RowLoop:
    """The epilogue of a product at ``points``, for rows from ``first`` on; ``rows`` of them, or, if
    ``whole``, that many groups of four.  ``sums`` of points are ``pitch`` apart."""

    product: Product
    points: Sequence[Mapping[str, Index]]
    first: Index
    rows: Index
    whole: bool
    sums: str
    pitch: int

    def statement(self, names: FreshNames) -> Stmt:
        """The loop, or a call to its routine."""
        if self._goes_along():
            return self._call()
        row = names.fresh(_ROW)
        body: list[Stmt] = []
        for number, point in enumerate(self.points):
            at = {**point, self.product.row.name: self.first + Sym(row)}
            total = Load(self.sums, self.pitch * number + Sym(row), I32)
            emitter = PointEmitter(names, None)
            stores = {n.output: (n.output, substitute(n.store, at)) for n in self._stored}
            _emit(emitter, self.product, self.product.nests, at, total, stores)
            body += emitter.statements
        return For(row, 0, LANES * self.rows if self.whole else self.rows, tuple(body))

    @property
    def _stored(self) -> list[Nest]:
        return [n for n in self.product.nests if n.output in self.product.stored]

    @property
    def _read(self) -> list[Read]:
        """Reads of nests other than each other's values."""
        found = (r for n in self.product.nests for r in reads(n.body) if r.indices)
        return list(dict.fromkeys(found))

    def _goes_along(self) -> bool:
        """Whether all indices are contiguous along rows, or uniform."""
        product, row = self.product, self.product.row.name
        plain = all(isinstance(n, _PLAIN) for nest in product.nests for n in walk(nest.body))
        indices = [*(r.indices[0] for r in self._read), *(n.store for n in self._stored)]
        outside = any(r.tensor in product.stored for r in self._read)
        return plain and not outside and all(coefficient(i, row) in (0, 1) for i in indices)

    def _call(self) -> RoutineCall:
        stop = LANES * Sym("fours") if self.whole else Sym("rows")
        shapes = _Shapes(self, stop)
        emitter = PointEmitter(FreshNames(), None)
        for number, point in enumerate(self.points):
            own = shapes.add(f"sums{number}", self.sums, I32, self.pitch * number, True)
            total = Load(own, Sym(_ROW), I32)
            renamed = {r: shapes.read(n, r, number, point) for n, r in enumerate(self._read)}
            nests = [replace(n, body=_renamed(n.body, renamed)) for n in self.product.nests]
            stores = {n.output: shapes.result(n, number) for n in self._stored}
            _emit(emitter, self.product, nests, {}, total, stores)
        loop = For(_ROW, 0, stop, tuple(emitter.statements))
        order = sorted(shapes.formal, key=lambda name: shapes.formal[name].mutable)
        sizes = ("fours" if self.whole else "rows", *shapes.steps)
        made = routine("lanes", [shapes.formal[n] for n in order], sizes, [loop])
        given = tuple(shapes.given[n] for n in order)
        return RoutineCall(made, given, (self.rows, *shapes.steps.values()))


@dataclass(frozen=True)
class _Shapes:
    """Parameters of a loop's routine, and its arguments."""

    loop: RowLoop
    stop: Index
    formal: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    given: dict[str, Argument] = field(default_factory=dict[str, Argument])
    steps: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, name: str, tensor: str, dtype: DType, at: Index, along: bool) -> str:
        """A parameter with one element per row, or with a single one."""
        size = self.stop if along else 1
        align = WORD if dtype == I32 else 1
        self.formal[name] = Parameter(Buffer(name, dtype, size, align=align))
        self.given[name] = Argument(tensor, at)
        return name

    def read(self, position: int, read: Read, number: int, point: Mapping[str, Index]) -> Read:
        """The read within the routine; reads common to all points share a parameter."""
        row, index = self.loop.product.row.name, read.indices[0]
        along = row in symbols(index)
        at = substitute(index, {**point, row: self.loop.first})
        shared = symbols(index) <= {row}
        name = f"p{position}" if shared else f"p{position}_{number}"
        self.add(name, read.tensor, read.dtype, at, along)
        return replace(read, tensor=name, indices=(Sym(_ROW) if along else 0,))

    def result(self, nest: Nest, number: int) -> tuple[str, Index]:
        """The parameter of a result, and the offset in it of a row of a point."""
        loop, position = self.loop, self.loop.product.nests.index(nest)
        name, step = f"made{position}", f"step{position}"
        size, last = self.stop, len(loop.points) - 1
        if last:
            self.steps[step] = loop.product.step(nest.store)
            size = size + last * Sym(step)
        at = substitute(nest.store, {**loop.points[0], loop.product.row.name: loop.first})
        self.formal[name] = Parameter(Buffer(name, nest.body.dtype, size, align=1), mutable=True)
        self.given[name] = Argument(nest.output, at)
        return name, Sym(_ROW) + number * (Sym(step) if last else 0)


def _renamed(body: Scalar, renamed: Mapping[Read, Read]) -> Scalar:
    return transform(body, lambda n: renamed.get(n, n) if isinstance(n, Read) else n)


def _emit(
    emitter: PointEmitter, product: Product, nests: Sequence[Nest], at: Mapping[str, Index],
    total: Load, stores: Mapping[str, tuple[str, Index]],
) -> None:  # fmt: skip
    """Results of one point from its sum."""
    values: dict[str, Expr] = {product.total: emitter.name("sum", total)}
    for nest in nests:
        value = emitter.emit(nest.body, at, values)
        if nest is not nests[-1]:
            value = values[nest.output] = emitter.name("v", value)
        if nest.output in stores:
            emitter.statements.append(Store(*stores[nest.output], value))
