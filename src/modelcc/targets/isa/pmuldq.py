"""SSE4.1, AVX2 and AVX-512: upper halves of products of 32 bits, even lanes and odd ones apart."""

from __future__ import annotations

from modelcc.ir.instructions import LANE
from modelcc.ir.loop import Instruction, InstructionOperand, Load, ScalarCall
from modelcc.ir.types import I32
from modelcc.targets.isa.templates import Encoding, LlvmTemplate

HIGH_WORD = Instruction(
    "high_word",
    (InstructionOperand("a", I32), InstructionOperand("b", I32)),
    ScalarCall("high_word", (Load("a", LANE, I32), Load("b", LANE, I32)), I32),
)


def _encoding(lanes: int, features: tuple[str, ...]) -> Encoding:
    """Odd lanes of the result are where the product has them; even ones come from above."""
    longs, words = f"<{lanes // 2} x i64>", f"<{lanes} x i32>"
    places = ", ".join(f"i32 {lanes + i if i % 2 else i}" for i in range(lanes))
    text = f"""
        %a0 = shl {longs} %a, splat (i64 32)
        %a1 = ashr {longs} %a0, splat (i64 32)
        %b0 = shl {longs} %b, splat (i64 32)
        %b1 = ashr {longs} %b0, splat (i64 32)
        %even = mul {longs} %a1, %b1
        %a2 = ashr {longs} %a, splat (i64 32)
        %b2 = ashr {longs} %b, splat (i64 32)
        %odd = mul {longs} %a2, %b2
        %down = lshr {longs} %even, splat (i64 32)
        %low = bitcast {longs} %down to {words}
        %high = bitcast {longs} %odd to {words}
        %d = shufflevector {words} %low, {words} %high, <{lanes} x i32> <{places}>
    """
    llvm = LlvmTemplate((longs,) * 2, words, text)
    return Encoding(HIGH_WORD, lanes, "x86_64", features, ("pmuldq",), llvm)


ENCODINGS = (
    _encoding(4, ("+sse4.1",)),
    _encoding(8, ("+avx2",)),
    _encoding(16, ("+avx512f",)),
)
