"""Products of tiles on tensor cores of sm_90a: ``wgmma`` from shared memory as TMA writes it, in
rows of 128 bytes with 128-byte swizzle.

Thread ``l`` of 128 holds, of the sums, rows ``16(l/32) + l%32/4`` and 8 below, and of each 8
columns number ``2(l%4)`` and the next one (PTX ISA, "Register fragments for wgmma.mma_async"); the
same of rows that are operands, two terms (K) per register.  A tile is given by a 64-bit descriptor:
its address in units of 16 bytes; from bit 16 on, the stride between parts of a transposed one; from
bit 32 on, the stride of 8 rows; from bit 62 on, the swizzle mode ("Matrix descriptor format").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from modelcc.ir.index import Index, floordiv, mod
from modelcc.ir.loop import Function
from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, DType
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.targets.isa.nvidia_mma import MatrixClear, MatrixStore
from modelcc.targets.isa.tile_products import (
    BYTES,
    COLUMNS,
    DEPTH_BYTES,
    FEW_COLUMNS,
    OPERANDS,
    ROWS,
    clear_sums,
    depth,
    multiply_rows,
    multiply_tiles,
    store_panel,
    store_turned,
)

WARP_GROUP = 128

_UNIT = 16
_SWIZZLED = 1 << 62
_EIGHT_ROWS = 8 * DEPTH_BYTES // _UNIT << 32
_TERM_BYTES = 32
"""Bytes of an instruction's terms."""


@dataclass(frozen=True)
class TileOperand:
    """The bits of a tile's descriptor except its address, the increment of that from instruction to
    instruction, and whether the tile is transposed."""

    bits: int
    step: int
    transposed: bool


@dataclass(frozen=True)
class TileMultiply:
    """The number of ``instructions`` called ``mnemonic``, one for each part of the terms; without a
    tile ``a``, rows are in registers.  Those with ``turned`` take immediates for transposed
    tiles."""

    mnemonic: str
    instructions: int
    a: TileOperand | None
    b: TileOperand
    turned: bool


@dataclass(frozen=True)
class TurnedStore:
    """Sums are stored with columns as rows."""


TileInstruction: TypeAlias = MatrixClear | MatrixStore | TurnedStore | TileMultiply

_NAMES: Mapping[DType, str] = {F16: "f16", BF16: "bf16", F8E4M3FN: "e4m3", F8E5M2: "e5m2"}


def _terms(dtype: DType) -> int:
    return _TERM_BYTES // dtype.bytes


def _operand(dtype: DType, transposed: bool) -> TileOperand:
    if not transposed:
        return TileOperand(_SWIZZLED | _EIGHT_ROWS, _TERM_BYTES // _UNIT, False)
    part = depth(dtype) * DEPTH_BYTES // _UNIT << 16
    return TileOperand(_SWIZZLED | _EIGHT_ROWS | part, _terms(dtype) * DEPTH_BYTES // _UNIT, True)


def own_row(lane: Index) -> Index:
    """The first row of which a thread holds elements; the other one is 8 below."""
    return 16 * floordiv(lane, 32) + floordiv(mod(lane, 32), 4)


def own_column(lane: Index) -> Index:
    """The first column of 8 of which a thread holds elements; the other one is the next."""
    return 2 * mod(lane, 4)


def own_element(lane: Index) -> Index:
    """The index of a thread's first element in a fragment."""
    return ROWS * own_column(lane) + own_row(lane)


def own_byte(offset: Index, lane: Index, dtype: DType) -> int | None:
    """The byte offset among a thread's registers of element ``offset`` of a fragment; None if the
    thread is not known to hold it."""
    place = offset - own_element(lane)
    if not isinstance(place, int):
        return None
    column, row = divmod(place, ROWS)
    if row not in (0, 8) or column % 8 > 1:
        return None
    pair = column // 8 * 2 + row // 8
    return (pair * 2 + column % 8) * dtype.bytes


def _multiply(dtype: DType, columns: int, a: bool | None, b: bool) -> TileMultiply:
    name = _NAMES[dtype]
    mnemonic = f"wgmma.mma_async.sync.aligned.m{ROWS}n{columns}k{_terms(dtype)}.f32.{name}.{name}"
    count = DEPTH_BYTES // _TERM_BYTES
    left = None if a is None else _operand(dtype, a)
    return TileMultiply(mnemonic, count, left, _operand(dtype, b), dtype.bits == 16)


def _known() -> Mapping[Function, TileInstruction]:
    found: dict[Function, TileInstruction] = {
        **{expand_narrow(store_panel(dtype)): MatrixStore() for dtype in (F32, *OPERANDS)},
        store_turned(): TurnedStore(),
    }
    for columns in (*FEW_COLUMNS, *COLUMNS):
        found[clear_sums(columns)] = MatrixClear()
        for dtype in BYTES:
            routine = expand_narrow(multiply_tiles(dtype, columns))
            found[routine] = _multiply(dtype, columns, False, False)
        for dtype in OPERANDS:
            for b in (False, True) if columns in COLUMNS else (False,):
                found[multiply_rows(dtype, columns, b)] = _multiply(dtype, columns, None, b)
                for a in (False, True):
                    routine = multiply_tiles(dtype, columns, a, b)
                    found[routine] = _multiply(dtype, columns, a, b)
    return found


TILE_INSTRUCTIONS = _known()
"""How a warp of 128 threads executes routines on tiles."""
