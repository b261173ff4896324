"""The target ``c``: this machine's processor through the C compiler of the system.

Schedules are those of the target ``native``; only the way from loops to machine code differs, so
the two check each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.resources import files

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import MachineSpec
from modelcc.ir.loop import Function
from modelcc.ir.op import ModelError
from modelcc.ir.program import Program
from modelcc.ir.scheduled import ScheduledProgram
from modelcc.ir.tensor import TensorProgram
from modelcc.runtime.session import Session
from modelcc.targets.base import Module, TargetOptions, Workplace
from modelcc.targets.c.emitter import emit_c
from modelcc.targets.c.program import emit_program_c, entry_name
from modelcc.targets.c.toolchain import CCompiler, ToolchainError, find_compiler
from modelcc.targets.native.cache import ObjectCache
from modelcc.targets.native.shared_object import link_library, link_objects
from modelcc.targets.native.target import NativeTarget, native_target, user_output_name
from modelcc.targets.packaging import Label, package

FUNCTIONS_PER_MODULE = 4
"""As many as the target ``native`` has, for the same reasons."""


@dataclass(frozen=True)
class CTarget:
    """``native`` schedules and loads; ``compiler`` makes object files of C text.

    Without a compiler (None) there is still the text.
    """

    native: NativeTarget
    compiler: CCompiler | None

    @property
    def name(self) -> str:
        return "c"

    @property
    def description(self) -> str:
        """Processor and compiler, for ``modelcc targets``."""
        version = self.compiler.version if self.compiler else "no C compiler found"
        return f"{self.native.description}; {version}"

    @property
    def key(self) -> str:
        return f"{self.compiler!r} for {self.native.key}"

    @property
    def forms(self) -> tuple[str, ...]:
        return ("c", "asm", "obj", "so")

    def schedule(self, program: TensorProgram) -> ScheduledProgram:
        """Kernels become loop functions, as for the target ``native``."""
        return self.native.schedule(program)

    def legalize(self, function: Function) -> Function:
        """Elementary functions (exp, tanh …) become arithmetic."""
        return self.native.legalize(function)

    def emit(self, program: Program) -> tuple[Module, ...]:
        """The file that runs the steps, then those of the kernels."""
        return (
            Module("program", emit_program_c(program)),
            *self.emit_functions(program.functions),
        )

    def emit_functions(self, functions: Sequence[Function]) -> tuple[Module, ...]:
        """Files of a few functions each."""
        starts = range(0, len(functions), FUNCTIONS_PER_MODULE)
        parts = [functions[i : i + FUNCTIONS_PER_MODULE] for i in starts]
        return tuple(Module(f"kernels{n}", emit_c(part)) for n, part in enumerate(parts))

    def build(self, modules: Sequence[Module], workplace: Workplace) -> tuple[bytes, ...]:
        """ELF object files; finished ones are kept in the workplace's cache."""
        compiler = self._present()
        keys = [compiler.key(module.text) for module in modules]
        unique = {key: module.text for key, module in zip(keys, modules, strict=True)}
        cache = None if workplace.cache is None else ObjectCache(workplace.cache / "objects")
        found = {key: cache.get(key) for key in unique} if cache else {}
        objects = {key: contents for key, contents in found.items() if contents is not None}
        missing = {key: text for key, text in unique.items() if key not in objects}
        for key, contents in _compiled(compiler, missing, len(unique), workplace).items():
            objects[key] = contents
            if cache:
                cache.put(key, contents)
        if cache and missing:
            cache.trim()
        return tuple(objects[key] for key in keys)

    def render(self, modules: Sequence[Module], form: str, workplace: Workplace) -> bytes:
        """C text or assembly text file by file, one relocatable object or a shared library."""
        match form:
            case "c":
                return _joined(modules, [module.text for module in modules], "/*", " */")
            case "asm":
                texts = [self._present().assembly(module.text) for module in modules]
                return _joined(modules, texts, "#", "")
            case "obj":
                return link_objects(self.build(modules, workplace))
            case "so":
                return link_library(self.build((*modules, Module("pool", pool_c())), workplace))
            case _:
                known = ", ".join(self.forms)
                raise ModelError(f"target c cannot emit {form!r}", (), f"it knows {known}")

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """The finished artifact; ``notes`` are texts to carry along, by name."""
        names = [user_output_name(program, name) for name in program.outputs]
        machine = self.native.machine
        spec = MachineSpec(machine.triple, machine.cpu, machine.features)
        label = Label(versions={"c": self._present().version}, sources=notes)
        return package(program, entry_name(program), objects, spec, names, label)

    def load(self, artifact: Artifact, threads: int) -> Session:
        """The artifact, linked into this process."""
        return self.native.load(artifact, threads)

    def _present(self) -> CCompiler:
        if self.compiler is not None:
            return self.compiler
        try:
            return find_compiler()
        except ToolchainError as error:
            raise ModelError(str(error)) from error


def pool_c() -> str:
    """The thread pool as one C file."""
    folder = files("modelcc.runtime")
    header = folder.joinpath("pool.h").read_text("utf-8")
    return folder.joinpath("pool.c").read_text("utf-8").replace('#include "pool.h"', header)


def c_target(options: TargetOptions) -> CTarget:
    """The target for ``options``; :class:`ModelError` if its processor is unknown."""
    native = native_target(options)
    try:
        compiler = find_compiler(arch=options.cpu or "native", optimize=options.optimize)
    except ToolchainError:
        compiler = None
    return CTarget(native, compiler)


def _compiled(
    compiler: CCompiler, texts: Mapping[str, str], total: int, workplace: Workplace
) -> dict[str, bytes]:
    """Object files by key; the compiler runs in up to ``workplace.jobs`` processes."""
    done = total - len(texts)
    workplace.report("compiling kernels", done, total)
    with ThreadPoolExecutor(workplace.jobs) as threads:
        pending = {threads.submit(compiler.compile_object, t): key for key, t in texts.items()}
        try:
            for future in as_completed(pending):
                future.result()
                done += 1
                workplace.report("compiling kernels", done, total)
        except ToolchainError:
            threads.shutdown(cancel_futures=True)
            raise
    return {key: future.result() for future, key in pending.items()}


def _joined(modules: Sequence[Module], texts: Sequence[str], begin: str, end: str) -> bytes:
    if len(texts) == 1:
        return texts[0].encode()
    named = zip(modules, texts, strict=True)
    return "\n".join(f"{begin} ---- module {m.name}{end}\n{text}" for m, text in named).encode()
