"""Microcontrollers as targets.

On this machine (:meth:`~modelcc.targets.base.Target.load`) the same kernels run, with missing
instructions replaced by their semantics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.library import Callee, ExternalCall, LibraryFunction
from modelcc.ir.loop import Alloc, Function, RoutineCall, Stmt
from modelcc.ir.loop_traversal import statements
from modelcc.ir.memory_rules import MemoryRules
from modelcc.ir.program import Launch, Program
from modelcc.ir.tensor import TensorProgram
from modelcc.passes.graph.integer_contractions import IntegerContractions
from modelcc.passes.graph.tabulate_bytes import TabulateBytes
from modelcc.passes.loop.expand_instructions import Available
from modelcc.passes.loop.serialise import serialise
from modelcc.passes.program.check_first import check_first
from modelcc.passes.program.order import order_steps
from modelcc.passes.program.plan_memory import MemoryPlan, plan_memory
from modelcc.passes.program.timeline import timeline
from modelcc.passes.tensor.channels_last import ChannelsLast
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.inline import InlineStages
from modelcc.targets.base import (
    SCHEDULE,
    GraphPasses,
    Module,
    OnFunction,
    TargetOptions,
    TensorPasses,
)
from modelcc.targets.c.delivery.facts import DeliveryRequest
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.c.dialect import EMBEDDED
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.isa.table import available, lanes_of
from modelcc.targets.isa.templates import Encoding
from modelcc.targets.mcu.cost import step_costs
from modelcc.targets.mcu.delivery.arduino import arduino_files
from modelcc.targets.mcu.delivery.files import embedded_files
from modelcc.targets.mcu.delivery.model import embedded_model
from modelcc.targets.mcu.delivery.source import source
from modelcc.targets.mcu.libraries.choice import vendor_libraries
from modelcc.targets.mcu.libraries.cmsis_nn import CmsisNN
from modelcc.targets.mcu.libraries.work import call_counts
from modelcc.targets.mcu.lower import schedule_kernel
from modelcc.targets.mcu.machine import MODELS, McuModel
from modelcc.targets.mcu.passes.call_library import CallLibrary
from modelcc.targets.mcu.passes.fixed_point import FixedPoint
from modelcc.targets.mcu.passes.flat_weights import FlatWeights
from modelcc.targets.mcu.passes.folded_zero_points import FoldZeroPoints
from modelcc.targets.mcu.passes.narrow_products import NarrowProducts
from modelcc.targets.mcu.passes.row_parameters import RowParameters
from modelcc.targets.mcu.passes.scalar_constants import ScalarConstants
from modelcc.targets.mcu.passes.zero_points import InlineZeroPoints
from modelcc.targets.mcu.streaming import MemoryNeed, StreamToFit
from modelcc.targets.mcu.timing import instructions
from modelcc.targets.native.c_target import CTarget
from modelcc.targets.native.linux_machine import linux_machine

_REGISTERS = 8
"""Maximum sums of a tile: of thirteen registers some hold addresses."""

_CHANNELS = 4
"""Channels that kernels process at once."""

_SURE = 1.5
"""Ratio of two estimates from which on they decide which kernel is cheaper."""


FRAMES = 640
"""Bytes of stack besides arrays: GCC's frames for the kernels of DS-CNN take 290 of a Cortex-M4,
for those of ResNet-8 570."""


@dataclass(frozen=True)
class McuTarget(CTarget):
    """A microcontroller, for which C is generated; loaded artifacts run on this machine's
    processor."""

    model: McuModel = MODELS["mcu"]

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def description(self) -> str:
        """Its description, for ``modelcc targets``."""
        return self.model.words

    @property
    def forms(self) -> tuple[str, ...]:
        return (SCHEDULE, "c", "bytecode", "interpreter")

    @property
    def usual_dims(self) -> Mapping[str, int]:
        """One sample at a time: the names that frontends give to open batch axes."""
        return {"batch": 1}

    @property
    def memory(self) -> MemoryRules:
        """Alignment for the largest elements; inputs and outputs may be in the arena, too."""
        return MemoryRules(alignment=8, room=True, overlap=True)

    @cached_property
    def encodings(self) -> tuple[Encoding, ...]:
        """The microcontroller's instructions that kernels may use."""
        return available(self.model.architecture, self.model.features)

    @cached_property
    def _available(self) -> Available:
        return lanes_of(e for e in self.encodings if e.c)

    def graph_passes(self) -> GraphPasses:
        """Integer products, if a model dequantises their operands."""
        return GraphPasses(
            quantised=(IntegerContractions(own=False),),
            functions=(TabulateBytes(),),
            channels=_CHANNELS,
        )

    def tensor_passes(self) -> TensorPasses:
        """Images with channels last, and integers in the form that instructions need."""
        mve = self.model.mve
        folded, beside = ((FoldZeroPoints(),), ()) if mve else ((), (RowParameters(),))
        return TensorPasses(
            layouts=(ScalarConstants(), InlineZeroPoints(), ChannelsLast()),
            operands=self._calls,
            kernels=(FlatWeights(), NarrowProducts(), *folded, FixedPoint(), *beside),
            inline=InlineStages(narrow=True),
            whole=self._streams,
        )

    @property
    def _streams(self) -> tuple[StreamToFit, ...]:
        """Streams rows through layers, if memory is short."""
        called = ("--library left out, for calls take whole images",) if self._calls else ()
        ram = self.options.ram
        return () if ram is None else (StreamToFit(ram, self._needs, called),)

    @property
    def _calls(self) -> tuple[CallLibrary, ...]:
        """Calls the vendor's library, if requested."""
        library = CmsisNN("+dsp" in self.model.features, self.model.mve)
        gains = None if self.options.kernels == "library" else self._gains
        return (CallLibrary(library, self.cpu, gains),) if self.model.libraries else ()

    def _gains(self, call: ExternalCall, alone: TensorProgram) -> bool:
        """Whether a library's function takes fewer instructions than generated kernels."""
        for step in (FuseKernels(), *self.tensor_passes().kernels):
            alone = step(alone)
        costs = step_costs(self._legal(alone), self.model).values()
        own = sum(map(instructions, costs))
        return _SURE * instructions(call_counts(call, self.model)) < own

    def _legal(self, program: TensorProgram) -> Program:
        """The program scheduled for and legalised to its processor."""
        scheduled = replace(self.schedule(program), states=program.states)
        legal = (self.legalize(c) if isinstance(c, Function) else c for c in scheduled.callees)
        return replace(scheduled, callees=tuple(legal))

    def _needs(self, program: TensorProgram) -> MemoryNeed:
        """The memory of a program when scheduled unchanged."""
        ordered = order_steps(check_first(self._legal(program)))
        plan = plan_memory(ordered, self.memory)
        return need(ordered, plan)

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Lowers kernels to loop functions, products of bytes by processor-specific schedules."""
        lower = partial(schedule_kernel, mve=self.model.mve)
        return schedule_program(program, self.cpu, on_function, self.wanted, lower)

    def legalize(self, function: Function) -> Function:
        """As for any processor, without threads."""
        return super().legalize(serialise(function))

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """Files of a few functions each, for this machine: library calls replaced by their
        semantics."""
        plain = (
            self.legalize(f.meaning) if isinstance(f, LibraryFunction) else f for f in functions
        )
        return super().emit_functions(tuple(plain))

    def called(self, callees: Sequence[Callee]) -> tuple[LibrarySpec, ...]:
        """None: on this machine no library is called."""
        return ()

    def complete(self, program: Program) -> str:
        """The one C file, weights included."""
        return source(embedded_model(program, DeliveryRequest(program.name), self.model))

    def deliver(self, program: Program, request: DeliveryRequest) -> tuple[File, ...]:
        """A C file, its header and an example, or an Arduino library of them; :class:`ModelError`
        for what these cannot express."""
        model = embedded_model(program, request, self.model)
        return arduino_files(model) if request.arduino else embedded_files(model)


def mcu_target(name: str, options: TargetOptions) -> McuTarget:
    """The target of the microcontroller ``name`` for ``options``."""
    host = linux_machine()
    plain = CpuModel(vector_bits=1, vector_registers=_REGISTERS, fused=False)
    model = replace(MODELS[name], libraries=vendor_libraries(MODELS[name], options))
    return McuTarget(host, plain, replace(options, threads=1), model=model, dialect=EMBEDDED)


def need(program: Program, plan: MemoryPlan) -> MemoryNeed:
    """Arena, states and stack of ``program``, placed by ``plan``."""
    sizes = (plan.arena, *(program.types[name].bytes for name in program.states.values()))
    numbers = [size for size in sizes if isinstance(size, int)]
    stack = FRAMES + max((local_bytes(f.body) for f in program.functions), default=0)
    return MemoryNeed(sum(numbers) + stack, stack, _fullest(program, plan))


def local_bytes(body: Sequence[Stmt]) -> int:
    """Bytes of stack for the arrays of statements, and of the routines that they call."""
    own = called = 0
    for s in statements(body):
        if isinstance(s, Alloc) and isinstance(s.buffer.size, int):
            own += s.buffer.size * s.buffer.dtype.bytes
        elif isinstance(s, RoutineCall):
            called = max(called, local_bytes(s.routine.body))
    return own + called


def _fullest(program: Program, plan: MemoryPlan) -> tuple[str, ...]:
    """The nodes of the step at the peak of the arena."""
    placed = [s for s in plan.storages if s.place == "arena" and isinstance(s.size, int)]

    def live(step: int) -> int:
        found = (s.size for s in placed if s.first <= step <= s.last)
        return sum(size for size in found if isinstance(size, int))

    calls = {n: c for n, c in timeline(program).calls.items() if isinstance(c, Launch)}
    return calls[max(calls, key=live)].source if calls else ()


mcu = partial(mcu_target, "mcu")
cortex_m0plus = partial(mcu_target, "cortex-m0plus")
cortex_m3 = partial(mcu_target, "cortex-m3")
cortex_m4 = partial(mcu_target, "cortex-m4")
cortex_m7 = partial(mcu_target, "cortex-m7")
cortex_m33 = partial(mcu_target, "cortex-m33")
cortex_m55 = partial(mcu_target, "cortex-m55")
riscv32imc = partial(mcu_target, "riscv32imc")
