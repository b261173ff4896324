"""Matrices in gradient formulas: the last two axes of values, whatever is before them."""

from __future__ import annotations

from modelcc.ir.index import Index
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.generate import EyeLike, Full
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Trilu
from modelcc.ops.views import part, permuted, reshaped


def swapped(x: Value) -> Value:
    """Transposes."""
    rank = x.type.rank
    return permuted(x, *range(rank - 2), rank - 1, rank - 2)


def product(a: Value, b: Value) -> Value:
    return of(MatMul(), a, b)


def lower(x: Value, k: int = 0) -> Value:
    """The triangle ``j - i <= k``."""
    return of(Trilu(False, k), x)


def upper(x: Value, k: int = 0) -> Value:
    """The triangle ``j - i >= k``."""
    return of(Trilu(True, k), x)


def block(x: Value, rows: Index, columns: Index) -> Value:
    """The first rows and columns."""
    return part(part(x, -2, 0, rows), -1, 0, columns)


def zeros(like: Value, rows: Index, columns: Index) -> Value:
    """As many matrices as ``like`` has, of zeros."""
    shape = (*like.type.shape[:-2], rows, columns)
    return Value(like.build, like.build.emit(Full(shape, 0.0, like.type.dtype)))


def identity(like: Value, rows: Index, columns: Index) -> Value:
    """As many matrices as ``like`` has, with ones on the diagonal."""
    build, dtype = like.build, like.type.dtype
    one = of(EyeLike(dtype), Value(build, build.emit(Full((rows, columns), 0.0, dtype))))
    return of(Expand((*like.type.shape[:-2], rows, columns)), one)


def row(x: Value) -> Value:
    """A vector as a matrix of one row."""
    return reshaped(x, *x.type.shape[:-1], 1, x.type.shape[-1])


def column(x: Value) -> Value:
    """A vector as a matrix of one column."""
    return reshaped(x, *x.type.shape, 1)
