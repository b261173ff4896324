"""C text of a host program: one function that runs all steps.

::

    int32_t <name>_run(void *const *inputs, void *const *outputs, void *const *constants,
                       void *arena, const int64_t *sizes, void *pool)

``inputs`` and ``outputs`` point to arrays of buffer addresses in the program's order,
``constants`` likewise in the order of ``program.constants``; ``sizes`` to the values of
``program.dims``, in order.  ``arena`` is aligned to 64 bytes; ``pool`` is NULL or a thread pool.
The result is 0, or 1 + the position of the check of sizes read from memory that does not hold
(see :func:`modelcc.ir.program.checks`); ``sizes`` is not const where there are such sizes, which
are written to it.

A program that allocates while it runs takes another ``const mcc_host *host``, whose ``allocate``
is asked for the memory that ``which`` counts among ``program.allocated``; NULL from it ends the
run with -1.  With ``options.static`` there is no host: the caller's outputs are large enough for
any size.

Without ``options.static`` there is a twin for the runtime, ``<name>_run.profile``, which notes the
time before each step and after the last in ``<name>_run.times``; one call at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from modelcc.ir.index import Range, symbols
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.op import ModelError
from modelcc.ir.program import (
    Allocate,
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
from modelcc.ir.tensor import ReadSize, size_conditions
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

_NAMES = ("inputs", "outputs", "constants", "arena", "sizes", "pool", "host")
_HOST = """typedef struct {
    void *(*allocate)(void *context, int64_t which, int64_t bytes);
    void *context;
} mcc_host;"""


def _parameters(program: Program, static: bool) -> list[str]:
    found = [f"void *const *{name}" for name in _NAMES[:3]]
    sizes = "int64_t *sizes" if program.read_sizes else "const int64_t *sizes"
    host = ["const mcc_host *host"] if program.allocated and not static else []
    return [*found, "void *arena", sizes, "void *pool", *host]


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
    if program.allocated and not options.static:
        parts.append(_HOST)
    if options.static:
        _refuse_segments(program)
    writer = _ProgramCode(program, prelude, options.static)
    for step in program.steps:
        writer.step(step)
    parts.append(writer.text(entry_name(program)))
    if not options.static:
        parts += _profiled(program, prelude)
    return file_text(parts, prelude, options)


def _refuse_segments(program: Program) -> None:
    """:class:`ModelError` if memory would have to be allocated: there is none to be had."""
    for step in leaves(program.steps):
        if isinstance(step, Allocate) and step.name not in program.outputs:
            raise ModelError(
                f"{step.size} bytes of memory depend on data and have no bound",
                step.source,
                "bound the dimensions that the data stems from, for example --dim n=1..512",
            )


def _profiled(program: Program, prelude: Prelude) -> list[str]:
    """The twin, under names that C reaches by assembler labels only."""
    entry = entry_name(program)
    times, profile = f"{entry}_times", f"{entry}_profile"
    writer = _ProgramCode(program, prelude, False)
    for position, step in enumerate(program.steps):
        writer.clock(times, position)
        writer.step(step)
    writer.clock(times, len(program.steps))
    label = (
        f'int32_t {profile}({", ".join(_parameters(program, False))}) __asm__("{entry}.profile");'
    )
    array = f'struct timespec {times}[{len(program.steps) + 1}] __asm__("{entry}.times");'
    return ["#include <time.h>", array, "\n".join(folded(label, "")), writer.text(profile)]


class _ProgramCode:
    def __init__(self, program: Program, prelude: Prelude, static: bool) -> None:
        self._program = program
        self._static = static
        self._checked = 0
        self._functions = {f.name: f for f in program.functions}
        self._code = Code()
        for name in _NAMES:
            self._code.fresh(name)
        for function in program.functions:
            self._code.scope.taken.add(symbol(function.name))
        self._index = IndexCode(self._code, prelude)
        self._bind_sizes()
        self._pending = frozenset(() if static else program.allocated)
        self._tensors: dict[str, str] = {}
        self._bind_tensors(program.steps)

    def text(self, name: str) -> str:
        """The function's definition."""
        body = " ".join(self._code.lines)
        parameters = _parameters(self._program, self._static)
        names = _NAMES[: len(parameters)]
        unused = [name for name in names if not re.search(rf"\b{name}\b", body)]
        if unused:
            self._code.line(", ".join(f"(void){name}" for name in unused) + ";")
        self._code.line("return 0;")
        head = f"int32_t {name}({', '.join(parameters)})"
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
            case ReadSize():
                self._read_size(step)
            case Allocate():
                self._allocate(step)

    def _read_size(self, step: ReadSize) -> None:
        for position, name in enumerate(step.symbols):
            self._define(name, f"((const int64_t *){self._tensors[step.tensor]})[{position}]")
            place = list(self._program.dims).index(name)
            self._code.line(f"sizes[{place}] = {self._code.symbol(name)};")
        for c in size_conditions(step, self._program.dims):
            self._checked += 1
            test = f"{self._index.inner(c.left)} {c.comparison} {self._index.inner(c.right)}"
            self._code.line(f"if (!({test})) return {self._checked};")
        for name in step.symbols:
            self._code.scope.bounds[name] = self._program.dims[name]
        self._bind_tensors(self._program.steps)

    def _allocate(self, step: Allocate) -> None:
        if self._static:
            return
        which = self._program.allocated.index(step.name)
        spelled = self._tensors[step.name] = self._code.fresh(step.name)
        size = self._index.text(step.size)
        call = f"host->allocate(host->context, {which}, {size})"
        self._code.line(f"void *const {spelled} = {call};")
        self._code.line(f"if ({spelled} == NULL) return -1;")
        self._pending -= {step.name}
        self._bind_tensors(self._program.steps)

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
        late = frozenset(self._program.read_sizes)
        for position, (name, known) in enumerate(self._program.dims.items()):
            if name in late:
                continue
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
            waits = binding.segment in self._pending or name in self._pending
            if waits:
                continue
            if name not in self._tensors and visible.issuperset(symbols(binding.offset)):
                self._bind_tensor(binding)

    def _bind_tensor(self, binding: Binding) -> None:
        if binding.place == "arena":
            offset = "" if binding.offset == 0 else f" + {self._index.inner(binding.offset)}"
            start = self._tensors[binding.segment] if binding.segment else "arena"
            source = f"(uint8_t *){start}{offset}"
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
