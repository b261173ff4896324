"""SSE2, AVX2 and AVX-512: sums of two neighbouring products of 16 bits."""

from __future__ import annotations

from modelcc.ir.instructions import DOT4, LANE
from modelcc.ir.loop import Instruction, InstructionOperand, Load, ScalarCall
from modelcc.ir.types import I32
from modelcc.targets.isa.templates import CTemplate, Encoding, LlvmTemplate

DOT_HALVES = Instruction(
    "dot_halves",
    (InstructionOperand("a", I32), InstructionOperand("b", I32)),
    ScalarCall("dot_halves", (Load("a", LANE, I32), Load("b", LANE, I32)), I32),
)
"""On words that hold the halves."""


def _bytes(call: str, shorts: str, words: str) -> str:
    """Bytes at even places and those at odd ones are halves of lanes already: no shuffles."""
    return f"""
        %up = shl {shorts} %b, splat (i16 8)
        %a0 = and {shorts} %a, splat (i16 255)
        %b0 = ashr {shorts} %up, splat (i16 8)
        %p0 = {call}({shorts} %a0, {shorts} %b0)
        %c0 = add {words} %c, %p0
        %a1 = lshr {shorts} %a, splat (i16 8)
        %b1 = ashr {shorts} %b, splat (i16 8)
        %p1 = {call}({shorts} %a1, {shorts} %b1)
        %d = add {words} %c0, %p1
    """


def _encodings(
    lanes: int, features: tuple[str, ...], name: str, prefix: str, size: str, macro: str
) -> tuple[Encoding, ...]:
    shorts, words = f"<{2 * lanes} x i16>", f"<{lanes} x i32>"
    call = f"call {words} @llvm.x86.{name}"
    halves = LlvmTemplate((shorts,) * 2, words, f"%d = {call}({shorts} %a, {shorts} %b)")
    bytes = LlvmTemplate((shorts, shorts, words), words, _bytes(call, shorts, words))
    vector = f"__m{32 * lanes}i"
    added = f"return (i32x{lanes}){prefix}_madd_epi16(({vector})a, ({vector})b);"
    texts = (added, _bytes_in_c(lanes, prefix, size))
    c = [CTemplate("immintrin.h", (macro,), text) for text in texts]
    where = (lanes, "x86_64", features, ("pmaddwd",))
    return Encoding(DOT_HALVES, *where, halves, c[0]), Encoding(DOT4, *where, bytes, c[1])


def _bytes_in_c(lanes: int, prefix: str, size: str) -> str:
    bits = 32 * lanes
    return f"""
        const __m{bits}i x = (__m{bits}i)a, y = (__m{bits}i)b, up = {prefix}_slli_epi16(y, 8);
        const __m{bits}i x0 = {prefix}_and_{size}(x, {prefix}_set1_epi16(255));
        const __m{bits}i p0 = {prefix}_madd_epi16(x0, {prefix}_srai_epi16(up, 8));
        const __m{bits}i x1 = {prefix}_srli_epi16(x, 8), y1 = {prefix}_srai_epi16(y, 8);
        const __m{bits}i p1 = {prefix}_madd_epi16(x1, y1);
        const __m{bits}i c0 = {prefix}_add_epi32((__m{bits}i)c, p0);
        return (i32x{lanes}){prefix}_add_epi32(c0, p1);
    """


ENCODINGS = (
    *_encodings(4, (), "sse2.pmadd.wd", "_mm", "si128", "__SSE2__"),
    *_encodings(8, ("+avx2",), "avx2.pmadd.wd", "_mm256", "si256", "__AVX2__"),
    *_encodings(16, ("+avx512bw",), "avx512.pmaddw.d.512", "_mm512", "si512", "__AVX512BW__"),
)
