"""Fragments on AMD's GPUs of RDNA 3 and 4 (gfx11, gfx12): loads from LDS and ``v_wmma`` of 16 by 16
sums and 16 terms, by a wave of 32 threads.

AMD's calculator of register layouts (github.com/ROCm/amd_matrix_instruction_calculator, commit
2ef91896, ``--detail-instruction`` of ``v_wmma_f32_16x16x16_f16`` and the others below, for rdna3
and rdna4) says: thread ``l`` holds row ``l % 16`` of the instruction's first operand, column
``l % 16`` of the second one.  On RDNA 3 it holds all terms (K) of it, as do both threads ``l`` and
``l + 16``, and of the sums rows ``2 r + l / 16`` of column ``l % 16`` in its registers ``r``.  On
RDNA 4 it holds a half of the terms, the same ones of both operands, and of the sums rows
``8 (l / 16)`` to ``8 (l / 16) + 7``.  (AMD, GPUOpen: "How to accelerate AI applications on RDNA 3
using WMMA", "Using the Matrix Cores of AMD RDNA 4 architecture GPUs".)

Here ``%b`` is the first operand and ``%a`` the second one, as in
:mod:`modelcc.targets.isa.amd_mfma`, so that a thread holds eight columns of row ``l % 16`` of
``%c``: every second one, or neighbours.  Of ``%a`` and ``%b`` it holds, on RDNA 4, bytes
``16 (l / 16)`` to ``16 (l / 16) + 15`` of row, or column, ``l % 16``: which of the terms these are
to the instruction does not matter, as they are the same of both.  The 32 terms of fragments of
bytes take two instructions.

Subnormal f16 is multiplied exactly, subnormal bf16 is flushed to 0.  The ISA documents do not say
so: that was measured on gfx1151, of RDNA 3.5 (ROCm/rocm-systems, issue 12056), as was that dot
products of pairs take f16 exactly on all of AMD's GPUs but gfx90a (llvm-project, pull request
205101).  8-bit floats are those of the Open Compute Project; RDNA 3 has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, I8, DType
from modelcc.targets.isa.wave_fragments import WaveLayout, WaveMultiply, wave_matrices

RDNA3 = WaveLayout(wave=32, operand_bytes=32, first=1, apart=2)
RDNA4 = WaveLayout(wave=32, operand_bytes=16, first=8)

_WMMA = "llvm.amdgcn.wmma.{}.16x16x16.{}"
_SUMS, _WHOLE_SUMS = "<8 x float>", "<8 x i32>"
_SIGNED = ("i1 true", "b", "i1 true", "a", "c", "i1 false")
"""Both operands of bytes are signed, and sums wrap around."""


def _floats(name: str, operand: str, bits: int) -> WaveMultiply:
    return WaveMultiply(_WMMA.format("f32", name), operand, bits, _SUMS)


def _bytes(name: str, operand: str, bits: int) -> WaveMultiply:
    return WaveMultiply(_WMMA.format("i32", name), operand, bits, _WHOLE_SUMS, _SIGNED)


_RDNA3: Mapping[DType, WaveMultiply] = {
    F16: _floats("f16.v8f32.v16f16", "<16 x half>", 256),
    BF16: _floats("bf16.v8f32.v16i16", "<16 x i16>", 256),
    I8: _bytes("iu8.v8i32.v4i32", "<4 x i32>", 128),
}
_RDNA4: Mapping[DType, WaveMultiply] = {
    F16: _floats("f16.v8f32.v8f16", "<8 x half>", 128),
    BF16: _floats("bf16.v8f32.v8i16", "<8 x i16>", 128),
    I8: _bytes("iu8.v8i32.v2i32", "<2 x i32>", 64),
    F8E4M3FN: _floats("fp8.fp8.v8f32.v2i32", "<2 x i32>", 64),
    F8E5M2: _floats("bf8.bf8.v8f32.v2i32", "<2 x i32>", 64),
}

WAVE_MATRICES = {
    "gfx1100": wave_matrices(RDNA3, _RDNA3, {}),
    "gfx1201": wave_matrices(RDNA4, _RDNA4, {}),
}
"""Instructions by chip."""
