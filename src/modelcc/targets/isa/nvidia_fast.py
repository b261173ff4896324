"""Functions by NVIDIA's approximate instructions: kernels use them where the lost bits do not
matter.

Powers of two have 22 bits (PTX ISA, "ex2"), quotients are wrong by at most 2 units in the last
place, for all operands ("div", of ``.full``).
"""

from __future__ import annotations

from modelcc.ir.instructions import LANE
from modelcc.ir.loop import Instruction, InstructionOperand, Load, ScalarCall
from modelcc.ir.types import F32
from modelcc.targets.isa.templates import Encoding, LlvmTemplate

EXP2 = Instruction(
    "exp2_fast",
    (InstructionOperand("x", F32),),
    ScalarCall("exp2", (Load("x", LANE, F32),), F32),
    exact=False,
)
"""2^x where a relative error of 2^-22 does not matter; subnormal results are flushed to 0."""

DIVIDE = Instruction(
    "div_fast",
    (InstructionOperand("x", F32), InstructionOperand("y", F32)),
    ScalarCall("div", (Load("x", LANE, F32), Load("y", LANE, F32)), F32),
    exact=False,
)
"""x / y where a relative error of 2^-22 does not matter."""


def _divide(lanes: int) -> Encoding:
    """Lane by lane."""
    quotient = "call float @llvm.nvvm.div.full(float {}, float {})"
    wide, lines = f"<{lanes} x float>", list[str]()
    if lanes == 1:
        wide, lines = "float", [f"%z = {quotient.format('%x', '%y')}"]
    for lane in range(lanes if lanes > 1 else 0):
        before = f"%z{lane - 1}" if lane else "poison"
        lines += [f"%{v}{lane} = extractelement {wide} %{v}, i32 {lane}" for v in "xy"]
        lines += [
            f"%q{lane} = {quotient.format(f'%x{lane}', f'%y{lane}')}",
            f"%z{lane} = insertelement {wide} {before}, float %q{lane}, i32 {lane}",
        ]
    template = LlvmTemplate((wide, wide), wide, "\n".join(lines))
    return Encoding(DIVIDE, lanes, "nvptx64", (), ("div.full",), template)


KERNEL_ENCODINGS = (
    Encoding(
        EXP2, 1, "nvptx64", (), ("ex2.approx",),
        LlvmTemplate(("float",), "float", "%y = call float @llvm.nvvm.ex2.approx.ftz.f(float %x)"),
    ),
    *map(_divide, (1, 2, 4, 8)),
)  # fmt: skip
"""Encodings for GPUs' threads; those of processors are in the common table."""
