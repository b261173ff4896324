"""Fragments on NVIDIA's tensor cores, from sm_80 on (8-bit floats: sm_89): ``ldmatrix`` and
``mma.sync``.

Thread ``l`` of a warp holds, of ``%a``, bytes ``4(l%4)`` to ``4(l%4) + 3`` of both halves of rows
``l/4`` and ``l/4 + 8``; of ``%b``, the same with columns for rows; and of ``%c``, columns
``2(l%4)`` and the next of these rows, in the left and then in the right half (PTX ISA, "Matrix
fragments for mma.m16n8k16").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelcc.ir.index import Index, floordiv, mod
from modelcc.ir.loop import Function
from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I32, U8, DType
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.targets.isa.fragments import (
    INTEGERS,
    OPERANDS,
    SIDE,
    clear_c,
    load_a,
    load_b,
    multiply,
    scale_c,
    store_c,
    sums_of,
)
from modelcc.targets.isa.split_product import multiply_split

WARP = 32

REGISTERS = "mma.sync"
"""The family of instructions with a documented distribution of fragments over threads."""

OWN_ROWS, OWN_COLUMNS = (0, 8), (0, 1, 8, 9)
"""Rows and columns that a thread holds of ``%a`` with 16 terms (K), and of ``%c``, relative to its
first ones."""


def own_row(lane: Index) -> Index:
    """The first row of which a thread holds elements."""
    return floordiv(lane, 4)


def own_column(lane: Index) -> Index:
    """The first column, or term, of which a thread holds elements."""
    return 2 * mod(lane, 4)


def own_element(lane: Index) -> Index:
    """The index of a thread's first element in a fragment."""
    return SIDE * own_row(lane) + own_column(lane)


def own_byte(offset: Index, lane: Index, dtype: DType) -> int | None:
    """The byte offset among a thread's registers of element ``offset`` of fragments ``%c``, or
    ``%a`` with 16 terms; None if the thread is not known to hold it."""
    place = offset - own_element(lane)
    if not isinstance(place, int):
        return None
    fragment, inside = divmod(place, SIDE * SIDE)
    row, column = divmod(inside, SIDE)
    if row not in OWN_ROWS or column not in OWN_COLUMNS:
        return None
    pair = 2 * (column // 8) + row // 8
    return (8 * fragment + 2 * pair + column % 8) * dtype.bytes


@dataclass(frozen=True)
class MatrixLoad:
    """Four 8 x 16-byte matrices by one instruction.  Thread ``l`` gives the address of a row of the
    source: row ``l%16`` of half ``l/16``, or, if rows of both halves are consecutive
    (``halves_first``), row ``l%8 + 8(l/16)`` of half ``l/8 % 2``."""

    intrinsic: str
    halves_first: bool


@dataclass(frozen=True)
class MatrixColumns:
    """32-bit elements down the columns of the source, each thread its own: those of rows ``l%4``
    and ``l%4 + 4`` in columns ``l/4`` and ``l/4 + 8``; with ``halves_first``, both rows of a column
    are consecutive, else both columns of a row."""

    halves_first: bool


@dataclass(frozen=True)
class MatrixMultiply:
    """Two instructions, one for each half of the columns; ``operand`` and ``sums`` are the LLVM
    types of one register, ``rounding`` converts an element to a register.  ``split`` elements are
    two registers, with three products of as many instructions each."""

    intrinsic: str
    operand: str
    sums: str
    rounding: str = ""
    split: bool = False


@dataclass(frozen=True)
class MatrixClear:
    """Zeros."""


@dataclass(frozen=True)
class MatrixScale:
    """Rows of f32 times factors from memory, each thread its own."""


@dataclass(frozen=True)
class MatrixStore:
    """Pairs of neighbours, each thread its own: 16 rows and columns of each warp."""


MatrixInstruction: TypeAlias = (
    MatrixLoad | MatrixColumns | MatrixMultiply | MatrixClear | MatrixScale | MatrixStore
)

_LOAD = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{}.b16.p3"
_MMA = "llvm.nvvm.mma.{}"
_F8 = "m16n8k32.row.col.f32"

_MULTIPLY: Mapping[DType, MatrixMultiply] = {
    F16: MatrixMultiply(_MMA.format("m16n8k16.row.col.f32.f32"), "<2 x half>", "float"),
    BF16: MatrixMultiply(_MMA.format("m16n8k16.row.col.bf16"), "i32", "float"),
    F32: MatrixMultiply(
        _MMA.format("m16n8k8.row.col.tf32"), "i32", "float", "llvm.nvvm.f2tf32.rna"
    ),
    **{
        dtype: MatrixMultiply(_MMA.format(f"{_F8}.{name}.{name}.f32"), "i32", "float")
        for dtype, name in ((F8E4M3FN, "e4m3"), (F8E5M2, "e5m2"))
    },
}

_BYTES = "m16n8k32.row.col"


def _of_integers(left: DType, right: DType) -> MatrixMultiply:
    """Of bytes of either sign: exact sums, modulo 2**32."""
    names = dict.fromkeys("u8" if dtype == U8 else "s8" for dtype in (left, right))
    return MatrixMultiply(_MMA.format(".".join((_BYTES, *names))), "i32", "i32")


def _known() -> Mapping[Function, MatrixInstruction]:
    found: dict[Function, MatrixInstruction] = {}
    plain, transposed = _LOAD.format(""), _LOAD.format(".trans")
    for dtype in OPERANDS:
        found[load_a(dtype)] = MatrixLoad(plain, halves_first=False)
        found[load_b(dtype, transposed=True)] = MatrixLoad(plain, halves_first=True)
        if dtype.bits == 16:
            found[load_a(dtype, transposed=True)] = MatrixLoad(transposed, halves_first=True)
            found[load_b(dtype)] = MatrixLoad(transposed, halves_first=False)
        if dtype == F32:
            found[load_a(dtype, transposed=True)] = MatrixColumns(halves_first=False)
            found[load_b(dtype)] = MatrixColumns(halves_first=True)
        if dtype in INTEGERS:
            for other in INTEGERS:
                found[multiply(dtype, other=other)] = _of_integers(dtype, other)
        else:
            found[multiply(dtype)] = _MULTIPLY[dtype]
        found[clear_c(sums_of(dtype))] = MatrixClear()
    found[multiply_split()] = replace(_MULTIPLY[F32], split=True)
    found[scale_c()] = MatrixScale()
    for to in (F32, F16, BF16):
        found[store_c(F32, to)] = MatrixStore()
    found[store_c(I32, I32)] = MatrixStore()
    return {expand_narrow(routine): how for routine, how in found.items()}


MATRIX_INSTRUCTIONS = _known()
"""How a warp executes routines on fragments."""
