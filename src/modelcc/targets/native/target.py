"""The target ``native``: this machine's processor, through LLVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, cast

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import MachineSpec
from modelcc.artifact.memory import Memory
from modelcc.ir.capacity import Capacity
from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.output_names import user_name
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.passes.loop.expand_instructions import Available, expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.passes.loop.group_checks import group_checks
from modelcc.runtime.machine import machine_identity
from modelcc.runtime.pool import ARCHITECTURES, pool_llvm
from modelcc.runtime.session import Session
from modelcc.runtime.values import session_of
from modelcc.schedule.listing import (
    Scheduled,
    check_choices,
    check_machine,
    parse_listing,
    print_listing,
)
from modelcc.schedule.wanted import Wanted
from modelcc.targets.base import (
    MODULE_LINE,
    SCHEDULE,
    GraphPasses,
    Module,
    OnFunction,
    TargetOptions,
    TensorPasses,
    Workplace,
)
from modelcc.targets.cpu.algorithms import (
    CHOICES,
    alternatives,
    capacity_of,
    graph_passes,
    tensor_passes,
)
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import schedule_program, scheduled_kernels
from modelcc.targets.isa.table import available, lanes_of, widest
from modelcc.targets.isa.templates import Encoding
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.llvm.program import emit_entry_points, entry_name
from modelcc.targets.native.cache import ObjectCache
from modelcc.targets.native.closed import check_closed
from modelcc.targets.native.emission import emission
from modelcc.targets.native.host import cpu_model, machine_of
from modelcc.targets.native.machine import Machine, host_machine
from modelcc.targets.native.parallel_build import Progress, build
from modelcc.targets.native.shared_object import link_library, link_objects
from modelcc.targets.native.toolchain import CodegenOptions, assembly, llvm_version
from modelcc.targets.packaging import Label, package

POOL = "pool"
"""The module of the thread pool."""


STEPS = ("program", "profile")
"""Modules that launch kernels one after the other."""

LONG_STEPS = 256 << 10
"""Characters (some thousand steps) above which such a module is not optimised: there is next to
nothing to gain in a row of calls, and LLVM takes time quadratic in its length."""


@dataclass(frozen=True)
class NativeTarget:
    """Code for one processor; ``cpu`` is what schedules know of it, ``options`` what was asked."""

    machine: Machine
    cpu: CpuModel
    codegen: CodegenOptions
    options: TargetOptions

    @property
    def name(self) -> str:
        return "native"

    @property
    def description(self) -> str:
        """Processor, vector width and caches, for ``modelcc targets``."""
        cpu = self.cpu
        caches = f"L1 {cpu.l1_bytes >> 10} KiB, L2 {cpu.l2_bytes >> 10} KiB"
        return f"{self.machine.cpu or 'generic'}, {cpu.vector_bits}-bit vectors, {caches}"

    @property
    def key(self) -> str:
        return f"{self!r} llvm {llvm_version()}"

    @property
    def pairs_shorts(self) -> bool:
        """Whether the processor has instructions for pairs of shorts, but none for bytes."""
        known = self.encodings
        return widest(known, "dot_halves") > 0 and widest(known, "dot_bytes") == 0

    @property
    def multiplies_bytes(self) -> bool:
        """Whether the processor has instructions for dot products of bytes."""
        return widest(self.encodings, "dot_bytes") > 0

    @cached_property
    def encodings(self) -> tuple[Encoding, ...]:
        """The processor's instructions that kernels may ask for."""
        return available(self.machine.architecture, self.machine.features)

    @property
    def forms(self) -> tuple[str, ...]:
        return (SCHEDULE, "llvm", "asm", "obj", "so")

    @property
    def capacity(self) -> Capacity:
        """Vectors, registers and threads for algorithms."""
        return capacity_of(self.cpu)

    def graph_passes(self) -> GraphPasses:
        """Groups of channels, and products of integers, as vectors want them."""
        return graph_passes(self.pairs_shorts, self.multiplies_bytes)

    def tensor_passes(self) -> TensorPasses:
        """Layouts, packed operands and algorithms of fewer multiplications."""
        bytes = self.multiplies_bytes
        return tensor_passes(self.cpu, self.pairs_shorts, self.options, self.wanted, bytes)

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Kernels become loop functions; constants are packed as these want them."""
        return schedule_program(program, self.cpu, on_function, self.wanted)

    @property
    def wanted(self) -> Wanted:
        """The schedules that were asked for; :class:`ModelError` if they are for another machine,
        or none at all."""
        listing = parse_listing(self.options.schedule)
        check_machine(listing, self.words)
        check_choices(listing, CHOICES)
        return Wanted(listing, dict(self.options.tuned), CHOICES)

    @property
    def words(self) -> str:
        """What schedules hang on of the machine."""
        cpu, several = self.cpu, "s" if self.cpu.threads > 1 else ""
        vectors = f"{cpu.vector_bits}-bit vectors, {cpu.vector_registers} registers"
        return f"{vectors}, {cpu.threads} thread{several}"

    @property
    def tuning_key(self) -> str:
        """What measured times hang on."""
        return f"{self.name}, {self.machine.cpu or self.machine.triple}: {self.words}"

    def kernels(self, program: TensorProgram) -> tuple[Scheduled, ...]:
        """The distinct kernels of a program, and how they run by default or as was asked for."""
        return scheduled_kernels(program, self.cpu, self.wanted)

    def alternatives(self, program: TensorProgram) -> Mapping[str, tuple[str, ...]]:
        """By algorithms, keys of contractions of a program that could be computed by them and are
        not."""
        return alternatives(program, self.cpu, self.options, self.wanted)

    def list_schedules(self, program: TensorProgram) -> str:
        """How each distinct kernel runs, in a text to edit."""
        return print_listing(self.words, self.kernels(program), self.wanted.given.above)

    def legalize(self, function: Function) -> Function:
        """Elementary functions (exp, tanh …), narrow elements and instructions that the processor
        lacks become arithmetic; checks of indices take one branch for several."""
        plain = expand_math(expand_narrow(group_checks(function)))
        return expand_instructions(plain, self._available)

    @cached_property
    def _available(self) -> Available:
        return lanes_of(e for e in self.encodings if e.llvm)

    def emit(self, program: Program) -> tuple[Module, ...]:
        """The modules that run the steps, then those of the kernels and the thread pool's."""
        return self.assembled(program, self.emit_functions(program.functions))

    def assembled(self, program: Program, kernels: Sequence[Module]) -> tuple[Module, ...]:
        """All modules of a program, given those of its kernels."""
        texts = emit_entry_points(program, emission(self.machine))
        return (*map(Module, STEPS, texts), *kernels, *self._pool(program.functions))

    def _pool(self, functions: Sequence[Function]) -> tuple[Module, ...]:
        """The thread pool, for programs that use it, so that loading them needs no LLVM."""
        architecture = self.machine.architecture
        if architecture not in ARCHITECTURES or not any(map(parallel_loop, functions)):
            return ()
        return (Module(POOL, pool_llvm(architecture)),)

    def emit_functions(self, functions: Sequence[Function]) -> tuple[Module, ...]:
        """A module for each function: equal ones of other models are found in the cache."""
        return tuple(
            Module(f"kernels{n}", emit_llvm([function], emission(self.machine)))
            for n, function in enumerate(functions)
        )

    def complete(self, program: Program) -> str:
        """All modules as one text."""
        modules = self.emit(program)
        return joined(modules, [module.text for module in modules]).decode()

    def build(self, modules: Sequence[Module], workplace: Workplace) -> tuple[bytes, ...]:
        """ELF object files; finished ones are kept in the workplace's cache."""
        return self.built(modules, workplace, partial(self._optimised, workplace))

    def built(
        self,
        modules: Sequence[Module],
        workplace: Workplace,
        optimised: Callable[[Sequence[str]], Sequence[bytes]],
    ) -> tuple[bytes, ...]:
        """Object files, of most modules those that ``optimised`` makes of their texts."""
        cache = self.object_cache(workplace)
        long = [m.text for m in modules if m.name in STEPS and len(m.text) > LONG_STEPS]
        plain = replace(self.codegen, optimize=0)
        objects = dict(
            zip(long, build(long, self.machine, plain, jobs=1, cache=cache), strict=True)
        )
        others = [module.text for module in modules if module.text not in objects]
        objects |= zip(others, optimised(others), strict=True)
        return tuple(objects[module.text] for module in modules)

    def _optimised(self, workplace: Workplace, texts: Sequence[str]) -> list[bytes]:
        return build(
            texts,
            self.machine,
            self.codegen,
            jobs=workplace.jobs,
            cache=self.object_cache(workplace),
            progress=progress_of(workplace),
        )

    def object_cache(self, workplace: Workplace) -> ObjectCache | None:
        """Where object files are kept."""
        return None if workplace.cache is None else ObjectCache(workplace.cache / "objects")

    def render(self, modules: Sequence[Module], form: str, workplace: Workplace) -> bytes:
        """LLVM text, assembly text, one relocatable object or a shared library."""
        match form:
            case "llvm":
                return joined(modules, [module.text for module in modules])
            case "asm":
                texts = [assembly(m.text, self.machine, self.codegen) for m in modules]
                return joined(modules, texts)
            case "obj":
                return link_objects(self.build(modules, workplace))
            case "so":
                pool = Module(POOL, pool_llvm(self.machine.architecture))
                others = [module for module in modules if module.name != POOL]
                return link_library(self.build((*others, pool), workplace))
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
        """The finished artifact; ``notes`` are texts to carry along, by name, and ``allocate``
        gives memory for at least so many bytes of constants."""
        check_closed(objects)
        names = list(map(user_name, program.outputs))
        origin = machine_identity() if self.machine == host_machine() else ""
        target = self.machine
        machine = MachineSpec(target.triple, target.cpu, target.features, origin)
        label = Label(versions={"llvm": llvm_version()}, sources=notes)
        entry = entry_name(program)
        return package(program, entry, objects, machine, names, label, allocate)

    def load(self, artifact: Artifact, threads: int) -> Session:
        """The artifact, linked into this process."""
        return session_of(artifact, threads)


def native_target(options: TargetOptions) -> NativeTarget:
    """The target for ``options``; :class:`ModelError` if its processor is unknown."""
    machine = machine_of(options.cpu)
    level = cast("Literal[0, 1, 2, 3]", options.optimize)
    cpu = cpu_model(machine, options.threads, options.machine)
    return NativeTarget(machine, cpu, CodegenOptions(optimize=level), options)


def progress_of(workplace: Workplace) -> Progress:
    """Tells ``workplace`` how many kernels are compiled."""
    return lambda done, total: workplace.report("compiling kernels", done, total)


def joined(modules: Sequence[Module], texts: Sequence[str]) -> bytes:
    """Texts made of ``modules`` as one, with a line before each that names its module."""
    if len(texts) == 1:
        return texts[0].encode()
    named = zip(modules, texts, strict=True)
    return "\n".join(f"{MODULE_LINE}{m.name}\n{text}" for m, text in named).encode()
