"""LLVM module text of a host program: one function that runs all steps.

::

    define i32 @<name>_run(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena, ptr %sizes,
                           ptr %pool)

``inputs`` and ``outputs`` point to arrays of buffer addresses in the program's order,
``constants`` likewise in the order of ``program.constants``; ``sizes`` to the i64 values of
``program.dims``, in order.  ``arena`` is aligned to 64 bytes; ``pool`` is null or a thread pool.
The result is 0, or 1 + the position of the check of sizes read from memory that does not hold
(see :func:`modelcc.ir.program.checks`); these sizes are written to ``sizes``.  A program that
allocates while it runs takes another ``ptr %host``, to a function
``ptr allocate(ptr context, i64 which, i64 bytes)`` and its context; ``which`` counts
``program.allocated``.  Null from it ends the run with -1.  Kernels are declared, not defined: they
may come from other modules.

``@<name>_run.profile`` does the same and notes the time before each step and after the last in
``@<name>_run.times``, an array of ``struct timespec`` (CLOCK_MONOTONIC); one call at a time.  It is
a module of its own, since it takes LLVM as long as the plain one.
"""

from __future__ import annotations

from modelcc.ir.program import Program
from modelcc.targets.llvm.emitter import PLAIN, EmitOptions, module_text
from modelcc.targets.llvm.steps import StepsCode
from modelcc.targets.llvm.values import quoted

PROFILE, TIMES = ".profile", ".times"
"""What is appended to the entry point's name for its profiled twin, and for the times."""


def entry_name(program: Program) -> str:
    """Symbol of the function that runs the program."""
    return f"{program.name}_run"


def emit_program(program: Program, options: EmitOptions = PLAIN) -> str:
    """LLVM IR text of the module that defines :func:`entry_name`."""
    declarations: dict[str, None] = {}
    writer = StepsCode(program, declarations)
    for step in program.steps:
        writer.step(step)
    return module_text([writer.text(entry_name(program))], declarations, options)


def emit_profiled(program: Program, options: EmitOptions = PLAIN) -> str:
    """LLVM IR text of the module that defines the entry point's profiled twin."""
    declarations: dict[str, None] = {}
    writer, times = StepsCode(program, declarations), quoted(entry_name(program) + TIMES)
    for position, step in enumerate(program.steps):
        writer.clock(times, position)
        writer.step(step)
    writer.clock(times, len(program.steps))
    count = 2 * (len(program.steps) + 1)
    array = f"@{times} = global [{count} x i64] zeroinitializer"
    text = writer.text(entry_name(program) + PROFILE)
    return module_text([array, text], declarations, options)
