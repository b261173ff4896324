"""Dot products of four bytes on 64-bit Arm: FEAT_DotProd, and of mixed signs FEAT_I8MM."""

from __future__ import annotations

from modelcc.ir.instructions import DOT4, dot_product
from modelcc.ir.loop import Instruction
from modelcc.ir.types import I8, I32, U8, U32
from modelcc.targets.isa.templates import CTemplate, Encoding, LlvmTemplate

SDOT = dot_product("sdot", I8, I8, I32, range(4))
UDOT = dot_product("udot", U8, U8, U32, range(4))

_TYPES = ("<16 x i8>", "<16 x i8>", "<4 x i32>")
_DOTPROD, _I8MM = "__ARM_FEATURE_DOTPROD", "__ARM_FEATURE_MATMUL_INT8"


def _call(name: str, c: str, a: str, b: str) -> str:
    callee = f"call <4 x i32> @llvm.aarch64.neon.{name}.v4i32.v16i8"
    return f"{callee}(<4 x i32> {c}, <16 x i8> {a}, <16 x i8> {b})"


def _encoding(
    instruction: Instruction, feature: str, name: str, text: str, macro: str, c: str
) -> Encoding:
    return Encoding(
        instruction, 4, "aarch64", (feature,), (name,),
        LlvmTemplate(_TYPES, "<4 x i32>", text), CTemplate("arm_neon.h", (macro,), c),
    )  # fmt: skip


_MIXED = f"""
    %signed = xor <16 x i8> %a, splat (i8 -128)
    %c0 = {_call("sdot", "%c", "%signed", "%b")}
    %c1 = {_call("sdot", "%c0", "splat (i8 64)", "%b")}
    %d = {_call("sdot", "%c1", "splat (i8 64)", "%b")}
"""
"""``a * b = (a - 128) * b + 64 * b + 64 * b``, where 128 itself is no signed byte."""

_MIXED_IN_C = """
    const int8x16_t half = vdupq_n_s8(64), x = (int8x16_t)(a ^ 128), y = (int8x16_t)b;
    const int32x4_t c0 = vdotq_s32((int32x4_t)c, x, y);
    return (i32x4)vdotq_s32(vdotq_s32(c0, half, y), half, y);
"""

ENCODINGS = (
    _encoding(
        SDOT, "+dotprod", "sdot", f"%d = {_call('sdot', '%c', '%a', '%b')}", _DOTPROD,
        "return (i32x4)vdotq_s32((int32x4_t)c, (int8x16_t)a, (int8x16_t)b);",
    ),
    _encoding(
        UDOT, "+dotprod", "udot", f"%d = {_call('udot', '%c', '%a', '%b')}", _DOTPROD,
        "return (u32x4)vdotq_u32((uint32x4_t)c, (uint8x16_t)a, (uint8x16_t)b);",
    ),
    _encoding(
        DOT4, "+i8mm", "usdot", f"%d = {_call('usdot', '%c', '%a', '%b')}", _I8MM,
        "return (i32x4)vusdotq_s32((int32x4_t)c, (uint8x16_t)a, (int8x16_t)b);",
    ),
    _encoding(DOT4, "+dotprod", "sdot", _MIXED, _DOTPROD, _MIXED_IN_C),
)  # fmt: skip
