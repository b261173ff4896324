"""The target ``c``: this machine's processor through C and the system's compiler.

A second opinion on what LLVM makes of the same loops, and C to read or to take elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import MachineSpec
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.op import ModelError
from modelcc.ir.program import Program
from modelcc.runtime.pool import pool_c
from modelcc.targets.base import Module, TargetOptions, Workplace
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.program import emit_program_c, entry_name, program_head
from modelcc.targets.c.toolchain import CCompiler, ToolchainError, find_compiler
from modelcc.targets.native.cache import ObjectCache
from modelcc.targets.native.shared_object import link_library, link_objects
from modelcc.targets.native.target import (
    POOL,
    NativeTarget,
    joined,
    native_target,
    user_output_name,
)
from modelcc.targets.packaging import Label, package

FUNCTIONS_PER_MODULE = 4
"""Few enough that processes share the work evenly."""


@dataclass(frozen=True)
class CTarget(NativeTarget):
    """The native target with C in place of LLVM.

    ``command`` starts the compiler (empty: the system's), which is looked for when it is needed.
    """

    arch: str = "native"
    command: str = ""

    @property
    def name(self) -> str:
        return "c"

    @property
    def key(self) -> str:
        return f"{self!r} {self.compiler()!r}"

    @property
    def forms(self) -> tuple[str, ...]:
        return ("c", "asm", "obj", "so")

    def emit(self, program: Program) -> tuple[Module, ...]:
        """The file that runs the steps, those of the kernels, and the thread pool's if needed."""
        steps = Module("program", emit_program_c(program))
        pool = (Module(POOL, pool_c()),) if any(map(parallel_loop, program.functions)) else ()
        return (steps, *self.emit_functions(program.functions), *pool)

    def emit_functions(self, functions: Sequence[Function]) -> tuple[Module, ...]:
        """Files of a few functions each."""
        starts = range(0, len(functions), FUNCTIONS_PER_MODULE)
        parts = [functions[i : i + FUNCTIONS_PER_MODULE] for i in starts]
        return tuple(Module(f"kernels{n}", emit_c(part)) for n, part in enumerate(parts))

    def complete(self, program: Program) -> str:
        """One C file with everything in it but the weights."""
        return emit_program_c(program, EmitOptions(static=True, head=program_head(program)))

    def build(self, modules: Sequence[Module], workplace: Workplace) -> tuple[bytes, ...]:
        """Object files; finished ones are kept in the workplace's cache."""
        compiler = self.compiler()
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
        """C text file by file, assembly text, one relocatable object or a shared library."""
        match form:
            case "c":
                named = (f"/* ---- file {m.name}.c */\n{m.text}" for m in modules)
                return (modules[0].text if len(modules) == 1 else "\n".join(named)).encode()
            case "asm":
                compiler = self.compiler()
                return joined(modules, [compiler.assembly(module.text) for module in modules])
            case "obj":
                return link_objects(self.build(modules, workplace))
            case "so":
                others = [module for module in modules if module.name != POOL]
                return link_library(self.build((*others, Module(POOL, pool_c())), workplace))
            case _:
                known = ", ".join(self.forms)
                raise ModelError(f"target c cannot emit {form!r}", (), f"it knows {known}")

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """The finished artifact; ``notes`` are texts to carry along, by name."""
        names = [user_output_name(program, name) for name in program.outputs]
        machine = MachineSpec(self.machine.triple, self.machine.cpu, self.machine.features)
        label = Label(versions={"c": self.compiler().version}, sources=notes)
        return package(program, entry_name(program), objects, machine, names, label)

    def compiler(self) -> CCompiler:
        """The C compiler; :class:`ModelError` if there is none."""
        try:
            return find_compiler(self.command, self.arch, self.codegen.optimize)
        except ToolchainError as error:
            raise ModelError(str(error)) from error


def c_target(options: TargetOptions) -> CTarget:
    """The target for ``options``; :class:`ModelError` if its processor is unknown."""
    native = native_target(options)
    return CTarget(native.machine, native.cpu, native.codegen, options.cpu or "native")


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
