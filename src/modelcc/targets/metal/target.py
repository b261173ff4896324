"""Apple's GPUs as a target that writes kernels; Metal's compiler, on macOS, builds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, substitute
from modelcc.ir.library import Callee
from modelcc.ir.loop import Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_traversal import has_elements, launch_extents
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.program import Launch, Program, leaves
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import F64
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.targets.base import Module, OnFunction, TargetOptions
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.names import symbol
from modelcc.targets.gpu.machine import APPLE
from modelcc.targets.gpu.schedule import schedule_groups
from modelcc.targets.metal.dialect import METAL
from modelcc.targets.source_target import SourceTarget

LIMITS = GroupLimits(shared_bytes=32 << 10, threads=1024)
"""What a threadgroup has on every GPU of Apple's."""


@dataclass(frozen=True)
class MetalTarget(SourceTarget):
    """Kernels in Metal's shading language."""

    @property
    def name(self) -> str:
        return "metal"

    @property
    def description(self) -> str:
        """What it is, for ``modelcc targets``."""
        return "GPUs of Apple's: kernels as source text, which Metal builds and runs on macOS"

    @property
    def forms(self) -> tuple[str, ...]:
        return ("msl",)

    @property
    def elsewhere(self) -> str:
        """Who builds the text."""
        return "Metal builds and runs the kernels, on macOS"

    def schedule(self, program: TensorProgram, on_function: OnFunction | None = None) -> Program:
        """Kernels become functions of groups of threads."""
        scheduled = schedule_groups(program, machine=APPLE)
        if on_function is not None:
            for function in scheduled.functions:
                on_function(function)
        return scheduled

    def emit(self, program: Program) -> tuple[Module, ...]:
        """One file of kernels, with what is launched."""
        return (Module("kernels", self.complete(program)),)

    def emit_functions(self, functions: Sequence[Callee]) -> tuple[Module, ...]:
        """One file of kernels."""
        return (Module("kernels", _text([f for f in functions if isinstance(f, Function)])),)

    def complete(self, program: Program) -> str:
        """Every kernel, after a comment that says what is launched, in order, on what."""
        return _text(program.functions, "\n".join(_head(program)))


def metal_target(options: TargetOptions) -> MetalTarget:
    """The target for ``options``."""
    return MetalTarget(options)


def _text(functions: Sequence[Function], head: str = "") -> str:
    """MSL; :class:`ModelError` for what it cannot say."""
    try:
        return metal_text(functions, head)
    except (NotImplementedError, TypeError) as error:
        raise ModelError(str(error), ("target 'metal'",)) from error


def _head(program: Program) -> Iterator[str]:
    functions = {f.name: f for f in program.functions}
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
                f"  {symbol(step.callee)}({', '.join(step.arguments)}{sizes})"
                f" {_dimensions(grid)} x {_dimensions(threads)}"
            )


def _listed(values: Sequence[Index]) -> str:
    return ", ".join(map(str, values))


def _dimensions(extents: Sequence[Index]) -> str:
    """Three of them."""
    return f"({_listed((*extents, *(1 for _ in range(3 - len(extents)))))})"


def metal_text(functions: Sequence[Function], head: str = "") -> str:
    """MSL of ``functions`` after the comment ``head``.

    Raises :class:`ModelError` for what is no function of groups or does not fit a threadgroup, and
    ``NotImplementedError`` or ``TypeError`` for what the language cannot say.
    """
    for function in functions:
        verify_function(function, LIMITS)
    plain = [expand_instructions(expand_math(function, arrays=False), {}) for function in functions]
    for function in plain:
        _check_doubles(function)
    return emit_c(plain, EmitOptions(head=head, dialect=METAL))


def _check_doubles(function: Function) -> None:
    if has_elements(function, F64):
        raise TypeError(
            f"GPUs of Apple's have no f64, which @{function.name} computes with; cast it to f32"
        )
