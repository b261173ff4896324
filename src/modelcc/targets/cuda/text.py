"""Loop functions of groups as LLVM IR for NVIDIA's GPUs, and as PTX."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.loop import Function
from modelcc.targets.cuda.chips import Chip
from modelcc.targets.gpu.llvm_kernels import LlvmKernels
from modelcc.targets.isa.nvidia_fast import DIVIDE, KERNEL_ENCODINGS
from modelcc.targets.llvm.dialect import NVPTX, NVPTX_90, NVPTX_90A
from modelcc.targets.llvm.instructions import Instructions
from modelcc.targets.native.toolchain import CodegenOptions, assembly

_INSTRUCTIONS = Instructions(
    KERNEL_ENCODINGS, half_conversions=True, brain_rounding=True, rounding=True, extrema=True
)


def kernels_of(chip: Chip) -> LlvmKernels:
    """The printer of kernels for ``chip``."""
    groups = NVPTX if chip.major < 9 else NVPTX_90A if chip.name == "sm_90a" else NVPTX_90
    return LlvmKernels(chip.machine, groups, _INSTRUCTIONS, DIVIDE)


def llvm_text(functions: Sequence[Function], chip: Chip) -> str:
    """LLVM IR of any functions of groups; raises like :meth:`LlvmKernels.text`."""
    kernels = kernels_of(chip)
    return kernels.text([kernels.legal(function) for function in functions], chip.gpu.limits)


def ptx_text(llvm: str, chip: Chip, optimize: int = 2) -> str:
    """PTX of such LLVM IR."""
    return assembly(llvm, chip.machine, CodegenOptions(optimize=3 if optimize > 2 else 2))
