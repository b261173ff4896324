"""Functions of groups as LLVM IR, for any machine with an LLVM back end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.loop import Function, Instruction
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.expand_copies import expand_copies
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.passes.loop.expand_tiles import expand_tiles
from modelcc.passes.loop.narrow_quotients import narrow_quotients
from modelcc.targets.c.names import symbol
from modelcc.targets.isa.table import lanes_of
from modelcc.targets.llvm.dialect import LlvmGroups
from modelcc.targets.llvm.emitter import EmitOptions, emit_llvm
from modelcc.targets.llvm.instructions import Instructions
from modelcc.targets.native.machine import Machine


@dataclass(frozen=True)
class LlvmKernels:
    """Prints kernels for ``machine`` with the intrinsics of ``groups``, and quotients that are
    rounded to 16 bits with ``divide``."""

    machine: Machine
    groups: LlvmGroups
    instructions: Instructions
    divide: Instruction | None = None

    def legal(self, function: Function) -> Function:
        """Expands elementary functions, narrow types and what the machine lacks."""
        boxes = function if self.groups.tiles else expand_tiles(function)
        copying = boxes if self.groups.copies else expand_copies(boxes)
        simple = expand_math(expand_narrow(copying), arrays=False)
        quick = simple if self.divide is None else narrow_quotients(simple, self.divide)
        return expand_instructions(quick, lanes_of(self.instructions.encodings))

    def text(self, functions: Sequence[Function], limits: GroupLimits) -> str:
        """LLVM IR of :meth:`legal` functions, under names that assemblers accept.

        Raises :class:`ModelError` for what is no function of groups or exceeds ``limits``, and
        ``NotImplementedError`` or ``TypeError`` for what the machine cannot do.
        """
        for function in functions:
            verify_function(function, limits)
        spelled = [replace(function, name=symbol(function.name)) for function in functions]
        options = EmitOptions("nounwind", self.machine.triple, self.instructions, self.groups)
        return emit_llvm(spelled, options)
