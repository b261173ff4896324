"""CPU targets: what they share, whatever compiler they use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.capacity import Capacity
from modelcc.ir.library import Callee
from modelcc.ir.loop import Function
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.passes.loop.expand_instructions import Available, expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.passes.loop.expect_numbers import expect_numbers
from modelcc.passes.loop.group_checks import group_checks
from modelcc.runtime.opening import session_of
from modelcc.runtime.session import Session
from modelcc.schedule.listing import (
    Scheduled,
    check_choices,
    check_machine,
    parse_listing,
    print_listing,
)
from modelcc.schedule.wanted import Wanted
from modelcc.targets.base import (
    BuildConfig,
    GraphPasses,
    OnFunction,
    Target,
    TargetOptions,
    TensorPasses,
)
from modelcc.targets.cpu.algorithms import (
    CHOICES,
    alternatives,
    capacity_of,
    graph_passes,
    scheduled_for,
    tensor_passes,
)
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import schedule_program, scheduled_kernels
from modelcc.targets.isa.table import available, widest
from modelcc.targets.isa.templates import Encoding
from modelcc.targets.native.cache import ObjectCache
from modelcc.targets.native.libraries import called_libraries
from modelcc.targets.native.machine import Machine


@dataclass(frozen=True)
class CpuTarget(Target):
    """A processor; ``cpu`` is its model for schedules, ``options`` the user's options."""

    machine: Machine
    cpu: CpuModel
    options: TargetOptions

    @property
    def description(self) -> str:
        """Processor, vector width and caches, for ``modelcc targets``."""
        cpu = self.cpu
        caches = f"L1 {cpu.l1_bytes >> 10} KiB, L2 {cpu.l2_bytes >> 10} KiB"
        return f"{self.machine.cpu or 'generic'}, {cpu.vector_bits}-bit vectors, {caches}"

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
        """The processor's instructions that kernels may use."""
        return available(self.machine.architecture, self.machine.features)

    @property
    def capacity(self) -> Capacity:
        """Vectors, registers and threads for algorithms."""
        return capacity_of(self.cpu)

    def graph_passes(self) -> GraphPasses:
        """Channel groups, and products of integers, for vectors."""
        return graph_passes(self.pairs_shorts, self.multiplies_bytes)

    def tensor_passes(self) -> TensorPasses:
        """Layouts, packed operands and algorithms of fewer multiplications."""
        bytes = self.multiplies_bytes
        return tensor_passes(self.scheduled, self.pairs_shorts, self.options, self.wanted, bytes)

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Lowers kernels to loop functions; constants are packed for them."""
        return schedule_program(program, self.scheduled, on_function, self.wanted)

    @property
    def wanted(self) -> Wanted:
        """The requested schedules; :class:`ModelError` if they are for another machine, or
        invalid."""
        listing = parse_listing(self.options.schedule)
        check_machine(listing, self.words)
        check_choices(listing, CHOICES)
        return Wanted(listing, dict(self.options.tuned), CHOICES)

    @property
    def scheduled(self) -> CpuModel:
        """The model that kernels are scheduled for: ``cpu``, unless all its vectors were
        requested."""
        return scheduled_for(self.cpu, self.wanted)

    @property
    def words(self) -> str:
        """The properties of the machine that schedules depend on."""
        cpu, several = self.cpu, "s" if self.cpu.threads > 1 else ""
        vectors = f"{cpu.vector_bits}-bit vectors, {cpu.vector_registers} registers"
        return f"{vectors}, {cpu.threads} thread{several}"

    @property
    def tuning_key(self) -> str:
        """The properties that measured times depend on."""
        return f"{self.name}, {self.machine.cpu or self.machine.triple}: {self.words}"

    def kernels(self, program: TensorProgram) -> tuple[Scheduled, ...]:
        """The distinct kernels of a program, with their default or requested schedules."""
        return scheduled_kernels(program, self.scheduled, self.wanted)

    def alternatives(self, program: TensorProgram) -> Mapping[str, tuple[str, ...]]:
        """Keys of contractions of a program by the algorithms that could compute them and do
        not."""
        return alternatives(program, self.scheduled, self.options, self.wanted)

    def list_schedules(self, program: TensorProgram) -> str:
        """The schedule of each distinct kernel, as an editable text."""
        return print_listing(self.words, self.kernels(program), self.wanted.given.above)

    def legalize(self, function: Function) -> Function:
        """Expands elementary functions (exp, tanh …), narrow elements and missing instructions to
        arithmetic; groups index checks into one branch."""
        plain = expand_math(expand_narrow(expect_numbers(group_checks(function))))
        return expand_instructions(plain, self._available)

    @cached_property
    @abstractmethod
    def _available(self) -> Available:
        """Instructions for which the printer has templates."""

    def called(self, callees: Sequence[Callee]) -> tuple[LibrarySpec, ...]:
        """The libraries of ``callees``; :class:`ModelError` if one is missing."""
        return called_libraries(callees, self.options.libraries)

    def object_cache(self, config: BuildConfig) -> ObjectCache | None:
        """The cache of object files."""
        return None if config.cache is None else ObjectCache(config.cache / "objects")

    def load(self, artifact: Artifact, threads: int) -> Session:
        """The artifact, loaded into this process."""
        return session_of(artifact, threads)
