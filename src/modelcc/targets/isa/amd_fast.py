"""Functions by AMD's approximate instructions: kernels use them where the lost bits do not matter.
Powers of two are wrong by a unit in the last place (CDNA3 ISA, "V_EXP_F32")."""

from __future__ import annotations

from modelcc.targets.isa.nvidia_fast import EXP2
from modelcc.targets.isa.templates import Encoding, LlvmTemplate

KERNEL_ENCODINGS = (
    Encoding(
        EXP2, 1, "amdgcn", (), ("v_exp_f32",),
        LlvmTemplate(("float",), "float", "%y = call float @llvm.amdgcn.exp2.f32(float %x)"),
    ),
)  # fmt: skip
