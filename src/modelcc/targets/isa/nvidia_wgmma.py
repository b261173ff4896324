"""Products of tiles on NVIDIA's tensor cores of sm_90a: ``wgmma`` on shared memory as the tensor
memory accelerator writes it, in rows of 128 bytes that are swizzled by 8.

Thread ``l`` of 128 has of the sums those of rows ``16(l/32) + l%32/4`` and 8 below, of each 8
columns number ``2(l%4)`` and the next one (PTX ISA, "Register fragments for wgmma.mma_async"); of
rows that are operands the same, two terms to a register.
A tile is told by a number of 64 bits: its address in units of 16 bytes, from bit 16 on the step
from part to part of a transposed one, from bit 32 on the step of 8 rows, from bit 62 on how it is
swizzled ("Matrix descriptor format").
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
"""Of an instruction."""


@dataclass(frozen=True)
class TileOperand:
    """The bits of a tile's number but for its address, what that grows by from instruction to
    instruction, and whether it is transposed."""

    bits: int
    step: int
    transposed: bool


@dataclass(frozen=True)
class TileMultiply:
    """So many ``instructions`` called ``mnemonic``, one for each part of the terms; without a tile
    ``a`` rows are in registers.  Those that take ``turned`` tiles are told which are."""

    mnemonic: str
    instructions: int
    a: TileOperand | None
    b: TileOperand
    turned: bool


@dataclass(frozen=True)
class TurnedStore:
    """Sums are stored, columns as rows."""


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
    """The first row that a thread has numbers of; the other one is 8 below."""
    return 16 * floordiv(lane, 32) + floordiv(mod(lane, 32), 4)


def own_column(lane: Index) -> Index:
    """The first column of 8 that a thread has numbers of; the other one is the next."""
    return 2 * mod(lane, 4)


def own_element(lane: Index) -> Index:
    """Where a thread's first number is in a fragment."""
    return ROWS * own_column(lane) + own_row(lane)


def own_byte(offset: Index, lane: Index, dtype: DType) -> int | None:
    """Where among its registers a thread has element ``offset`` of a fragment; None if it is not
    seen to have it."""
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
"""How a warp of 128 threads runs routines on tiles."""
