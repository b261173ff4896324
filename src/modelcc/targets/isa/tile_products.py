"""The meaning of instructions of a warpgroup, here a warp of 128 threads: products of tiles in
shared memory, whose sums are fragments.

A tile has :data:`ROWS` rows or some number of columns, and terms (K) of :data:`DEPTH_BYTES`.  Its
layout is that of box copies (:class:`~modelcc.ir.tiles.CopyTile`): terms are contiguous, or,
transposed, results are, in parts of as many.  Sums are stored column by column.
"""

from __future__ import annotations

from functools import cache

from modelcc.ir.index import Index, Sym, floordiv, mod
from modelcc.ir.loop import (
    Buffer,
    Const,
    Convert,
    For,
    Function,
    Let,
    Load,
    MulAdd,
    Parameter,
    Splat,
    Store,
    Var,
)
from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, DType

ROWS = 64
DEPTH_BYTES = 128
PANEL, TURNED_PANEL = 16, 8
"""Columns that are stored at once, and those that become rows."""

OPERANDS = (F16, BF16)
BYTES = (F8E4M3FN, F8E5M2)
"""8-bit operands, which are multiplied only if their terms are contiguous."""

COLUMNS = (64, 128, 192, 256)
"""Columns of a product, at most as many as there are registers for."""

FEW_COLUMNS = (8, 16, 32)
"""Columns of a product whose results are stored transposed."""

_COLUMN, _TERM = Sym("j"), Sym("k")


def depth(dtype: DType) -> int:
    """Terms of a tile, and its contiguous results if it is transposed."""
    return DEPTH_BYTES // dtype.bytes


def tile_size(dtype: DType, results: int) -> int:
    """Elements of a tile of ``results`` rows or columns."""
    return results * depth(dtype)


def sums_size(columns: int) -> int:
    """Elements of the sums of a product."""
    return ROWS * columns


@cache
def clear_sums(columns: int) -> Function:
    """``c = 0``."""
    body = For("j", 0, columns, (Store("c", ROWS * _COLUMN, Const(0, F32, ROWS)),))
    return Function(f"clear_sums_{columns}", (_sums(columns),), (), (body,))


@cache
def multiply_tiles(
    dtype: DType, columns: int, a_transposed: bool = False, b_transposed: bool = False
) -> Function:
    """``c += a b``, of all terms of two tiles, added in f32."""
    terms = depth(dtype)
    first, step = (terms * _TERM, 1) if a_transposed else (_TERM, terms)
    name = f"multiply_tiles_{dtype}_{columns}{'_a' * a_transposed}{'_b' * b_transposed}"
    return _product(name, dtype, columns, first, step, b_transposed)


@cache
def multiply_rows(dtype: DType, columns: int, b_transposed: bool = False) -> Function:
    """The same with rows that are a fragment in registers, term by term: ``a[ROWS*k + i]``."""
    name = f"multiply_rows_{dtype}_{columns}{'_b' * b_transposed}"
    return _product(name, dtype, columns, ROWS * _TERM, 1, b_transposed)


def _product(
    name: str, dtype: DType, columns: int, first: Index, step: int, b_transposed: bool
) -> Function:
    """Rows of ``a``, at each term from ``first`` on by ``step``, times columns of ``b``."""
    terms = depth(dtype)
    a = Convert(Load("a", first, dtype, ROWS, step), F32)
    b = Convert(Load("b", _b_place(terms, b_transposed), dtype), F32)
    total = MulAdd(Var("rows", F32, ROWS), Splat(b, ROWS), Load("c", ROWS * _COLUMN, F32, ROWS))
    body = (Let("rows", a), For("j", 0, columns, (Store("c", ROWS * _COLUMN, total),)))
    taken = [
        Parameter(Buffer(operand, dtype, tile_size(dtype, results)))
        for operand, results in (("a", ROWS), ("b", columns))
    ]
    return Function(name, (_sums(columns), *taken), (), (For("k", 0, terms, body),))


@cache
def store_panel(dtype: DType = F32) -> Function:
    """``to[stride*i + j] = c[i, j]`` of a panel, rounded to ``dtype``."""
    stride, sums = Sym("stride"), Load("c", ROWS * _COLUMN, F32, ROWS)
    body = Store("to", _COLUMN, sums if dtype == F32 else Convert(sums, dtype), stride)
    to = Parameter(Buffer("to", dtype, (ROWS - 1) * stride + PANEL), mutable=True)
    c = Parameter(Buffer("c", F32, ROWS * PANEL))
    name = "store_panel" if dtype == F32 else f"store_panel_{dtype}"
    return Function(name, (to, c), ("stride",), (For("j", 0, PANEL, (body,)),))


@cache
def store_turned() -> Function:
    """``to[stride*j + i] = c[i, j]`` of a panel whose columns become rows."""
    stride = Sym("stride")
    body = Store("to", stride * _COLUMN, Load("c", ROWS * _COLUMN, F32, ROWS))
    to = Parameter(Buffer("to", F32, (TURNED_PANEL - 1) * stride + ROWS), mutable=True)
    c = Parameter(Buffer("c", F32, ROWS * TURNED_PANEL))
    return Function("store_turned", (to, c), ("stride",), (For("j", 0, TURNED_PANEL, (body,)),))


def _b_place(terms: int, transposed: bool) -> Index:
    if not transposed:
        return terms * _COLUMN + _TERM
    part = terms * terms * floordiv(_COLUMN, terms)
    return part + terms * _TERM + mod(_COLUMN, terms)


def _sums(columns: int) -> Parameter:
    return Parameter(Buffer("c", F32, sums_size(columns)), mutable=True)
