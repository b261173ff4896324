"""The target ``native``: this machine's processor, through LLVM."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, cast

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import MachineSpec
from modelcc.artifact.memory import Memory
from modelcc.ir.errors import ModelError
from modelcc.ir.library import Callee
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.naming import user_name
from modelcc.ir.program import Program
from modelcc.passes.loop.expand_instructions import Available
from modelcc.runtime.machine import machine_identity
from modelcc.runtime.pool import ARCHITECTURES, pool_llvm
from modelcc.targets.base import (
    POOL,
    SCHEDULE,
    BuildConfig,
    BuildContext,
    Module,
    TargetOptions,
    joined,
)
from modelcc.targets.isa.table import lanes_of
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.llvm.program import emit_entry_points, entry_name
from modelcc.targets.native.background import in_background
from modelcc.targets.native.closed import check_closed
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.targets.native.emission import emission
from modelcc.targets.native.host import processor_of
from modelcc.targets.native.libraries import check_libraries
from modelcc.targets.native.parallel_build import ParallelBuilder, build, progress_of
from modelcc.targets.native.shared_object import link_library, link_objects
from modelcc.targets.native.toolchain import (
    CodegenOptions,
    assembly,
    host_machine,
    llvm_folder,
    llvm_version,
)
from modelcc.targets.packaging import Label, package

STEPS = ("program", "profile")
"""Modules that launch kernels in sequence."""

LONG_STEPS = 256 << 10
"""Characters (some thousand steps) above which such a module is not optimised: a sequence of calls
has almost nothing to gain, and LLVM takes time quadratic in its length."""


_MAPS = Path("/proc/self/maps")
_CODE = "r-xp"


@dataclass(frozen=True)
class NativeTarget(CpuTarget):
    """Code for one processor, compiled by LLVM with the options ``codegen``."""

    codegen: CodegenOptions

    @property
    def name(self) -> str:
        return "native"

    @property
    def key(self) -> str:
        return f"{self!r} llvm {llvm_version()}"

    @cached_property
    def _available(self) -> Available:
        return lanes_of(e for e in self.encodings if e.llvm)

    @property
    def forms(self) -> tuple[str, ...]:
        return (SCHEDULE, "llvm", "asm", "obj", "so")

    def for_linking(self) -> NativeTarget:
        """The target without the tiles of AMX, for which a process must request permission from
        Linux."""
        return replace(self, cpu=replace(self.cpu, multiplies_tiles=False))

    def emit(self, program: Program) -> tuple[Module, ...]:
        """The modules that run the steps, then those of the kernels and the thread pool's."""
        return self.assembled(program, self.emit_functions(program.callees))

    def assembled(self, program: Program, kernels: Sequence[Module]) -> tuple[Module, ...]:
        """All modules of a program, given those of its kernels."""
        texts = emit_entry_points(program, emission(self.machine))
        return (*map(Module, STEPS, texts), *kernels, *self._pool(program.functions))

    def _pool(self, functions: Sequence[Function]) -> tuple[Module, ...]:
        """The thread pool, for programs that use it, so that loading needs no LLVM."""
        architecture = self.machine.architecture
        if architecture not in ARCHITECTURES or not any(map(parallel_loop, functions)):
            return ()
        return (Module(POOL, pool_llvm(architecture)),)

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """A module for each function: equal ones of other models are shared by the cache."""
        return tuple(
            Module(f"kernels{n}", emit_llvm([function], emission(self.machine)))
            for n, function in enumerate(functions)
        )

    def complete(self, program: Program) -> str:
        """All modules as one text."""
        modules = self.emit(program)
        return joined(modules, [module.text for module in modules]).decode()

    def build(self, modules: Sequence[Module], config: BuildConfig) -> tuple[bytes, ...]:
        """ELF object files; finished ones are kept in the build configuration's cache."""
        return self.built(modules, config, partial(self._optimised, config))

    def built(
        self,
        modules: Sequence[Module],
        config: BuildConfig,
        optimised: Callable[[Sequence[str]], Sequence[bytes]],
    ) -> tuple[bytes, ...]:
        """Object files, ``optimised`` compiles those of most modules."""
        cache = self.object_cache(config)
        long = [m.text for m in modules if m.name in STEPS and len(m.text) > LONG_STEPS]
        plain = replace(self.codegen, optimize=0)
        objects = dict(
            zip(long, build(long, self.machine, plain, jobs=1, cache=cache), strict=True)
        )
        others = [module.text for module in modules if module.text not in objects]
        objects |= zip(others, optimised(others), strict=True)
        return tuple(objects[module.text] for module in modules)

    def _optimised(self, config: BuildConfig, texts: Sequence[str]) -> list[bytes]:
        return build(
            texts,
            self.machine,
            self.codegen,
            jobs=config.jobs,
            cache=self.object_cache(config),
            progress=progress_of(config),
        )

    @contextmanager
    def build_context(self, config: BuildConfig, early: bool = True) -> Generator[BuildContext]:
        """In the background if ``early`` and several processes are allowed, which end with it.

        Memory of LLVM's code is released then.  Kernels are made by :meth:`legalize` and
        :meth:`emit_functions`; a target that overrides :meth:`emit` or :meth:`build` must override
        this, too.
        """
        with self._context(config, early) as context:
            yield context
        release_code(llvm_folder())

    def _context(self, config: BuildConfig, early: bool) -> AbstractContextManager[BuildContext]:
        if not early or config.jobs < 2:
            return super().build_context(config, early)
        cache = self.object_cache(config)
        builder = ParallelBuilder(self.machine, self.codegen, config.jobs, cache)
        return in_background(self, builder, config)

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """LLVM text, assembly text, one relocatable object or a shared library."""
        match form:
            case "llvm":
                return joined(modules, [module.text for module in modules])
            case "asm":
                texts = [assembly(m.text, self.machine, self.codegen) for m in modules]
                return joined(modules, texts)
            case "obj":
                return link_objects(self.build(modules, config))
            case "so":
                pool = Module(POOL, pool_llvm(self.machine.architecture))
                others = [module for module in modules if module.name != POOL]
                return link_library(self.build((*others, pool), config))
            case _:
                known = ", ".join(self.forms)
                raise ModelError(f"target native cannot emit {form!r}", (), f"it knows {known}")

    def package(
        self,
        program: Program,
        objects: Sequence[bytes],
        notes: Mapping[str, str],
        allocate: Callable[[int], Memory] = Memory,
    ) -> Artifact:
        """The finished artifact; ``notes`` are texts to include, by name, and ``allocate`` returns
        memory of at least that many bytes for constants."""
        called = self.called(program.callees)
        check_closed(objects, called)
        names = list(map(user_name, program.outputs))
        origin = machine_identity() if self.machine == host_machine() else ""
        target = self.machine
        machine = MachineSpec(target.triple, target.cpu, target.features, origin)
        label = Label(versions={"llvm": llvm_version()}, sources=notes)
        entry = entry_name(program)
        return package(program, entry, objects, machine, names, label, allocate, called)


def native_target(options: TargetOptions) -> NativeTarget:
    """The target for ``options``; :class:`ModelError` if its processor is unknown."""
    machine, cpu = processor_of(options, host_machine())
    check_libraries(options.libraries)
    level = cast("Literal[0, 1, 2, 3]", options.optimize)
    return NativeTarget(machine, cpu, options, CodegenOptions(optimize=level))


def release_code(folder: Path) -> None:
    """Lets the system reclaim pages of code of the loaded libraries in ``folder``.

    Code pages are clean: the system reads them again from their file on execution.  No effect on
    systems other than Linux.
    """
    if not _MAPS.is_file():
        return
    advise = ctypes.CDLL(None).madvise
    for start, end in _code(folder):
        advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _code(folder: Path) -> Iterator[tuple[int, int]]:
    """Address ranges of the code of all libraries in ``folder``."""
    for line in _MAPS.read_text().splitlines():
        addresses, rights, *rest = line.split(maxsplit=5)
        if rights == _CODE and rest[-1].startswith(f"{folder}/"):
            start, end = addresses.split("-")
            yield int(start, 16), int(end, 16)
