"""Rows of matrices inside loop functions, which lie in memory one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.algorithm import AlgorithmBuilder, call, number, reduce, splat
from modelcc.ir.compute import Operand
from modelcc.ir.index import Index, product
from modelcc.ir.loop import Buffer, Expr, Var
from modelcc.ir.op import require
from modelcc.ir.types import F32, F64, TensorType


@dataclass(frozen=True)
class MatrixRow:
    """The elements of ``buffer`` from ``start`` on."""

    buffer: Buffer | Operand
    start: Index

    def load(self, at: AlgorithmBuilder, place: Index, lanes: int = 1) -> Expr:
        return at.load(self.buffer, self.start + place, lanes)

    def store(self, at: AlgorithmBuilder, place: Index, value: Expr) -> None:
        at.store(self.buffer, self.start + place, value)

    def after(self, count: Index) -> MatrixRow:
        """Without its first ``count`` elements."""
        return MatrixRow(self.buffer, self.start + count)


@dataclass(frozen=True)
class MatrixRows:
    """A matrix of rows of ``width`` elements, the first of which is at ``start``."""

    buffer: Buffer | Operand
    start: Index
    width: Index

    def row(self, number: Index) -> MatrixRow:
        return MatrixRow(self.buffer, self.start + number * self.width)

    def load(self, at: AlgorithmBuilder, row: Index, column: Index) -> Expr:
        return at.load(self.buffer, self.start + row * self.width + column)

    def store(self, at: AlgorithmBuilder, row: Index, column: Index, value: Expr) -> None:
        at.store(self.buffer, self.start + row * self.width + column, value)


def rows_of(x: Operand, matrix: Index) -> MatrixRows:
    """Number ``matrix`` of those that the last two axes of ``x`` are."""
    height, width = x.shape[-2:]
    return MatrixRows(x, matrix * height * width, width)


def count_of(x: TensorType) -> Index:
    """How many matrices ``x`` has."""
    return product(x.shape[:-2])


def require_matrices(x: TensorType, op: str, square: bool = False) -> None:
    """:class:`ModelError` unless ``x`` has matrices of f32 or f64 as its last axes."""
    require(x.dtype in (F32, F64), f"{op} of {x.dtype}, which is not f32 or f64")
    require(x.rank >= 2, f"{op} of {x}, which has no matrices")
    require(not square or x.shape[-1] == x.shape[-2], f"{op} of {x}, which is not square")


def dot(at: AlgorithmBuilder, a: MatrixRow, b: MatrixRow, count: Index) -> Var:
    """The sum of the products of as many elements."""
    dtype, lanes = a.buffer.dtype, at.lanes
    wide = at.register(number(0.0, dtype, lanes))
    with at.loop(0, count // lanes) as block:
        _accumulate(at, wide, a, b, block * lanes)
    total = at.register(reduce("add", wide))
    if lanes > 1:
        with at.loop(count // lanes * lanes, count) as place:
            _accumulate(at, total, a, b, place)
    return total


def _accumulate(at: AlgorithmBuilder, total: Var, a: MatrixRow, b: MatrixRow, place: Index) -> None:
    term = call("mul", a.load(at, place, total.lanes), b.load(at, place, total.lanes))
    at.assign(total, call("add", total, term))


def subtract_scaled(
    at: AlgorithmBuilder, y: MatrixRow, x: MatrixRow, factor: Expr, count: Index
) -> None:
    """``y -= factor * x``, of as many elements."""
    for place, lanes in at.vectors(count):
        scaled = call("mul", splat(factor, lanes), x.load(at, place, lanes))
        y.store(at, place, call("sub", y.load(at, place, lanes), scaled))


def scale(at: AlgorithmBuilder, x: MatrixRow, factor: Expr, count: Index) -> None:
    """``x *= factor``, of as many elements."""
    for place, lanes in at.vectors(count):
        x.store(at, place, call("mul", x.load(at, place, lanes), splat(factor, lanes)))


def swap(at: AlgorithmBuilder, a: MatrixRow, b: MatrixRow, count: Index) -> None:
    """As many elements of both, exchanged."""
    for place, lanes in at.vectors(count):
        one, other = at.let(a.load(at, place, lanes)), at.let(b.load(at, place, lanes))
        a.store(at, place, other)
        b.store(at, place, one)


def rotate(
    at: AlgorithmBuilder, a: MatrixRow, b: MatrixRow, cosine: Expr, sine: Expr, count: Index
) -> None:
    """``a, b = cosine a - sine b, sine a + cosine b``, of as many elements."""
    for place, lanes in at.vectors(count):
        c, s = splat(cosine, lanes), splat(sine, lanes)
        x, y = at.let(a.load(at, place, lanes)), at.let(b.load(at, place, lanes))
        a.store(at, place, call("sub", call("mul", c, x), call("mul", s, y)))
        b.store(at, place, call("add", call("mul", s, x), call("mul", c, y)))
