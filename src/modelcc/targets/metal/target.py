"""The target ``metal``: Apple's GPUs, whose driver compiles kernels when a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.capacity import Capacity
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, substitute
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import checks_in, has_elements, launch_extents
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.program import Launch, Program, Step, Transfer, leaves
from modelcc.ir.tensor import ReadSize
from modelcc.ir.types import F64
from modelcc.passes.loop.expand_copies import expand_copies
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_lanes import expand_lanes
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.passes.program.place_transfers import side_of
from modelcc.targets.base import TargetOptions
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.names import symbol
from modelcc.targets.gpu.device_program import device_functions
from modelcc.targets.gpu.device_target import DeviceTarget, group_capacity
from modelcc.targets.gpu.machine import APPLE, INTEGRATED, GpuModel
from modelcc.targets.gpu.products.tensor_product import MATRICES, WHOLE_MATRICES
from modelcc.targets.gpu.schedule import refused
from modelcc.targets.metal.dialect import METAL
from modelcc.targets.native.target import native_target

ARGUMENTS = 31
"""Buffers that a kernel can bind, each size being one (Metal Feature Set Tables, "Maximum number of
entries in the buffer argument table, per compute function")."""

DOUBLES = "Metal has no f64"

MACHINES: Mapping[str, GpuModel] = {
    "apple": replace(APPLE, matrix=(MATRICES, WHOLE_MATRICES)),
    "integrated": INTEGRATED,
}
"""Machines to schedule for: Apple's GPUs, and those of Macs with Intel's processors, which have no
SIMD-group matrices."""


@dataclass(frozen=True)
class MetalTarget(DeviceTarget):
    """A device that runs Metal's shading language, with the machine model ``model``."""

    model: GpuModel = MACHINES["apple"]

    @property
    def name(self) -> str:
        return "metal"

    @property
    def description(self) -> str:
        return f"device {self.index} of Metal, scheduled for {self.gpu.name}"

    @property
    def gpu(self) -> GpuModel:
        return self.model

    @property
    def capacity(self) -> Capacity:
        """Metal has no 64-bit floats."""
        return replace(self.host.capacity, groups=group_capacity(self.gpu, doubles=False))

    @property
    def form(self) -> str:
        return "msl"

    def symbol(self, name: str) -> str:
        return symbol(name)

    def lacks(self, function: Function) -> str:
        """Doubles, and more arguments than can be bound."""
        names = [parameter.buffer.name for parameter in function.parameters]
        count = len(_buffers(function, names)) + len(function.sizes)
        if count > ARGUMENTS:
            return f"it takes {count} buffers and sizes, and kernels of Metal {ARGUMENTS}"
        return DOUBLES if has_elements(self.legalize_groups(function), F64) else ""

    def legalize_groups(self, function: Function) -> Function:
        """Elementary functions and narrow types become arithmetic, vectors their lanes, and
        asynchronous copies synchronous."""
        plain = expand_math(expand_narrow(expand_copies(function)), arrays=False)
        return expand_lanes(expand_instructions(plain, {}))

    def text(self, functions: Sequence[Function]) -> str:
        return metal_text(functions)

    def complete(self, program: Program) -> str:
        """Every kernel, after a comment that lists the launches, in order, with their arguments;
        :class:`ModelError` for steps that are no launches."""
        for step in program.steps:
            _check_launch(step, program)
        return metal_text(device_functions(program), "\n".join(_head(program)))


def metal_target(options: TargetOptions) -> MetalTarget:
    """The target for ``options``, whose variant is the number of a device (``metal:1``) or its kind
    (``metal:integrated``); :class:`ModelError` for others."""
    variant = options.variant
    host = native_target(replace(options, variant="", threads=1, schedule="", tuned=()))
    if not variant or variant.isdecimal():
        return MetalTarget(host, options, int(variant or 0))
    if variant not in MACHINES:
        hint = f"there is {', '.join(MACHINES)}; metal:0 is the first device"
        raise ModelError(f"no GPU of a Mac is called {variant!r}", (), hint)
    return MetalTarget(host, options, 0, MACHINES[variant])


def metal_text(functions: Sequence[Function], head: str = "") -> str:
    """MSL of ``functions`` that are legal for the target, after the comment ``head``.

    Raises :class:`ModelError` for what is no function of groups or does not fit a threadgroup, and
    ``NotImplementedError`` or ``TypeError`` for what the language cannot express.
    """
    for function in functions:
        verify_function(function, APPLE.limits)
        if has_elements(function, F64):
            raise TypeError(f"{DOUBLES}, which @{function.name} computes with; cast it to f32")
    return emit_c(functions, EmitOptions(head=head, dialect=METAL))


def _check_launch(step: Step, program: Program) -> None:
    """:class:`ModelError` if it is not a kernel launch."""
    hint = "without --emit, the processor of a Mac does what they do not"
    match step:
        case Launch() if side_of(program.callee[step.callee]) == "device":
            pass
        case Launch():
            what = f"kernels are all that is written, and none computes {step.callee}"
            raise ModelError(what, step.source, hint)
        case ReadSize():
            raise refused(step)
        case Transfer():
            pass
        case _:
            what = f"kernels are all that is written, and the model has a {type(step).__name__}"
            raise ModelError(what, (), hint)


def _buffers(function: Function, names: Sequence[str]) -> list[str]:
    """The buffers of a kernel by these names, in the order of their numbers."""
    noted = 16 * checks_in(function)
    return [*names, *([f"{noted} bytes for failed checks"] if noted else [])]


def _head(program: Program) -> Iterator[str]:
    functions = {f.name: f for f in device_functions(program)}
    yield f"{program.name} for Metal; build with safe math (-fmetal-math-mode=safe)."
    yield ""
    yield "Launches in order: kernel(buffers; sizes), threadgroups x threads of each."
    for step in leaves(program.steps):
        if isinstance(step, Launch):
            function = functions[step.callee]
            own = dict(zip(function.sizes, step.sizes, strict=True))
            ends = launch_extents(function)
            grid, threads = ([substitute(e, own) for e in extents] for extents in ends)
            sizes = f"; {_listed(step.sizes)}" if step.sizes else ""
            yield (
                f"  {symbol(step.callee)}({', '.join(_buffers(function, step.arguments))}{sizes})"
                f" {_dimensions(grid)} x {_dimensions(threads)}"
            )


def _listed(values: Sequence[Index]) -> str:
    return ", ".join(map(str, values))


def _dimensions(extents: Sequence[Index]) -> str:
    """Three of them."""
    return f"({_listed((*extents, *(1 for _ in range(3 - len(extents)))))})"
