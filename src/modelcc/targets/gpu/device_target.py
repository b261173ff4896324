"""Targets that are accelerators: kernels with a schedule for groups run there, others on a host.

A target of this kind is a printer of loop functions and the name of a runtime device; the rest is
here.
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
from modelcc.passes.tensor.fuse_row_products import FuseRowProducts
from modelcc.passes.tensor.inline import InlineStages
from modelcc.passes.tensor.read_in_place import ReadInPlace
from modelcc.passes.tensor.read_through_views import ReadThroughViews
from modelcc.passes.tensor.select_parts import SelectParts
from modelcc.passes.tensor.split_groups import SplitGroups
from modelcc.runtime.devices.device_parts import CODE, STEPS, read_program
from modelcc.runtime.devices.device_states import ALIGNMENT
from modelcc.runtime.devices.device_steps import to_json
from modelcc.runtime.errors import LoadError
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
from modelcc.targets.gpu.chains.chain_choice import runs_as_chain
from modelcc.targets.gpu.device_program import (
    device_functions,
    device_program,
    with_places,
)
from modelcc.targets.gpu.host_notes import byte_notes, host_notes, rounding_notes
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
from modelcc.targets.gpu.products.image_operand import BOUNDARY
from modelcc.targets.gpu.rows.row_product_cost import pays_as_row_product
from modelcc.targets.gpu.working_memory import with_working_memory
from modelcc.targets.kernel_use import CompiledKernel, DeviceFacts
from modelcc.targets.llvm.program import entry_name
from modelcc.targets.native.target import NativeTarget
from modelcc.targets.native.toolchain import host_machine
from modelcc.targets.packaging import Label, package

MOST_THREADS = 256
"""Threads of an algorithm's group: with more, barriers take longer."""


def group_capacity(gpu: GpuModel, doubles: bool = True) -> GroupCapacity:
    """What algorithms may use of ``gpu``."""
    threads = 1 << min(gpu.group_threads, MOST_THREADS).bit_length() - 1
    return GroupCapacity(threads, gpu.group_shared_bytes, doubles)


