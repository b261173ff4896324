"""Loop functions as Metal's shading language, by the printer of C."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.loop import Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_traversal import has_elements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import F64
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.metal.dialect import METAL

LIMITS = GroupLimits(shared_bytes=32 << 10, threads=1024)
"""What a threadgroup has on every GPU of Apple's."""


def metal_text(functions: Sequence[Function], head: str = "") -> str:
    """MSL of ``functions`` after the comment ``head``.

    Raises :class:`ModelError` for what is no function of groups or does not fit a threadgroup, and
    ``NotImplementedError`` or ``TypeError`` for what the language cannot say.
    """
    for function in functions:
        verify_function(function, LIMITS)
    plain = [expand_instructions(expand_math(function), {}) for function in functions]
    for function in plain:
        _check_doubles(function)
    return emit_c(plain, EmitOptions(head=head, dialect=METAL))


def _check_doubles(function: Function) -> None:
    if has_elements(function, F64):
        raise TypeError(
            f"GPUs of Apple's have no f64, which @{function.name} computes with; cast it to f32"
        )
