"""Loop functions of groups as LLVM text for NVIDIA's GPUs, and as PTX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.loop import Function
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.targets.c.names import symbol
from modelcc.targets.cuda.chips import Chip
from modelcc.targets.llvm.dialect import NVPTX
from modelcc.targets.llvm.emitter import EmitOptions, emit_llvm
from modelcc.targets.llvm.instructions import Instructions
from modelcc.targets.native.toolchain import CodegenOptions, assembly

_INSTRUCTIONS = Instructions(half_conversions=True, rounding=True)


def legal(function: Function) -> Function:
    """Elementary functions, narrow elements and other processors' instructions as arithmetic."""
    return expand_instructions(expand_math(expand_narrow(function)), {})


def llvm_text(functions: Sequence[Function], chip: Chip) -> str:
    """LLVM text of ``functions``, :func:`legal` ones, under names that PTX has.

    Raises :class:`ModelError` for what is no function of groups or does not fit the chip, and
    ``NotImplementedError`` or ``TypeError`` for what it cannot do.
    """
    for function in functions:
        verify_function(function, chip.gpu.limits)
    spelled = [replace(function, name=symbol(function.name)) for function in functions]
    options = EmitOptions("nounwind", chip.machine.triple, _INSTRUCTIONS, NVPTX)
    return emit_llvm(spelled, options)


def ptx_text(llvm: str, chip: Chip, optimize: int = 2) -> str:
    """PTX of such LLVM text."""
    return assembly(llvm, chip.machine, CodegenOptions(optimize=3 if optimize > 2 else 2))
