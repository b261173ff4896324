"""The target ``c``: this machine's processor through C and the system's compiler.

A second opinion on what LLVM makes of the same loops, and C to read or to take elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from modelcc.ir.loop import Function
from modelcc.ir.op import ModelError
from modelcc.ir.program import Program
from modelcc.targets.base import Module, TargetOptions, Workplace
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.program import emit_program_c
from modelcc.targets.c.toolchain import CCompiler, ToolchainError, find_compiler
from modelcc.targets.native.cache import ObjectCache
from modelcc.targets.native.shared_object import link_shared
from modelcc.targets.native.target import FUNCTIONS_PER_MODULE, NativeTarget, joined, native_target


@dataclass(frozen=True)
class CTarget(NativeTarget):
    """The native target with C in place of LLVM; ``compiler`` is looked for when it is needed."""

    arch: str = "native"

    @property
    def name(self) -> str:
        return "c"

    @property
    def key(self) -> str:
        return f"{self!r} {self._compiler()!r}"

    @property
    def forms(self) -> tuple[str, ...]:
        return ("c", "asm", "obj", "so")

    def emit(self, program: Program) -> tuple[Module, ...]:
        """The file that runs the steps, then those of the kernels."""
        return (Module("program", emit_program_c(program)), *self.emit_functions(program.functions))

    def emit_functions(self, functions: Sequence[Function]) -> tuple[Module, ...]:
        """Files of a few functions each."""
        starts = range(0, len(functions), FUNCTIONS_PER_MODULE)
        parts = [functions[i : i + FUNCTIONS_PER_MODULE] for i in starts]
        return tuple(Module(f"kernels{n}", emit_c(part)) for n, part in enumerate(parts))

    def complete(self, program: Program) -> str:
        """One C file with everything in it but the weights."""
        return emit_program_c(program, EmitOptions(static=True, head=program.name))

    def build(self, modules: Sequence[Module], workplace: Workplace) -> tuple[bytes, ...]:
        """Object files; finished ones are kept in the workplace's cache."""
        cache = None if workplace.cache is None else ObjectCache(workplace.cache / "objects")
        one = partial(_compiled, self._compiler(), cache)
        objects: list[bytes] = []
        with ThreadPoolExecutor(workplace.jobs) as pool:
            for contents in pool.map(one, [module.text for module in modules]):
                objects.append(contents)
                workplace.report("compiling kernels", len(objects), len(modules))
        return tuple(objects)

    def render(self, modules: Sequence[Module], form: str, workplace: Workplace) -> bytes:
        """C text, assembly text, one relocatable object or a shared library."""
        match form:
            case "c":
                return joined(modules, [module.text for module in modules])
            case "asm":
                compiler = self._compiler()
                return joined(modules, [compiler.assembly(module.text) for module in modules])
            case "obj" | "so":
                return link_shared(self.build(modules, workplace), shared=form == "so")
            case _:
                known = ", ".join(self.forms)
                raise ModelError(f"target c cannot emit {form!r}", (), f"it knows {known}")

    def _compiler(self) -> CCompiler:
        try:
            return find_compiler(arch=self.arch, optimize=self.codegen.optimize)
        except ToolchainError as error:
            raise ModelError(str(error)) from error


def c_target(options: TargetOptions) -> CTarget:
    """The target for ``options``; :class:`ModelError` if its processor is unknown."""
    native = native_target(options)
    arch = options.cpu or "native"
    return CTarget(native.machine, native.cpu, native.codegen, arch)


def _compiled(compiler: CCompiler, cache: ObjectCache | None, text: str) -> bytes:
    key = compiler.key(text)
    found = cache.get(key) if cache else None
    if found is not None:
        return found
    contents = compiler.compile_object(text)
    if cache:
        cache.put(key, contents)
    return contents
