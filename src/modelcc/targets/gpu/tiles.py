"""Products of matrices by groups: tiles of both operands in shared memory, a result per thread.

grid m, n; thread i, j
  for each tile of terms
    left[i, j], right[i, j] = the operands' elements there, 0 outside
    barrier
    sum += left[i, k] * right[k, j] for k in the tile
    barrier
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.index import Index, Sym, ceildiv, product, symbols
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    Buffer,
    For,
    Function,
    Load,
    MulAdd,
    Stmt,
    Store,
)
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import index_symbols
from modelcc.ir.tensor import Apply, Condition, Guard, Number, Scalar
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import is_contraction, neutral_guards
from modelcc.targets.gpu.lower import Evaluation, Point, StageLowering, guarded, store_at


@dataclass(frozen=True)
class ProductOperands:
    """A sum of products: only ``left`` moves along ``row``, only ``right`` along ``column``."""

    left: Scalar
    right: Scalar
    row: LoopVar
    column: LoopVar
    batch: tuple[LoopVar, ...]


def find_product(nest: Nest) -> ProductOperands | None:
    """What product ``nest`` is, its longest rows and columns taken; None if it is none."""
    if not is_contraction(nest):
        return None
    conditions, body = neutral_guards(nest.body, "sum", nest.body.dtype)
    if not (isinstance(body, Apply) and body.function == "mul"):
        return None
    left, right = body.args
    moving = index_symbols(left), index_symbols(right)
    rows = [v for v in nest.parallel if v.name in moving[0] - moving[1]]
    columns = [v for v in nest.parallel if v.name in moving[1] - moving[0]]
    if not rows or not columns:
        return None
    row, column = _longest(rows), _longest(columns)
    mentioned = frozenset(n for c in conditions for n in symbols(c.left) | symbols(c.right))
    if row.name in mentioned and column.name in mentioned:
        return None
    if column.name in mentioned:
        right = _with_conditions(right, conditions)
    else:
        left = _with_conditions(left, conditions)
    batch = tuple(v for v in nest.parallel if v not in (row, column))
    return ProductOperands(left, right, row, column, batch)


def _longest(variables: Sequence[LoopVar]) -> LoopVar:
    return max(variables, key=lambda v: v.extent if isinstance(v.extent, int) else 1 << 31)


def _with_conditions(factor: Scalar, conditions: tuple[Condition, ...]) -> Scalar:
    if not conditions:
        return factor
    zero = Number(identity("sum", factor.dtype), factor.dtype)
    return Guard(conditions, factor, zero, factor.dtype)


@dataclass(frozen=True)
class SharedTiles:
    """``tile`` by ``tile`` results to a group."""

    tile: int = 8

    def lower(self, lowering: StageLowering) -> Function:
        """The function of a stage; :class:`ScheduleError` if it is no product."""
        product_ = find_product(lowering.nest)
        if product_ is None:
            raise ScheduleError("tiles in shared memory are for products of matrices")
        return _TiledProduct(self.tile, lowering, product_).function()


class _TiledProduct:
    def __init__(self, tile: int, lowering: StageLowering, found: ProductOperands) -> None:
        fresh = lowering.names.fresh
        self._tile = tile
        self._lowering = lowering
        self._found = found
        self._nest = lowering.nest
        self._groups = fresh("gb"), fresh("gi"), fresh("gj")
        self._threads = fresh("ti"), fresh("tj")
        self._block, self._term = fresh("kb"), fresh("k")
        dtype = self._nest.body.dtype
        self._left = Buffer(fresh("left"), dtype, tile * tile, "shared")
        self._right = Buffer(fresh("right"), dtype, tile * tile, "shared")

    def function(self) -> Function:
        """Grid, threads, and what these do."""
        tile, found = self._tile, self._found
        inner = tuple(self._thread())
        for name in reversed(self._threads):
            inner = (For(name, 0, tile, inner, kind="thread"),)
        body: tuple[Stmt, ...] = (Alloc(self._left), Alloc(self._right), *inner)
        extents = (
            product(v.extent for v in found.batch),
            ceildiv(found.row.extent, tile),
            ceildiv(found.column.extent, tile),
        )
        for name, extent in reversed(list(zip(self._groups, extents, strict=True))):
            body = (For(name, 0, extent, body, kind="grid"),)
        return self._lowering.function(body)

    def _thread(self) -> list[Stmt]:
        tile, found, dtype = self._tile, self._found, self._nest.body.dtype
        i, j = map(Sym, self._threads)
        row, column = Sym(self._groups[1]) * tile + i, Sym(self._groups[2]) * tile + j
        outer = Evaluation(self._lowering.names)
        batch = outer.place(found.batch, Sym(self._groups[0])) if found.batch else {}
        point = {**batch, found.row.name: row, found.column.name: column}
        total = outer.register("sum", identity("sum", dtype), dtype)
        block, k = Sym(self._block) * tile, Sym(self._term)
        left, right = self._left.name, self._right.name
        factors = Load(left, i * tile + k, dtype), Load(right, k * tile + j, dtype)
        terms = product(v.extent for v in self._nest.reduce)
        step = (
            *self._load(self._left, found.left, point, found.row, block + j),
            *self._load(self._right, found.right, point, found.column, block + i),
            Barrier(),
            For(self._term, 0, tile, (Assign(total.name, MulAdd(*factors, total)),)),
            Barrier(),
        )
        inside = (
            Condition(row, "<", found.row.extent),
            Condition(column, "<", found.column.extent),
        )
        return [
            *outer.statements,
            For(self._block, 0, ceildiv(terms, tile), step),
            *guarded(inside, [store_at(self._nest, point, total)]),
        ]

    def _load(
        self, buffer: Buffer, factor: Scalar, point: Point, along: LoopVar, term: Index
    ) -> list[Stmt]:
        """This thread's element of a tile, 0 outside of the operand."""
        i, j = map(Sym, self._threads)
        terms = product(v.extent for v in self._nest.reduce)
        outer = Evaluation(self._lowering.names)
        value = outer.register("item", identity("sum", buffer.dtype), buffer.dtype)
        inner = outer.nested()
        where = {**point, **inner.place(self._nest.reduce, term)}
        found = inner.value(factor, where)
        inner.statements.append(Assign(value.name, found))
        conditions = (
            Condition(where[along.name], "<", along.extent),
            Condition(term, "<", terms),
        )
        return [
            *outer.statements,
            *guarded(conditions, inner.statements),
            Store(buffer.name, i * self._tile + j, value),
        ]
