"""LLVM module text of a host program: one function that runs all steps.

::

    define i32 @<name>_run(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena, ptr %sizes,
                           ptr %pool)

``inputs`` and ``outputs`` point to arrays of buffer addresses in the program's order,
``constants`` likewise in the order of ``program.constants``; ``sizes`` to the i64 values of
``program.dims``, in order.  ``arena`` is aligned to 64 bytes; ``pool`` is null or a thread pool.
The result is 0.  Kernels are declared, not defined: they may come from other modules.

``@<name>_run.profile`` does the same and notes the time before each step and after the last in
``@<name>_run.times``, an array of ``struct timespec`` (CLOCK_MONOTONIC); one call at a time.
"""

from __future__ import annotations

from modelcc.ir.index import Index
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.program import Binding, CopyTensor, Launch, Place, Program
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.emitter import PLAIN, EmitOptions, module_text, signature
from modelcc.targets.llvm.indices import IndexCode
from modelcc.targets.llvm.values import quoted

PROFILE, TIMES = ".profile", ".times"
"""What is appended to the entry point's name for its profiled twin, and for the times."""

_CLOCK_MONOTONIC = 1  # Linux
_PARAMETERS = ("inputs", "outputs", "constants", "arena", "sizes", "pool")


def entry_name(program: Program) -> str:
    """Symbol of the function that runs the program."""
    return f"{program.name}_run"


def emit_program(program: Program, options: EmitOptions = PLAIN) -> str:
    """LLVM IR text of the module that defines :func:`entry_name`."""
    declarations: dict[str, None] = {}
    writer = _ProgramCode(program, declarations)
    for step in program.steps:
        writer.step(step)
    entry = entry_name(program)
    profiled = _profiled(program, declarations)
    return module_text([times_text(program), writer.text(entry), profiled], declarations, options)


def times_text(program: Program) -> str:
    """The array that the profiled entry point writes."""
    count = 2 * (len(program.steps) + 1)
    return f"@{quoted(entry_name(program) + TIMES)} = global [{count} x i64] zeroinitializer"


def _profiled(program: Program, declarations: dict[str, None]) -> str:
    writer = _ProgramCode(program, declarations)
    for position, step in enumerate(program.steps):
        writer.clock(position)
        writer.step(step)
    writer.clock(len(program.steps))
    return writer.text(entry_name(program) + PROFILE)


class _ProgramCode:
    def __init__(self, program: Program, declarations: dict[str, None]) -> None:
        self._program = program
        self._functions = {f.name: f for f in program.functions}
        self.declarations = declarations
        self._code = Code(self.declarations)
        for name in _PARAMETERS:
            self._code.fresh(name)
        self._index = IndexCode(self._code)
        self._bind_sizes()

    def text(self, name: str) -> str:
        """The function's definition."""
        self._code.scope.block.terminator = "ret i32 0"
        parameters = ", ".join(f"ptr %{name}" for name in _PARAMETERS)
        head = f"define i32 @{quoted(name)}({parameters}) #0"
        return f"{head} {{\n{self._code.text()}\n}}"

    def clock(self, position: int) -> None:
        """Note the time."""
        self.declarations["declare i32 @clock_gettime(i32, ptr)"] = None
        times = f"@{quoted(entry_name(self._program) + TIMES)}"
        slot = self._code.emit(f"getelementptr i64, ptr {times}, i64 {2 * position}", "time")
        self._code.effect(f"call i32 @clock_gettime(i32 {_CLOCK_MONOTONIC}, ptr {slot})")

    def step(self, step: Launch | CopyTensor) -> None:
        """Emit one step."""
        if step.source:
            self._code.effect(f"; {', '.join(step.source)}")
        match step:
            case Launch():
                self._launch(step, self._functions[step.function])
            case CopyTensor():
                self._copy(step)

    def _bind_sizes(self) -> None:
        scope = self._code.scope
        for position, (name, known) in enumerate(self._program.dims.items()):
            slot = self._code.emit(f"getelementptr i64, ptr %sizes, i64 {position}", "size")
            self._index.bind(name, self._code.emit(f"load i64, ptr {slot}", name))
            scope.bounds[name] = known
        for definition in self._program.definitions:
            self._index.bind(definition.symbol, self._index.operand(definition.value))

    def _launch(self, step: Launch, function: Function) -> None:
        types = ", ".join(signature(function))
        self.declarations[f"declare void @{quoted(function.name)}({types})"] = None
        arguments = [f"ptr {self._address(name)}" for name in step.arguments]
        arguments += [f"i64 {self._index.operand(size)}" for size in step.sizes]
        if parallel_loop(function):
            arguments.append("ptr %pool")
        self._code.effect(f"call void @{quoted(function.name)}({', '.join(arguments)})")

    def _copy(self, step: CopyTensor) -> None:
        callee = self._code.intrinsic("void", "llvm.memmove.p0.p0.i64", "ptr, ptr, i64, i1")
        target, source = self._address(step.target), self._address(step.source_tensor)
        size = self._index.operand(self._program.bindings[step.target].type.bytes)
        self._code.effect(f"call {callee}(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def _address(self, name: str) -> str:
        binding = self._program.bindings[name]
        if binding.place == "arena":
            return self._moved("%arena", "i8", binding.offset)
        return self._argument(binding)

    def _argument(self, binding: Binding) -> str:
        key = f"argument {binding.place} {binding.name}"
        found = self._code.cached(key)
        if found is None:
            names = self._names(binding.place)
            position = names.index(binding.name)
            slot = self._moved(f"%{binding.place}s", "ptr", position)
            found = self._code.emit(f"load ptr, ptr {slot}", binding.name)
            self._code.scope.cache[key] = found
        return found

    def _names(self, place: Place) -> tuple[str, ...]:
        match place:
            case "input":
                return self._program.inputs
            case "output":
                return self._program.outputs
            case _:
                return tuple(self._program.constants)

    def _moved(self, pointer: str, element: str, by: Index) -> str:
        if by == 0:
            return pointer
        key = f"address {pointer} {element} {by}"
        found = self._code.cached(key)
        if found is None:
            operand = self._index.operand(by)
            found = self._code.emit(f"getelementptr {element}, ptr {pointer}, i64 {operand}", "p")
            self._code.scope.cache[key] = found
        return found
