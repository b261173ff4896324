"""Fragments on AMD's matrix cores (CDNA 2 to 4: gfx90a, gfx942, gfx950): loads from LDS and
``v_mfma``, by a wave of 64 threads.

AMD's calculator of register layouts (github.com/ROCm/amd_matrix_instruction_calculator, commit
2ef91896, ``--register-layout`` of ``v_mfma_f32_16x16x16_f16`` and the others below) says: thread
``l`` has of the instruction's first operand row ``l % 16``, of the second one column ``l % 16``, of
both the ``l / 16``-th quarter of the terms, one behind the other, and of the sums rows
``4 (l / 16)`` to ``4 (l / 16) + 3`` of column ``l % 16``.

Here ``%b`` is the first operand and ``%a`` the second one, so that a thread has four neighbouring
columns of row ``l % 16`` of ``%c``.  Of ``%a`` and ``%b`` it has bytes ``8 (l / 16)`` to
``8 (l / 16) + 7`` of row, or column, ``l % 16``.  Where one instruction takes a part of these, the
terms of a fragment are several instructions', each of which has the same ones of both operands; and
where it takes two fragments, each thread has two pieces of a row for one of twice the size.  Those
of gfx950 with so many terms are laid out alike (ROCm/composable_kernel, ``mfma_type`` in
xdlops_gemm.hpp: 4 blocks of 16 threads with 8 terms each).

Numbers of f32 are multiplied as they are, also those below the normal range (PyTorch, "Numerical
accuracy": MI200).  What is not here is multiplied in threads: f16 on gfx90a, whose instruction
takes such numbers as 0 (ROCm, MIOpen: "MI200 MFMA behavior specifics"), and floats of 8 bits before
gfx950, which are of other formats there (ROCm, "Data types and precision support": FNUZ).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from modelcc.ir.index import Index, floordiv, mod
from modelcc.ir.loop import Function
from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32, DType
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.targets.isa.fragments import (
    SIDE,
    clear_c,
    load_a,
    load_b,
    multiply,
    scale_c,
    store_c,
    sums_of,
)

WAVE = 64

ROW_THREADS, OWN = WAVE // SIDE, SIDE * SIDE // WAVE
"""Threads that have a row of sums, and neighbours of it that each of them has."""


@dataclass(frozen=True)
class WaveLoad:
    """Bytes of a row that lie side by side by one load of each thread; ``apart``, elements that are
    a row apart each by its own, where threads have every so-manieth column."""

    apart: bool
    every: int = 1


@dataclass(frozen=True)
class WaveMultiply:
    """Instructions one behind the other, each of operands of LLVM type ``operand``, of ``bits``,
    out of what a thread has of a fragment; ``sums`` is the type of four of them."""

    intrinsic: str
    operand: str
    bits: int
    sums: str


@dataclass(frozen=True)
class WaveClear:
    """Zeros."""


@dataclass(frozen=True)
class WaveScale:
    """A row of f32 by its factor from memory."""


@dataclass(frozen=True)
class WaveStore:
    """Four neighbours of a row at once, or in every so-manieth place."""

    every: int = 1


WaveInstruction: TypeAlias = WaveLoad | WaveMultiply | WaveClear | WaveScale | WaveStore

_MFMA = "llvm.amdgcn.mfma.{}"
_HALF = WaveMultiply(_MFMA.format("f32.16x16x16f16"), "<4 x half>", 64, "<4 x float>")
_BRAIN = WaveMultiply(_MFMA.format("f32.16x16x16bf16.1k"), "<4 x i16>", 64, "<4 x float>")
_BYTES = WaveMultiply(_MFMA.format("i32.16x16x32.i8"), "i64", 64, "<4 x i32>")
_WHOLE = WaveMultiply(_MFMA.format("f32.16x16x4f32"), "float", 32, "<4 x float>")
_FEW_BYTES = WaveMultiply(_MFMA.format("i32.16x16x16i8"), "i32", 32, "<4 x i32>")


def _float8(name: str) -> WaveMultiply:
    return WaveMultiply(_MFMA.format(f"f32.16x16x32.{name}.{name}"), "i64", 64, "<4 x float>")


_CHIPS: Mapping[str, Mapping[DType, WaveMultiply]] = {
    "gfx90a": {BF16: _BRAIN, F32: _WHOLE, I8: _FEW_BYTES},
    "gfx942": {F16: _HALF, BF16: _BRAIN, F32: _WHOLE, I8: _BYTES},
    "gfx950": {
        F32: _WHOLE,
        F16: _HALF,
        BF16: _BRAIN,
        I8: _BYTES,
        F8E4M3FN: _float8("fp8"),
        F8E5M2: _float8("bf8"),
    },
}
"""What multiplies operands of a type."""

TOGETHER = 2
_DEEP: Mapping[str, Mapping[DType, WaveMultiply]] = {
    "gfx950": {
        F16: WaveMultiply(_MFMA.format("f32.16x16x32.f16"), "<8 x half>", 128, "<4 x float>"),
        BF16: WaveMultiply(_MFMA.format("f32.16x16x32.bf16"), "<8 x bfloat>", 128, "<4 x float>"),
        I8: WaveMultiply(_MFMA.format("i32.16x16x64.i8"), "<4 x i32>", 128, "<4 x i32>"),
    }
}
"""What multiplies those of :data:`TOGETHER` fragments."""


def own_row(lane: Index) -> Index:
    """The row of sums, or of ``%a``, that a thread has numbers of."""
    return mod(lane, SIDE)


def own_column(lane: Index) -> Index:
    """The first of the :data:`OWN` columns that it has: of ``%a``, if its elements have 16 bits,
    the same."""
    return OWN * floordiv(lane, SIDE)


def own_element(lane: Index) -> Index:
    """Where a thread's first number is in a fragment."""
    return SIDE * own_row(lane) + own_column(lane)


def own_byte(offset: Index, lane: Index, dtype: DType) -> int | None:
    """Where among its registers a thread has element ``offset`` of fragments of sums, or of ``%a``
    of 16 bits; None if it is not seen to have it."""
    place = offset - own_element(lane)
    if not isinstance(place, int) or dtype.bits not in (16, 32):
        return None
    fragment, column = divmod(place, SIDE * SIDE)
    return (fragment * OWN + column) * dtype.bytes if column < OWN else None


def _known(chip: str) -> Mapping[Function, WaveInstruction]:
    products = _CHIPS[chip]
    found: dict[Function, WaveInstruction] = {
        multiply(dtype, together=TOGETHER): how for dtype, how in _DEEP.get(chip, {}).items()
    }
    for dtype, multiplied in products.items():
        found[load_a(dtype)] = found[load_b(dtype, transposed=True)] = WaveLoad(apart=False)
        for every in (1, 2, 4):
            found[load_a(dtype, True, every)] = WaveLoad(apart=True, every=every)
            found[load_b(dtype, False, every)] = WaveLoad(apart=True, every=every)
        found[multiply(dtype, exact=True)] = multiplied
        found[clear_c(sums_of(dtype))] = WaveClear()
    found[scale_c()] = WaveScale()
    for to, every in product((F32, F16, BF16), (1, 2, 4)):
        found[store_c(F32, to, every)] = WaveStore(every)
    found[store_c(I32, I32)] = WaveStore()
    return {expand_narrow(routine): how for routine, how in found.items()}


MATRIX_INSTRUCTIONS = {chip: _known(chip) for chip in _CHIPS}
"""How a wave of a chip runs routines on fragments."""
