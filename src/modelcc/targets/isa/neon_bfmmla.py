"""FEAT_BF16 of 64-bit Arm: a matrix of 2 x 4 bf16 by the transpose of another, added to 2 x 2 f32.

It rounds the sums of two products to odd, so results may differ in the last bits (Arm Architecture
Reference Manual, BFMMLA).
"""

from __future__ import annotations

from modelcc.ir.index import Index
from modelcc.ir.instructions import LANE
from modelcc.ir.loop import Convert, Expr, Instruction, InstructionOperand, Load, MulAdd
from modelcc.ir.types import BF16, F32
from modelcc.targets.isa.templates import CTemplate, Encoding, LlvmTemplate

_DEPTH = 4


def _meaning() -> Expr:
    """Lane ``2*i + j``: row ``i`` of a by row ``j`` of b."""

    def element(name: str, row: Index, step: int) -> Expr:
        return Convert(Load(name, row * _DEPTH + step, BF16), F32)

    total: Expr = Load("c", LANE, F32)
    for step in range(_DEPTH):
        total = MulAdd(element("a", LANE // 2, step), element("b", LANE % 2, step), total)
    return total


BFMMLA = Instruction(
    "bfmmla",
    (
        InstructionOperand("a", BF16, 2),
        InstructionOperand("b", BF16, 2),
        InstructionOperand("c", F32),
    ),
    _meaning(),
)

_CALL = "call <4 x float> @llvm.aarch64.neon.bfmmla"

ENCODINGS = (
    Encoding(
        BFMMLA, 4, "aarch64", ("+bf16",), ("bfmmla",),
        LlvmTemplate(
            ("<8 x bfloat>", "<8 x bfloat>", "<4 x float>"), "<4 x float>",
            f"%d = {_CALL}(<4 x float> %c, <8 x bfloat> %a, <8 x bfloat> %b)",
        ),
        CTemplate(
            "arm_neon.h", ("__ARM_FEATURE_BF16_VECTOR_ARITHMETIC",),
            "return (f32x4)vbfmmlaq_f32((float32x4_t)c, (bfloat16x8_t)a, (bfloat16x8_t)b);",
        ),
    ),
)  # fmt: skip
