"""Powers of two by NVIDIA's own instruction, which has 22 bits of them (PTX ISA, "ex2")."""

from __future__ import annotations

from modelcc.ir.instructions import LANE
from modelcc.ir.loop import Instruction, InstructionOperand, Load, ScalarCall
from modelcc.ir.types import F32
from modelcc.targets.isa.templates import Encoding, LlvmTemplate

EXP2 = Instruction(
    "exp2_fast",
    (InstructionOperand("x", F32),),
    ScalarCall("exp2", (Load("x", LANE, F32),), F32),
)
"""2^x where a relative error of 2^-22 is nothing; results below the normal numbers are 0."""

KERNEL_ENCODINGS = (
    Encoding(
        EXP2, 1, "nvptx64", (), ("ex2.approx",),
        LlvmTemplate(("float",), "float", "%y = call float @llvm.nvvm.ex2.approx.ftz.f(float %x)"),
    ),
)  # fmt: skip
"""Of GPUs' threads; those of processors are in the table of all of them."""
