"""LLVM module text of a host program: one function that runs all steps.

::

    define i32 @<name>_run(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena, ptr %sizes,
                           ptr %pool)

and ``ptr %host`` if it allocates at run time; see :mod:`modelcc.targets.steps`.  Kernels are
declared, not defined: they may come from other modules.

``@<name>_run.profile`` does the same and records the time before each step and after the last in
``@<name>_run.times``, an array of ``struct timespec`` (CLOCK_MONOTONIC); one call at a time (not
reentrant).  It is a separate module, since it takes LLVM as long as the plain one.
"""

from __future__ import annotations

from modelcc.ir.program import Program
from modelcc.targets.llvm.emitter import PLAIN, EmitOptions, module_text
from modelcc.targets.llvm.steps import CLOCK, StepsCode
from modelcc.targets.llvm.values import quoted
from modelcc.targets.steps import write_steps

PROFILE, TIMES = ".profile", ".times"
"""Suffixes of the entry point's name for its profiled twin, and for the times."""


def entry_name(program: Program) -> str:
    """Symbol of the function that runs the program."""
    return f"{program.name}_run"


def emit_entry_points(program: Program, options: EmitOptions = PLAIN) -> tuple[str, str]:
    """Texts of two modules: of :func:`entry_name`, and of its twin that records the time before
    each step and after the last one."""
    declarations: dict[str, None] = {}
    writer, times = StepsCode(program, declarations), quoted(entry_name(program) + TIMES)
    write_steps(program, writer, times)
    count = 2 * (len(program.steps) + 1)
    array = f"@{times} = global [{count} x i64] zeroinitializer"
    timed = writer.text(entry_name(program) + PROFILE)
    plain = writer.text(entry_name(program), clocks=False)
    others = {text: None for text in declarations if text != CLOCK}
    return (
        module_text([plain], others, options),
        module_text([array, timed], declarations, options),
    )
