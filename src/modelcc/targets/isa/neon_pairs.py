"""64-bit Arm without dot products: sums of two neighbouring numbers in twice as many bits.

The product of an unsigned and a signed byte fits 16 bits.
"""

from __future__ import annotations

from modelcc.ir.instructions import DOT4
from modelcc.targets.isa.templates import CTemplate, Encoding, LlvmTemplate


def _half(first: int) -> str:
    places = ", ".join(f"i32 {n}" for n in range(first, first + 8))
    return f"shufflevector <16 x i16> %p, <16 x i16> poison, <8 x i32> <{places}>"


_PAIRS = "call <4 x i32> @llvm.aarch64.neon.saddlp.v4i32.v8i16"
_ADDED = "call <4 x i32> @llvm.aarch64.neon.addp.v4i32"

_LLVM = f"""
    %x = zext <16 x i8> %a to <16 x i16>
    %y = sext <16 x i8> %b to <16 x i16>
    %p = mul <16 x i16> %x, %y
    %low = {_half(0)}
    %high = {_half(8)}
    %s0 = {_PAIRS}(<8 x i16> %low)
    %s1 = {_PAIRS}(<8 x i16> %high)
    %s = {_ADDED}(<4 x i32> %s0, <4 x i32> %s1)
    %d = add <4 x i32> %c, %s
"""

_C = """
    const uint8x16_t x = (uint8x16_t)a;
    const int8x16_t y = (int8x16_t)b;
    const int16x8_t x0 = (int16x8_t)vmovl_u8(vget_low_u8(x)), y0 = vmovl_s8(vget_low_s8(y));
    const int16x8_t x1 = (int16x8_t)vmovl_high_u8(x), y1 = vmovl_high_s8(y);
    const int32x4_t s0 = vpaddlq_s16(vmulq_s16(x0, y0)), s1 = vpaddlq_s16(vmulq_s16(x1, y1));
    return (i32x4)vaddq_s32((int32x4_t)c, vpaddq_s32(s0, s1));
"""

ENCODINGS = (
    Encoding(
        DOT4, 4, "aarch64", (), ("saddlp", "addp"),
        LlvmTemplate(("<16 x i8>", "<16 x i8>", "<4 x i32>"), "<4 x i32>", _LLVM),
        CTemplate("arm_neon.h", ("__aarch64__",), _C),
    ),
)  # fmt: skip