@dataclass(frozen=True)
class DeviceTarget(Target):
    """An accelerator, device number ``index`` of the runtime, and the processor of its ``host``."""

    host: NativeTarget
    options: TargetOptions
    index: int = 0

    @property
    @abstractmethod
    def gpu(self) -> GpuModel:
        """The machine model that schedules use."""

    @property
    @abstractmethod
    def form(self) -> str:
        """What :meth:`text` prints, as ``--emit`` calls it."""

    @abstractmethod
    def symbol(self, name: str) -> str:
        """The symbol of the kernel of a function of this name."""

    @abstractmethod
    def legalize_groups(self, function: Function) -> Function:
        """A function of groups in the constructs that :meth:`text` prints."""

    def lacks(self, function: Function) -> str:
        """What a function of groups needs and the device lacks, so that the host runs it; empty if
        there is nothing."""
        del function
        return ""

    @property
    def groups_across(self) -> int:
        """How many groups a grid may have in its second and third dimension; 0: any number."""
        return 0

    def library_call(self, kernel: CanonicalKernel, schedule: Schedule | None) -> DeviceCall | None:
        """The call of a device's library that computes ``kernel`` instead of a function of groups
        with this ``schedule``; None if there is none."""
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
        """What the runtime loads for such a text; the text itself, if drivers compile it."""
        return text.encode()

    @property
    def key(self) -> str:
        return f"{self!r} {self.host.key}"

    @property
    def forms(self) -> tuple[str, ...]:
        return (self.form,)

    @property
    def parts(self) -> int:
        """Most parts of a concatenation that one kernel may read in place."""
        return 16

    @property
    def capacity(self) -> Capacity:
        """Algorithms without a schedule for groups run on the host."""
        return replace(self.host.capacity, groups=group_capacity(self.gpu))

    @property
    def memory(self) -> MemoryRules:
        """Buffers have the device's alignment."""
        return MemoryRules(alignment=ALIGNMENT)

    def graph_passes(self) -> GraphPasses:
        """Products of one operand become one, which fills more SMs and is one launch; gradients of
        images become convolutions, and those of attention use row statistics."""
        return GraphPasses(
            functions=(KeepSums(),),
            convolutions=(ConvTransposeToConv(),),
            products=(JoinProducts(),),
        )

    def tensor_passes(self) -> TensorPasses:
        """Images channels last where tensor cores convolve them, and filters in that order;
        concatenations of few parts read in place; epilogues in the shape of their products; many
        updates of few destinations, and long sums, in parts, except products that a library may
        compute or that are split within a kernel, and attention.  Attention in one kernel, also
        with few keys, as launches are expensive; with few rows and many keys in two where the
        device has warp shuffles, unless one kernel handles all of them.  Gated products in one
        kernel, and norms in the few-row products of them, unless a library may compute either."""
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
        pays = partial(pays_as_row_product, machine=self.gpu)
        rows = () if self.libraries else (FuseRowProducts(pays),)
        products = not self.libraries and not self.gpu.arrivals
        split = SplitReductions(
            self.gpu.units, products=products, fusion=(FuseKernels(), chains, attention)
        )
        return TensorPasses(
            layouts=(*last, ReadInPlace(BOUNDARY), ReadThroughViews(), SelectParts(self.parts)),
            inline=InlineStages(choices=False, roundings=True),
            operands=(EpilogueAxes(), *turned, SplitScatters(self.gpu), split),
            kernels=(chains, attention, SplitGroups(), *keys, *twins, *self._winograd(), *rows),
        )

    def _winograd(self) -> Iterator[GroupWinograd]:
        """Winograd's algorithm for f32 convolutions, unless tensor cores round these or a library
        is to compute all it can."""
        asked = self.options.winograd and self.options.optimize > 0
        if asked and self.options.precision != TF32 and self.options.kernels != "library":
            yield GroupWinograd(GroupWinogradCost(self.gpu))

    def program_passes(self) -> tuple[Callable[[Program], Program], ...]:
        """Transfers between the host and the device."""
        return (place_transfers,)

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Kernels become functions of groups where there is a schedule; notes say what runs on the
        host, and why."""
        reasons: dict[tuple[str, ...], str] = {}
        calls: dict[tuple[str, ...], DeviceCall] = {}
        refused: dict[tuple[str, ...], str] = {}
        lower = DeviceKernels(
            self.gpu,
            reasons.__setitem__,
            self.lacks,
            self.library_call,
            calls.__setitem__,
            refused.__setitem__,
        )
        found = schedule_program(
            program, self.host.cpu, on_function, lower=lower, scatter=lower.scatter
        )
        own = (*rounding_notes(found, self.options.precision, self.gpu), *byte_notes(found))
        notes = *found.notes, *host_notes(found, reasons), *library_notes(calls, refused), *own
        return with_working_memory(with_workspaces(replace(found, notes=notes)))

    def list_schedules(self, program: TensorProgram) -> str:
        raise ModelError(f"target {self.name} lists no schedules", (), "leave --emit schedule out")

    def legalize(self, function: Function) -> Function:
        on_device = side_of(function) == "device"
        return self.legalize_groups(function) if on_device else self.host.legalize(function)

    def emit(self, program: Program) -> tuple[Module, ...]:
        """The steps, the device's kernels, and the host's modules."""
        steps = device_program(program, self.name, self.index, self.symbol, self.groups_across)
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
        """A module of functions of groups, and the host's."""
        grouped = [f for f in functions if isinstance(f, Function) and side_of(f) == "device"]
        hosted = [f for f in functions if side_of(f) == "host"]
        own = (Module(CODE, self.text(grouped)),) if grouped else ()
        return (*own, *self.host.emit_functions(hosted))

    def build(self, modules: Sequence[Module], config: BuildConfig) -> tuple[bytes, ...]:
        """The steps, what the runtime loads, and the host's object files."""
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
        """Resources by the machine model, and by the compiled code, if there is some."""
        functions = device_functions(program)
        code = objects[1] if objects else b""
        found = self.compiled_kernels(code)
        taken = {f.name: found.get(self.symbol(f.name)) for f in functions}
        return device_facts(functions, self.gpu, taken)

    def compiled_kernels(self, code: bytes) -> Mapping[str, CompiledKernel]:
        """Resources of kernels, by symbols of compiled ``code``; empty if drivers compile it."""
        return {}

    def package(
        self, program: Program, objects: Sequence[bytes], notes: Mapping[str, str]
    ) -> Artifact:
        """The artifact, with the steps and the device's kernels besides the host's objects."""
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
        """The artifact on its device, or on the one that the target names; LoadError if it is
        for no device of this kind."""
        kind = read_program(artifact).kind if STEPS in artifact.objects else "processors"
        if kind != self.name:
            raise LoadError(
                f"the model is compiled for {kind}, not for {self.name}: load it without a target, "
                f"or compile it with --target {self.name}"
            )
        named = any(word.isdecimal() for word in self.options.variant.split(":"))
        return session_of(artifact, threads, self.index if named else None)
