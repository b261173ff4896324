"""Kernels for pages in browsers: groups of threads where WGSL can say them, else WebAssembly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

from modelcc.artifact.file import Artifact
from modelcc.ir.errors import ModelError
from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import grid_loop
from modelcc.ir.memory_rules import MemoryRules
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.passes.loop.expand_instructions import Available
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import NoScheduleError, Schedule
from modelcc.targets.base import (
    BuildConfig,
    GraphPasses,
    Module,
    OnFunction,
    TargetOptions,
    TensorPasses,
)
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel
from modelcc.targets.gpu.lower import schedule_groups_kernel
from modelcc.targets.gpu.machine import GPUS, INTEGRATED, GpuModel
from modelcc.targets.isa.table import lanes_of
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.targets.native.host import cpu_model
from modelcc.targets.webgpu.emitter import (
    LIMITS,
    TooManyBuffersError,
    plain_function,
    shader_of,
)
from modelcc.targets.webgpu.page.places import ALIGNMENT
from modelcc.targets.webgpu.wasm import WASM

_MODEL = cpu_model(WASM, threads=1)


@dataclass(frozen=True)
class PageTarget(CpuTarget):
    """What a page runs: shaders for ``gpu``, and WebAssembly for what has none."""

    gpu: GpuModel

    @property
    def name(self) -> str:
        return "webgpu"

    @property
    def key(self) -> str:
        return repr(self)

    @property
    def forms(self) -> tuple[str, ...]:
        return ("wgsl", "web")

    @property
    def memory(self) -> MemoryRules:
        """What is bound begins at multiples of 256 bytes."""
        return MemoryRules(ALIGNMENT)

    @cached_property
    def _available(self) -> Available:
        return lanes_of(e for e in self.encodings if e.llvm)

    def graph_passes(self) -> GraphPasses:
        """None: tensors are plain."""
        return GraphPasses()

    def tensor_passes(self) -> TensorPasses:
        """None beyond the usual ones."""
        return TensorPasses()

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Groups of threads for kernels that WGSL can say, functions of the host for others."""
        lower = ShaderLowering(self.gpu)
        return schedule_program(program, self.scheduled, on_function, self.wanted, lower)

    def legalize(self, function: Function) -> Function:
        """Elementary functions and narrow elements become arithmetic."""
        if grid_loop(function) is None:
            return super().legalize(function)
        return plain_function(function)

    def emit(self, program: Program) -> tuple[Module, ...]:
        """A module for each shader."""
        return self.emit_functions(program.callees)

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """Shaders of those that are of groups."""
        return tuple(
            Module(function.name, shader_of(function).text)
            for function in functions
            if isinstance(function, Function) and grid_loop(function) is not None
        )

    def complete(self, program: Program) -> str:
        """All shaders."""
        return "".join(f"// ---- {m.name}\n{m.text}" for m in self.emit(program))

    def build(self, modules: Sequence[Module], config: BuildConfig) -> tuple[bytes, ...]:
        """Browsers compile what a page holds."""
        raise self._only_pages()

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """The text of all shaders."""
        return "".join(f"// ---- {m.name}\n{m.text}" for m in modules).encode()

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """There is no artifact."""
        raise self._only_pages()

    def _only_pages(self) -> ModelError:
        return ModelError("the target 'webgpu' writes pages", (), "--emit web -o FOLDER/")


def page_target(options: TargetOptions) -> PageTarget:
    """The target as ``options`` ask for it: ``cpu`` names a machine of groups (empty: graphics of
    a processor, the least that there is); :class:`ModelError` if it is unknown."""
    gpu = GPUS.get(options.cpu or INTEGRATED.name)
    if gpu is None:
        close = get_close_matches(options.cpu, GPUS, 1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(GPUS)}"
        raise ModelError(f"unknown machine {options.cpu!r} for webgpu", (), hint)
    return PageTarget(WASM, _MODEL, replace(options, cpu=""), limited(gpu))


def limited(gpu: GpuModel) -> GpuModel:
    """A machine whose groups are as large as every implementation of WebGPU allows."""
    shared, threads = LIMITS.shared_bytes, LIMITS.threads
    assert shared is not None
    assert threads is not None
    return replace(
        gpu,
        group_shared_bytes=min(gpu.group_shared_bytes, shared),
        group_threads=min(gpu.group_threads, threads),
    )


@dataclass(frozen=True)
class ShaderLowering:
    """Makes functions of groups for ``gpu``, and of the host for what WGSL has no form for."""

    gpu: GpuModel

    def __call__(
        self,
        kernel: CanonicalKernel,
        name: str,
        machine: CpuModel,
        source: tuple[str, ...] = (),
        wanted: Schedule | None = None,
        states: frozenset[tuple[str, str]] = frozenset(),
    ) -> ScheduledKernel:
        scheduled = schedule_groups_kernel(kernel, name, self.gpu, source, wanted, states)
        try:
            shader_of(plain_function(meaning_of(scheduled.function)))
        except TooManyBuffersError:
            if len(kernel.stages) > 1:  # each stage takes some of them
                raise NoScheduleError from None
        except (NotImplementedError, TypeError):
            pass
        else:
            return scheduled
        return schedule_kernel(kernel, name, machine, source, None, states)
