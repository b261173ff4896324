"""Loop functions as OpenCL C, by the printer of C."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.loop import Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.opencl.dialect import OPENCL


def opencl_text(functions: Sequence[Function], limits: GroupLimits) -> str:
    """OpenCL C of ``functions``, which fit within ``limits``.

    Raises :class:`ModelError` for what is no function of groups or does not fit, and
    ``NotImplementedError`` or ``TypeError`` for what OpenCL C cannot express.
    """
    for function in functions:
        verify_function(function, limits)
    plain = [expand_instructions(expand_math(function, arrays=False), {}) for function in functions]
    return emit_c(plain, EmitOptions(dialect=OPENCL))
