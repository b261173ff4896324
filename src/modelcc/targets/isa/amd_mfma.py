"""Fragments on AMD's matrix cores (CDNA 2 to 4: gfx90a, gfx942, gfx950): loads from LDS and
``v_mfma``, by a wave of 64 threads.

AMD's calculator of register layouts (github.com/ROCm/amd_matrix_instruction_calculator, commit
2ef91896, ``--register-layout`` of ``v_mfma_f32_16x16x16_f16`` and the others below) says: thread
``l`` holds row ``l % 16`` of the instruction's first operand, column ``l % 16`` of the second one,
of both the ``l / 16``-th quarter of the terms (K), consecutively, and of the sums rows
``4 (l / 16)`` to ``4 (l / 16) + 3`` of column ``l % 16``.

Here ``%b`` is the first operand and ``%a`` the second one, so that a thread holds four neighbouring
columns of row ``l % 16`` of ``%c``.  Of ``%a`` and ``%b`` it holds bytes ``8 (l / 16)`` to
``8 (l / 16) + 7`` of row, or column, ``l % 16``.  Where one instruction takes a part of these, a
fragment needs several instructions, each with the same terms of both operands; and where it takes
two fragments, each thread's two pieces of a row stand for one of twice the size.  Instructions of
gfx950 with that many terms have the same layout (ROCm/composable_kernel, ``mfma_type`` in
xdlops_gemm.hpp: 4 blocks of 16 threads with 8 terms each).

f32 is multiplied exactly, including subnormals (PyTorch, "Numerical accuracy": MI200).  Types that
are missing here are multiplied by scalar code: f16 on gfx90a, whose instruction flushes subnormals
to 0 (ROCm, MIOpen: "MI200 MFMA behavior specifics"), and 8-bit floats before gfx950, which have
other formats there (ROCm, "Data types and precision support": FNUZ).
"""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, DType
from modelcc.targets.isa.wave_fragments import WaveLayout, WaveMultiply, wave_matrices

LAYOUT = WaveLayout(wave=64, operand_bytes=8, first=4)

_GIVEN = ("b", "a", "c", "i32 0", "i32 0", "i32 0")


def _mfma(name: str, operand: str, bits: int, sums: str = "<4 x float>") -> WaveMultiply:
    return WaveMultiply(f"llvm.amdgcn.mfma.{name}", operand, bits, sums, _GIVEN)


_HALF = _mfma("f32.16x16x16f16", "<4 x half>", 64)
_BRAIN = _mfma("f32.16x16x16bf16.1k", "<4 x i16>", 64)
_BYTES = _mfma("i32.16x16x32.i8", "i64", 64, "<4 x i32>")
_WHOLE = _mfma("f32.16x16x4f32", "float", 32)
_FEW_BYTES = _mfma("i32.16x16x16i8", "i32", 32, "<4 x i32>")

_CHIPS: Mapping[str, Mapping[DType, WaveMultiply]] = {
    "gfx90a": {BF16: _BRAIN, F32: _WHOLE, I8: _FEW_BYTES},
    "gfx942": {F16: _HALF, BF16: _BRAIN, F32: _WHOLE, I8: _BYTES},
    "gfx950": {
        F32: _WHOLE,
        F16: _HALF,
        BF16: _BRAIN,
        I8: _BYTES,
        F8E4M3FN: _mfma("f32.16x16x32.fp8.fp8", "i64", 64),
        F8E5M2: _mfma("f32.16x16x32.bf8.bf8", "i64", 64),
    },
}
"""Instructions by the type of operands."""

TOGETHER = 2
_DEEP: Mapping[str, Mapping[DType, WaveMultiply]] = {
    "gfx950": {
        F16: _mfma("f32.16x16x32.f16", "<8 x half>", 128),
        BF16: _mfma("f32.16x16x32.bf16", "<8 x bfloat>", 128),
        I8: _mfma("i32.16x16x64.i8", "<4 x i32>", 128, "<4 x i32>"),
    }
}
"""Instructions for :data:`TOGETHER` fragments."""

WAVE_MATRICES = {
    chip: wave_matrices(LAYOUT, products, _DEEP.get(chip, {}), TOGETHER)
    for chip, products in _CHIPS.items()
}
"""Instructions by chip."""
