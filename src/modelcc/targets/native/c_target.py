"""The target ``c``: this machine's processor through C and the system's compiler.

A cross-check of LLVM on the same loops, and C to read or to deliver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import MachineSpec
from modelcc.artifact.memory import Memory
from modelcc.ir.errors import ModelError
from modelcc.ir.library import Callee
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.naming import user_name
from modelcc.ir.program import Program, checks, index_bounds
from modelcc.passes.loop.expand_instructions import Available
from modelcc.runtime.pool import pool_c
from modelcc.targets.base import (
    POOL,
    SCHEDULE,
    BuildConfig,
    Module,
    TargetOptions,
    TensorPasses,
    joined,
)
from modelcc.targets.c.delivery.facts import CompilerTarget, DeliveryRequest, facts_of
from modelcc.targets.c.delivery.folder import File, folder_files
from modelcc.targets.c.dialect import C99, GNU, CDialect
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.program import emit_program_c, entry_name, program_head
from modelcc.targets.c.toolchain import CCompiler, ToolchainError, find_compiler
from modelcc.targets.cpu.algorithms import tensor_passes
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.isa.table import ENCODINGS, lanes_of
from modelcc.targets.native.closed import check_closed
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.targets.native.host import PORTABLE, processor_of, required_macros
from modelcc.targets.native.linux_machine import linux_machine
from modelcc.targets.native.shared_object import link_library, link_objects
from modelcc.targets.packaging import Label, check_text, package

FUNCTIONS_PER_MODULE = 4
"""Small enough that processes share the work evenly."""

_ANY = ("x86-64", "armv8-a")
"""The baseline of each architecture."""


@dataclass(frozen=True)
class CTarget(CpuTarget):
    """Code for one processor in C, which needs no LLVM.

    ``command`` starts the compiler (empty: the system's), which is searched for on demand.
    """

    arch: str = "native"
    command: str = ""
    dialect: CDialect = GNU

    @property
    def name(self) -> str:
        return self.dialect.name

    @property
    def pairs_shorts(self) -> bool:
        return self.dialect.vectors and super().pairs_shorts

    @property
    def multiplies_bytes(self) -> bool:
        return self.dialect.vectors and super().multiplies_bytes

    def tensor_passes(self) -> TensorPasses:
        """Channel-blocked layouts are for vectors."""
        options = self.options if self.dialect.vectors else replace(self.options, optimize=0)
        return tensor_passes(
            self.scheduled, self.pairs_shorts, options, self.wanted, self.multiplies_bytes
        )

    @property
    def key(self) -> str:
        return f"{self!r} {self.compiler()!r}"

    @property
    def forms(self) -> tuple[str, ...]:
        return (SCHEDULE, "c", "asm", "obj", "so")

    def emit(self, program: Program) -> tuple[Module, ...]:
        """The files of the steps, of the kernels, and the thread pool's if needed."""
        steps = Module("program", emit_program_c(program, EmitOptions(dialect=self.dialect)))
        pool = (Module(POOL, pool_c()),) if any(map(parallel_loop, program.functions)) else ()
        return (steps, *self.emit_functions(program.callees), *pool)

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """Files of a few functions each."""
        starts = range(0, len(functions), FUNCTIONS_PER_MODULE)
        parts = [functions[i : i + FUNCTIONS_PER_MODULE] for i in starts]
        options = EmitOptions(dialect=self.dialect)
        return tuple(Module(f"kernels{n}", emit_c(part, options)) for n, part in enumerate(parts))

    @cached_property
    def _available(self) -> Available:
        """Instructions that C has templates of: the compiler knows whether the processor has
        them."""
        return lanes_of(e for e in ENCODINGS if e.c and self.dialect.vectors)

    def complete(self, program: Program) -> str:
        """One C file with everything but the weights."""
        head = f"{program_head(program, self.dialect)}\nprocessor: {self.processor.name}"
        return emit_program_c(program, EmitOptions(True, head, self.dialect))

    def deliver(self, program: Program, request: DeliveryRequest) -> tuple[File, ...]:
        """A folder with everything that a C program needs to run it.

        :class:`ModelError` for what C cannot express, and in dialects other than GNU's.
        """
        if request.arduino:
            hint = "--target cortex-m4, or another microcontroller"
            raise ModelError(f"target {self.name} writes no Arduino library", (), hint)
        if self.dialect != GNU:
            hint = "leave --target out, or write one file: -o model.c"
            raise ModelError(f"target {self.name} writes no folder", (), hint)
        names = list(map(user_name, program.outputs))
        texts = [check_text(check) for check in checks(program)]
        texts += [bound.requirement() for bound in index_bounds(program)]
        level, threads = self.options.optimize, self.cpu.threads
        facts = facts_of(program, request, self.processor, names, texts, level, threads)
        return folder_files(facts)

    @property
    def processor(self) -> CompilerTarget:
        """The processor in the terms of C compilers."""
        words = self.machine.cpu or self.machine.architecture
        name = f"any {self.machine.architecture}" if self.arch in _ANY else words
        macros = required_macros(self.machine, self.cpu.instruction_set)
        return CompilerTarget(name, (f"-march={self.arch}",), macros)

    def build(self, modules: Sequence[Module], config: BuildConfig) -> tuple[bytes, ...]:
        """Object files; finished ones are kept in the build configuration's cache."""
        compiler = self.compiler()
        keys = [compiler.key(module.text) for module in modules]
        unique = {key: module.text for key, module in zip(keys, modules, strict=True)}
        cache = self.object_cache(config)
        found = {key: cache.get(key) for key in unique} if cache else {}
        objects = {key: contents for key, contents in found.items() if contents is not None}
        missing = {key: text for key, text in unique.items() if key not in objects}
        for key, contents in _compiled(compiler, missing, len(unique), config).items():
            objects[key] = contents
            if cache:
                cache.put(key, contents)
        return tuple(objects[key] for key in keys)

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """C text file by file, assembly text, one relocatable object or a shared library."""
        match form:
            case "c":
                named = (f"/* ---- file {m.name}.c */\n{m.text}" for m in modules)
                return (modules[0].text if len(modules) == 1 else "\n".join(named)).encode()
            case "asm":
                compiler = self.compiler()
                return joined(modules, [compiler.assembly(module.text) for module in modules])
            case "obj":
                return link_objects(self.build(modules, config))
            case "so":
                others = [module for module in modules if module.name != POOL]
                return link_library(self.build((*others, Module(POOL, pool_c())), config))
            case _:
                known = ", ".join(self.forms)
                raise ModelError(
                    f"target {self.name} cannot emit {form!r}", (), f"it knows {known}"
                )

    def package(
        self,
        program: Program,
        objects: Sequence[bytes],
        notes: Mapping[str, str],
        allocate: Callable[[int], Memory] = Memory,
    ) -> Artifact:
        """The finished artifact; ``notes`` are texts to include, by name."""
        called = self.called(program.callees)
        check_closed(objects, called)
        names = list(map(user_name, program.outputs))
        machine = MachineSpec(self.machine.triple, self.machine.cpu, self.machine.features)
        label = Label(versions={self.name: self.compiler().version}, sources=notes)
        entry = entry_name(program)
        return package(program, entry, objects, machine, names, label, allocate, called)

    def compiler(self) -> CCompiler:
        """The C compiler; :class:`ModelError` if there is none."""
        try:
            return find_compiler(self.command, self.arch, self.options.optimize, self.dialect)
        except ToolchainError as error:
            raise ModelError(str(error)) from error


def c99_target(options: TargetOptions) -> CTarget:
    """C99 for any compiler: scalar loops."""
    target = c_target(options)
    return replace(target, cpu=_plain(target.cpu), dialect=C99)


def c_target(options: TargetOptions) -> CTarget:
    """The target for ``options``; :class:`ModelError` if its processor is unknown."""
    machine, cpu = processor_of(options, linux_machine())
    arch = options.cpu or "native"
    if arch == PORTABLE or machine.tuning:  # a name that not every C compiler knows
        arch = machine.cpu if machine.architecture == "x86_64" else "armv8-a"
    cpu = replace(cpu, multiplies_tiles=False)  # whose routines have no C implementation
    return CTarget(machine, _plain(cpu) if options.optimize == 0 else cpu, options, arch)


def _plain(cpu: CpuModel) -> CpuModel:
    """A processor without vectors and with small tiles, for C to read or for any compiler."""
    few = {"vector_bits": 1, "vector_registers": 8, "widest_bits": 0, "most_registers": 0}
    return replace(cpu, **few, fused=False)


def _compiled(
    compiler: CCompiler, texts: Mapping[str, str], total: int, config: BuildConfig
) -> dict[str, bytes]:
    """Object files by key; the compiler runs in up to ``config.jobs`` processes."""
    done = total - len(texts)
    config.report("compiling kernels", done, total)
    with ThreadPoolExecutor(config.jobs) as threads:
        pending = {threads.submit(compiler.compile_object, t): key for key, t in texts.items()}
        try:
            for future in as_completed(pending):
                future.result()
                done += 1
                config.report("compiling kernels", done, total)
        except ToolchainError:
            threads.shutdown(cancel_futures=True)
            raise
    return {key: future.result() for future, key in pending.items()}
