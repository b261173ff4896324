"""C text of a host program: one function that runs all steps.

::

    int32_t <name>_run(void *const *inputs, void *const *outputs, void *const *constants,
                       void *arena, const int64_t *sizes, void *pool)

and ``const mcc_host *host`` if it allocates at run time; see :mod:`modelcc.targets.steps`.
``sizes`` is not const if some are read from memory.

Without ``options.static`` there is a twin for the runtime, ``<name>_run.profile``, which records
the time before each step and after the last in ``<name>_run.times``; one call at a time (not
reentrant).
"""

from __future__ import annotations

from collections.abc import Iterable

from modelcc.ir.program import Program, leaves, libraries
from modelcc.targets.c.code import folded
from modelcc.targets.c.dialect import GNU, CDialect
from modelcc.targets.c.emitter import PLAIN, EmitOptions, definitions, file_text, prototype
from modelcc.targets.c.names import symbol
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.steps import StepsCode, parameters
from modelcc.targets.c.toolchain import semantics
from modelcc.targets.steps import write_steps

HOST = """typedef struct {
    void *(*allocate)(void *context, int64_t which, int64_t bytes);
    void *context;
} mcc_host;"""


def entry_name(program: Program) -> str:
    """Symbol of the function that runs the program."""
    return symbol(f"{program.name}_run")


def program_head(program: Program, dialect: CDialect = GNU) -> str:
    """A comment on how to compile and call the file."""

    def listed(kind: str, names: Iterable[str]) -> list[str]:
        found = [f"  {n}: {name}, {program.types[name]}" for n, name in enumerate(names)]
        return [f"{kind}:", *found] if found else []

    lines = [
        f"{entry_name(program)}: {sum(1 for _ in leaves(program.steps))} steps.",
        f"Compile it with {' '.join(semantics(dialect))}, and with pool.c;",
        "-DMCC_SERIAL does without the thread pool.",
        *(f"Link it with -l{name}." for name in libraries(program)),
        *listed("inputs", program.inputs),
        *listed("outputs", program.outputs),
        *(f"  {name} is where input {taken} is" for name, taken in program.states.items()),
        *listed("constants", program.constants),
        f"arena: {program.placed.arena} bytes, 64-aligned",
    ]
    lines += [f"sizes: {', '.join(program.dims)}"] if program.dims else []
    lines += [f"  where {d.symbol} = {d.value}" for d in program.placed.definitions]
    return "\n".join(lines)


def emit_program_c(program: Program, options: EmitOptions = PLAIN) -> str:
    """C text of the file that defines :func:`entry_name`.

    With ``options.static`` it defines the kernels, too, and is complete; else it declares them.
    """
    prelude = Prelude(options.dialect)
    parts: list[str] = []
    if options.static:
        parts += definitions(program.callees, prelude, options)
    else:
        for function in program.callees:
            parts.append("\n".join(folded(f"{prototype(function)};", "")))
    if program.allocated:
        parts.append(HOST)
    writer = StepsCode(program, prelude)
    write_steps(program, writer)
    parts.append(writer.text(entry_name(program)))
    if not options.static and options.dialect.labels:
        parts += _profiled(program, prelude)
    return file_text(parts, prelude, options)


def _profiled(program: Program, prelude: Prelude) -> list[str]:
    """The profiled twin, under names that C reaches by assembler labels only."""
    entry = entry_name(program)
    times, profile = f"{entry}_times", f"{entry}_profile"
    writer = StepsCode(program, prelude)
    write_steps(program, writer, times)
    label = f'int32_t {profile}({", ".join(parameters(program))}) __asm__("{entry}.profile");'
    array = f'struct timespec {times}[{len(program.steps) + 1}] __asm__("{entry}.times");'
    return ["#include <time.h>", array, "\n".join(folded(label, "")), writer.text(profile)]
