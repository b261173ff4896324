"""AVX-512 VNNI: dot products of four bytes, added to each lane."""

from __future__ import annotations

from modelcc.ir.instructions import DOT4, LANE
from modelcc.ir.loop import Instruction, InstructionOperand, Load, ScalarCall
from modelcc.ir.types import I32
from modelcc.targets.isa.templates import CTemplate, Encoding, LlvmTemplate

_A, _B, _C = (Load(name, LANE, I32) for name in "abc")
_WORDS = tuple(InstructionOperand(name, I32) for name in "abc")
_PRODUCT = ScalarCall("dot_bytes", (_A, _B), I32)

DOT_BYTES = Instruction("dot_bytes", _WORDS[:2], _PRODUCT)
ADD_DOT_BYTES = Instruction("add_dot_bytes", _WORDS, ScalarCall("add", (_C, _PRODUCT), I32))
"""The same on words that hold the bytes."""


def encodings(
    lanes: int, features: tuple[str, ...], macros: tuple[str, ...], function: str,
    mnemonic: str = "vpdpbusd",
) -> tuple[Encoding, ...]:  # fmt: skip
    """The instruction, by all that it can compute; in C it is ``function``."""
    vector, words = f"__m{32 * lanes}i", f"<{lanes} x i32>"
    c = f"return (i32x{lanes}){function}(({vector})c, ({vector})a, ({vector})b);"
    head = f"%d = call {words} @llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    call = f"{head}({words} %c, {words} %a, {words} %b)"
    from_zero = call.replace("%c", "zeroinitializer")
    where = (lanes, "x86_64", features, (mnemonic,))
    added = LlvmTemplate((words,) * 3, words, call), CTemplate("immintrin.h", macros, c)
    return (
        Encoding(DOT4, *where, *added),
        Encoding(ADD_DOT_BYTES, *where, *added),
        Encoding(DOT_BYTES, *where, LlvmTemplate((words,) * 2, words, from_zero)),
    )


_NARROW = ("+avx512vnni", "+avx512vl")

ENCODINGS = (
    *encodings(16, _NARROW[:1], ("__AVX512VNNI__",), "_mm512_dpbusd_epi32"),
    *encodings(8, _NARROW, ("__AVX512VNNI__", "__AVX512VL__"), "_mm256_dpbusd_epi32"),
    *encodings(4, _NARROW, ("__AVX512VNNI__", "__AVX512VL__"), "_mm_dpbusd_epi32"),
)
