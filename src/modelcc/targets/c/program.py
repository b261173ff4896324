"""C text of a host program: one function that runs all steps.

::

    int32_t <name>_run(void *const *inputs, void *const *outputs, void *const *constants,
                       void *arena, const int64_t *sizes, void *pool)

``inputs`` and ``outputs`` point to arrays of buffer addresses in the program's order,
``constants`` likewise in the order of ``program.constants``; ``sizes`` to the values of
``program.dims``, in order.  ``arena`` is aligned to 64 bytes; ``pool`` is NULL or a thread pool.
The result is 0.

Without ``options.static`` there is a twin for the runtime, ``<name>_run.profile``, which notes the
time before each step and after the last in ``<name>_run.times``; one call at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from modelcc.ir.index import Range, symbols
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.program import (
    Binding,
    BranchSteps,
    CopyTensor,
    Launch,
    Place,
    Program,
    RepeatSteps,
    Step,
    leaves,
    step_tensors,
)
from modelcc.targets.c.code import Code, folded
from modelcc.targets.c.emitter import (
    PLAIN,
    EmitOptions,
    definitions,
    file_text,
    prototype,
)
from modelcc.targets.c.indices import IndexCode
from modelcc.targets.c.names import symbol
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.toolchain import SEMANTICS

_PARAMETERS = (
    "void *const *inputs", "void *const *outputs", "void *const *constants", "void *arena",
    "const int64_t *sizes", "void *pool",
)  # fmt: skip
_NAMES = ("inputs", "outputs", "constants", "arena", "sizes", "pool")


def entry_name(program: Program) -> str:
    """Symbol of the function that runs the program."""
    return symbol(f"{program.name}_run")


def program_head(program: Program) -> str:
    """What a reader of the file has to know to compile and call it."""

    def listed(kind: str, names: Iterable[str]) -> list[str]:
        found = [f"  {n}: {name}, {program.bindings[name].type}" for n, name in enumerate(names)]
        return [f"{kind}:", *found] if found else []

    lines = [
        f"{entry_name(program)}: {sum(1 for _ in leaves(program.steps))} steps.",
        f"Compile it with {' '.join(SEMANTICS)}, and with pool.c;",
        "-DMCC_SERIAL does without the thread pool.",
        *listed("inputs", program.inputs),
        *listed("outputs", program.outputs),
        *listed("constants", program.constants),
        f"arena: {program.arena} bytes, 64-aligned",
    ]
    lines += [f"sizes: {', '.join(program.dims)}"] if program.dims else []
    lines += [f"  where {d.symbol} = {d.value}" for d in program.definitions]
    return "\n".join(lines)


def emit_program_c(program: Program, options: EmitOptions = PLAIN) -> str:
    """C text of the file that defines :func:`entry_name`.

    With ``options.static`` it defines the kernels, too, and is complete; else it declares them.
    """
    prelude = Prelude()
    parts: list[str] = []
    if options.static:
        parts += definitions(program.functions, prelude, options)
    else:
        for function in program.functions:
            parts.append("\n".join(folded(f"{prototype(function)};", "")))
    writer = _ProgramCode(program, prelude)
    for step in program.steps:
        writer.step(step)
    parts.append(writer.text(entry_name(program)))
    if not options.static:
        parts += _profiled(program, prelude)
    return file_text(parts, prelude, options)


def _profiled(program: Program, prelude: Prelude) -> list[str]:
    """The twin, under names that C reaches by assembler labels only."""
    entry = entry_name(program)
    times, profile = f"{entry}_times", f"{entry}_profile"
    writer = _ProgramCode(program, prelude)
    for position, step in enumerate(program.steps):
        writer.clock(times, position)
        writer.step(step)
    writer.clock(times, len(program.steps))
    label = f'int32_t {profile}({", ".join(_PARAMETERS)}) __asm__("{entry}.profile");'
    array = f'struct timespec {times}[{len(program.steps) + 1}] __asm__("{entry}.times");'
    return ["#include <time.h>", array, "\n".join(folded(label, "")), writer.text(profile)]


class _ProgramCode:
    def __init__(self, program: Program, prelude: Prelude) -> None:
        self._program = program
        self._functions = {f.name: f for f in program.functions}
        self._code = Code()
        for name in _NAMES:
            self._code.fresh(name)
        for function in program.functions:
            self._code.scope.taken.add(symbol(function.name))
        self._index = IndexCode(self._code, prelude)
        self._bind_sizes()
        self._tensors: dict[str, str] = {}
        self._bind_tensors(program.steps)

    def text(self, name: str) -> str:
        """The function's definition."""
        body = " ".join(self._code.lines)
        unused = [name for name in _NAMES if not re.search(rf"\b{name}\b", body)]
        if unused:
            self._code.line(", ".join(f"(void){name}" for name in unused) + ";")
        self._code.line("return 0;")
        head = f"int32_t {name}({', '.join(_PARAMETERS)})"
        return "\n".join([*folded(head, ""), "{", *self._code.lines, "}"])

    def clock(self, times: str, position: int) -> None:
        """Note the time."""
        self._code.line(f"clock_gettime(CLOCK_MONOTONIC, &{times}[{position}]);")

    def step(self, step: Step) -> None:
        """Print one step."""
        if step.source:
            self._code.comment(", ".join(step.source))
        match step:
            case Launch():
                self._launch(step, self._functions[step.function])
            case CopyTensor():
                self._copy(step)
            case BranchSteps():
                self._branch(step)
            case RepeatSteps():
                self._repeat(step)

    def _branch(self, step: BranchSteps) -> None:
        with self._code.block(f"if ({self._holds(step.condition)})"):
            self._inside(step.then)
        if step.other:
            with self._code.block("else"):
                self._inside(step.other)

    def _repeat(self, step: RepeatSteps) -> None:
        trips = "" if step.trips is None else self._index.text(step.trips)
        with self._code.nested():
            counter = self._code.fresh(step.counter)
        bound = f"{counter} < {trips}" if trips else ""
        with self._code.block(f"for (int64_t {counter} = 0; {bound}; {counter}++)") as scope:
            scope.taken.add(counter)
            scope.symbols[step.counter] = counter
            scope.bounds[step.counter] = Range(0, None if step.trips is None else step.trips - 1)
            outside = dict(self._tensors)
            if step.condition is not None:
                self._bind_tensors((), (step.condition,))
                self._code.line(f"if (!{self._holds(step.condition)}) break;")
            self._inside(step.body)
            self._tensors = outside

    def _inside(self, steps: Sequence[Step]) -> None:
        outside = dict(self._tensors)
        self._bind_tensors(steps)
        for step in steps:
            self.step(step)
        self._tensors = outside

    def _holds(self, condition: str) -> str:
        return f"*(const uint8_t *){self._tensors[condition]}"

    def _bind_sizes(self) -> None:
        scope = self._code.scope
        for position, (name, known) in enumerate(self._program.dims.items()):
            self._define(name, f"sizes[{position}]")
            scope.bounds[name] = known
        for definition in self._program.definitions:
            self._define(definition.symbol, self._index.text(definition.value))

    def _define(self, symbol: str, text: str) -> None:
        spelled = self._code.fresh(symbol)
        self._code.line(f"const int64_t {spelled} = {text};")
        self._code.scope.symbols[symbol] = spelled

    def _bind_tensors(self, steps: Sequence[Step], first: Sequence[str] = ()) -> None:
        """Name the addresses that are known here, in order of use; others wait for their loop."""
        visible = {name for scope in self._code.scopes for name in scope.symbols}
        for name in dict.fromkeys((*first, *(n for step in steps for n in step_tensors(step)))):
            binding = self._program.bindings[name]
            if name not in self._tensors and visible.issuperset(symbols(binding.offset)):
                self._bind_tensor(binding)

    def _bind_tensor(self, binding: Binding) -> None:
        if binding.place == "arena":
            offset = "" if binding.offset == 0 else f" + {self._index.inner(binding.offset)}"
            source = f"(uint8_t *)arena{offset}"
        else:
            names = self._names(binding.place)
            source = f"{binding.place}s[{names.index(_owner(binding))}]"
        spelled = self._tensors[binding.name] = self._code.fresh(binding.name)
        self._code.line(f"void *const {spelled} = {source};", str(binding.type))

    def _launch(self, step: Launch, function: Function) -> None:
        arguments = [self._tensors[name] for name in step.arguments]
        arguments += [self._index.text(size) for size in step.sizes]
        if parallel_loop(function):
            arguments.append("pool")
        self._code.line(f"{symbol(function.name)}({', '.join(arguments)});")

    def _copy(self, step: CopyTensor) -> None:
        target, source = self._tensors[step.target], self._tensors[step.source_tensor]
        size = self._index.text(self._program.bindings[step.target].type.bytes)
        self._code.line(f"memmove({target}, {source}, (size_t)({size}));")

    def _names(self, place: Place) -> tuple[str, ...]:
        match place:
            case "input":
                return self._program.inputs
            case "output":
                return self._program.outputs
            case _:
                return tuple(self._program.constants)


def _owner(binding: Binding) -> str:
    """The input, output or constant that a tensor is a view of, or is itself."""
    return binding.name
