"""Targets that are accelerators: kernels by groups run there, what has no such form on a host.

A target of this kind is a printer of loop functions and what the runtime opens; all else is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import LibrarySpec, MachineSpec
from modelcc.ir.capacity import Capacity, GroupCapacity
from modelcc.ir.errors import ModelError
from modelcc.ir.library import Callee, LibraryFunction
from modelcc.ir.loop import Function
from modelcc.ir.memory_rules import MemoryRules
from modelcc.ir.naming import user_name
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.passes.graph.conv_transpose_to_conv import ConvTransposeToConv
from modelcc.passes.graph.join_products import JoinProducts
from modelcc.passes.graph.keep_sums import KeepSums
from modelcc.passes.program.place_transfers import place_transfers, side_of
from modelcc.passes.tensor.channels_last import ChannelsLast
from modelcc.passes.tensor.epilogue_axes import EpilogueAxes
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.fuse_chains import FuseChains
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.passes.tensor.inline import InlineStages
from modelcc.passes.tensor.read_in_place import ReadInPlace
from modelcc.passes.tensor.read_through_views import ReadThroughViews
from modelcc.passes.tensor.select_parts import SelectParts
from modelcc.passes.tensor.split_groups import SplitGroups
from modelcc.runtime.device_parts import CODE, STEPS
from modelcc.runtime.device_states import ALIGNMENT
from modelcc.runtime.device_steps import to_json
from modelcc.runtime.machine import machine_identity
from modelcc.runtime.opening import session_of
from modelcc.runtime.session import Session
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Schedule
from modelcc.targets.base import (
    TF32,
    BuildConfig,
    GraphPasses,
    Module,
    OnFunction,
    Target,
    TargetOptions,
    TensorPasses,
    joined,
)
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.gpu.chain_choice import runs_as_chain
from modelcc.targets.gpu.device_program import (
    device_functions,
    device_program,
    with_places,
)
from modelcc.targets.gpu.host_notes import host_notes, rounding_notes
from modelcc.targets.gpu.image_operand import BOUNDARY
from modelcc.targets.gpu.kernel_uses import device_facts
from modelcc.targets.gpu.kernels import DeviceKernels
from modelcc.targets.gpu.library_call import DeviceCall, library_notes, with_workspaces
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.passes.fuse_gated_products import FuseGatedProducts
from modelcc.targets.gpu.passes.permute_operands import PermuteOperands
from modelcc.targets.gpu.passes.split_keys import SplitKeys
from modelcc.targets.gpu.passes.split_reductions import SplitReductions
from modelcc.targets.gpu.passes.split_scatters import SplitScatters
from modelcc.targets.gpu.passes.winograd import GroupWinograd
from modelcc.targets.gpu.passes.winograd_cost import GroupWinogradCost
from modelcc.targets.gpu.working_memory import with_working_memory
from modelcc.targets.kernel_use import CompiledKernel, DeviceFacts
from modelcc.targets.llvm.program import entry_name
from modelcc.targets.native.target import NativeTarget
from modelcc.targets.native.toolchain import host_machine
from modelcc.targets.packaging import Label, package

MOST_THREADS = 256
"""Of a group of an algorithm: with more, all wait longer for each other."""


def group_capacity(gpu: GpuModel, doubles: bool = True) -> GroupCapacity:
    """What algorithms may take of ``gpu``."""
    threads = 1 << min(gpu.group_threads, MOST_THREADS).bit_length() - 1
    return GroupCapacity(threads, gpu.group_shared_bytes, doubles)


@dataclass(frozen=True)
class DeviceTarget(Target):
    """An accelerator, number ``index`` of those that the runtime finds, and the processor of its
    ``host``."""

    host: NativeTarget
    options: TargetOptions
    index: int = 0

    @property
    @abstractmethod
    def gpu(self) -> GpuModel:
        """What schedules know of it."""

    @property
    @abstractmethod
    def form(self) -> str:
        """What :meth:`text` prints, as ``--emit`` calls it."""

    @abstractmethod
    def symbol(self, name: str) -> str:
        """How the kernel of a function of this name is spelled."""

    @abstractmethod
    def legalize_groups(self, function: Function) -> Function:
        """A function of groups in the constructs that :meth:`text` prints."""

    def lacks(self, function: Function) -> str:
        """What the device has not that a function of groups takes, so that the host runs it;
        empty if there is nothing."""
        del function
        return ""

    def library_call(self, kernel: CanonicalKernel, schedule: Schedule | None) -> DeviceCall | None:
        """The call of a device's library that computes ``kernel`` in place of a function of groups
        by this ``schedule``; None if there is none."""
        del kernel, schedule
        return None

    @property
    def libraries(self) -> tuple[LibrarySpec, ...]:
        """The device's libraries that :meth:`library_call` calls."""
        return ()

    @abstractmethod
    def text(self, functions: Sequence[Function]) -> str:
        """Source text of functions of groups."""

    def compiled(self, text: str, config: BuildConfig) -> bytes:
        """What the runtime loads of such a text; itself, if drivers compile it."""
        return text.encode()

    @property
    def key(self) -> str:
        return f"{self!r} {self.host.key}"

    @property
    def forms(self) -> tuple[str, ...]:
        return (self.form,)

    @property
    def parts(self) -> int:
        """Parts of a tensor that one kernel may read from as many others."""
        return 16

    @property
    def capacity(self) -> Capacity:
        """Algorithms that have no form for groups run on the host."""
        return replace(self.host.capacity, groups=group_capacity(self.gpu))

    @property
    def memory(self) -> MemoryRules:
        """Buffers start where devices want them to."""
        return MemoryRules(alignment=ALIGNMENT)

    def graph_passes(self) -> GraphPasses:
        """Products of one operand are one, for all units and in one launch; gradients of images are
        convolved as images are, and those of attention made of its rows' sums."""
        return GraphPasses(
            functions=(KeepSums(),),
            convolutions=(ConvTransposeToConv(),),
            products=(JoinProducts(),),
        )

    def tensor_passes(self) -> TensorPasses:
        """Images with channels last where matrix units convolve them, and filters in their order;
        concatenations of few parts where they are read; what follows products in their shape; many
        updates of few places in parts, and long sums, for all units, but for products, where a
        library may compute them or the last group finishes them, and for attention; this in one
        kernel, also by few keys, since launches are dear, of few rows and many keys in two where
        threads exchange registers, unless one has all of them; gates with what they are multiplied
        by, unless a library may compute either."""
        few = self.gpu.exchanges
        keys = (SplitKeys(self.gpu.units, self.gpu),) if few else ()
        last, turned = ((ChannelsLast(),), (PermuteOperands(),)) if self.gpu.matrix else ((), ())
        attention = FuseContractions(
            1,
            cache_bytes=0,
            rows=0 if few else 16,
            empty=True,
            of_rows=True,
            share=4 if self.gpu.virtual else 64,
        )
        chains = FuseChains(partial(runs_as_chain, machine=self.gpu))
        twins = () if self.libraries else (FuseGatedProducts(self.gpu),)
        products = not self.libraries and not self.gpu.arrivals
        split = SplitReductions(
            self.gpu.units, products=products, fusion=(FuseKernels(), chains, attention)
        )
        return TensorPasses(
            layouts=(*last, ReadInPlace(BOUNDARY), ReadThroughViews(), SelectParts(self.parts)),
            inline=InlineStages(choices=False),
            operands=(EpilogueAxes(), *turned, SplitScatters(self.gpu), split),
            kernels=(chains, attention, SplitGroups(), *keys, *twins, *self._winograd()),
        )

    def _winograd(self) -> Iterator[GroupWinograd]:
        """Convolutions of f32 by fewer multiplications, unless matrix units round these or a
        library is to compute what it can."""
        asked = self.options.winograd and self.options.optimize > 0
        if asked and self.options.precision != TF32 and self.options.kernels != "library":
            yield GroupWinograd(GroupWinogradCost(self.gpu))

    def program_passes(self) -> tuple[Callable[[Program], Program], ...]:
        """Transfers, where tensors change sides."""
        return (place_transfers,)

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Kernels become functions of groups where there is a schedule; notes say what runs on the
        host, and why."""
        reasons: dict[tuple[str, ...], str] = {}
        calls: dict[tuple[str, ...], DeviceCall] = {}
        lower = DeviceKernels(
            self.gpu, reasons.__setitem__, self.lacks, self.library_call, calls.__setitem__
        )
        found = schedule_program(
            program, self.host.cpu, on_function, lower=lower, scatter=lower.scatter
        )
        own = rounding_notes(found, self.options.precision, self.gpu)
        notes = *found.notes, *host_notes(found, reasons), *library_notes(calls), *own
        return with_working_memory(with_workspaces(replace(found, notes=notes)))

    def list_schedules(self, program: TensorProgram) -> str:
        raise ModelError(f"target {self.name} lists no schedules", (), "leave --emit schedule out")

    def legalize(self, function: Function) -> Function:
        on_device = side_of(function) == "device"
        return self.legalize_groups(function) if on_device else self.host.legalize(function)

    def emit(self, program: Program) -> tuple[Module, ...]:
        """The steps, the device's kernels, and modules of the host's."""
        steps = device_program(program, self.name, self.index, self.symbol)
        hosted = [c for c in program.callees if side_of(c) == "host"]
        return (
            Module(STEPS, to_json(steps)),
            Module(CODE, self.code(program)),
            *self.host.emit_functions(hosted),
        )

    def code(self, program: Program) -> str:
        """Source text of the kernels that a placed program launches; empty if there is none."""
        functions = with_places(device_functions(program), program)
        return self.text(functions) if functions else ""

    def complete(self, program: Program) -> str:
        """The device's kernels."""
        return self.text(device_functions(program))

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """A module of functions of groups, and those of the host's."""
        grouped = [f for f in functions if isinstance(f, Function) and side_of(f) == "device"]
        hosted = [f for f in functions if side_of(f) == "host"]
        own = (Module(CODE, self.text(grouped)),) if grouped else ()
        return (*own, *self.host.emit_functions(hosted))

    def build(self, modules: Sequence[Module], config: BuildConfig) -> tuple[bytes, ...]:
        """The steps, what the runtime loads, and object files of the host's."""
        steps, code, *hosted = modules
        own = self.compiled(code.text, config) if code.text else b""
        return (steps.text.encode(), own, *self.host.build(hosted, config))

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """The text of the device's kernels."""
        if form != self.form:
            known = ", ".join(self.forms)
            raise ModelError(f"target {self.name} cannot emit {form!r}", (), f"it knows {known}")
        own = [module for module in modules if module.name == CODE]
        return joined(own, [module.text for module in own])

    def device_facts(self, program: Program, objects: Sequence[bytes] = ()) -> DeviceFacts:
        """By the machine's model, and by the compiled code, if there is some."""
        functions = device_functions(program)
        code = objects[1] if objects else b""
        found = self.compiled_kernels(code)
        taken = {f.name: found.get(self.symbol(f.name)) for f in functions}
        return device_facts(functions, self.gpu, taken)

    def compiled_kernels(self, code: bytes) -> Mapping[str, CompiledKernel]:
        """What kernels take, by the symbols of compiled ``code``; empty if drivers compile it."""
        return {}

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """The artifact, with the steps and the device's kernels beside the host's objects."""
        steps, code, *hosted = objects
        target = self.host.machine
        origin = machine_identity() if target == host_machine() else ""
        machine = MachineSpec(target.triple, target.cpu, target.features, origin)
        label = Label(versions={self.name: self.description}, sources=notes)
        names = list(map(user_name, program.outputs))
        called = {c.call.library for c in program.callees if isinstance(c, LibraryFunction)}
        own = [spec for spec in self.libraries if spec.name in called]
        found = package(program, entry_name(program), hosted, machine, names, label, libraries=own)
        files = {STEPS: steps, CODE: code, **found.objects}
        return replace(found, objects=files, manifest=replace(found.manifest, objects=tuple(files)))

    def load(self, artifact: Artifact, threads: int) -> Session:
        """The artifact on its device, or on another one that the target names."""
        named = self.options.variant.split(":")[-1].isdecimal()
        return session_of(artifact, threads, self.index if named else None)
