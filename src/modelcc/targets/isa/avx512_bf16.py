"""AVX-512 BF16: dot products of two bf16, added to each lane of f32.

Numbers too small to be normal are taken as 0, and so are such results; the product at the odd place
is added first (Intel's Software Developer's Manual, VDPBF16PS).
"""

from __future__ import annotations

from modelcc.ir.instructions import DOT2
from modelcc.targets.isa.templates import CTemplate, Encoding, LlvmTemplate


def _encoding(
    lanes: int, features: tuple[str, ...], macros: tuple[str, ...], prefix: str
) -> Encoding:
    pairs, sums = f"<{2 * lanes} x bfloat>", f"<{lanes} x float>"
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    call = f"%d = call {sums} @{name}({sums} %c, {pairs} %a, {pairs} %b)"
    bits = 32 * lanes
    c = f"return (f32x{lanes}){prefix}_dpbf16_ps((__m{bits})c, (__m{bits}bh)a, (__m{bits}bh)b);"
    return Encoding(
        DOT2, lanes, "x86_64", features, ("vdpbf16ps",),
        LlvmTemplate((pairs, pairs, sums), sums, call), CTemplate("immintrin.h", macros, c),
    )  # fmt: skip


_NARROW = ("+avx512bf16", "+avx512vl")

ENCODINGS = (
    _encoding(16, _NARROW[:1], ("__AVX512BF16__",), "_mm512"),
    _encoding(8, _NARROW, ("__AVX512BF16__", "__AVX512VL__"), "_mm256"),
    _encoding(4, _NARROW, ("__AVX512BF16__", "__AVX512VL__"), "_mm"),
)
