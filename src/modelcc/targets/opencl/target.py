"""The target ``opencl``: any device with a driver of OpenCL 1.2.

A device that accepts SPIR-V gets kernels in this form, any other one OpenCL C, which its driver
compiles.  This machine's driver tells the capabilities, and what to schedule for; without one,
kernels become OpenCL C with 64-bit floats, scheduled for a processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import has_elements
from modelcc.ir.types import F64
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.runtime.devices.device_parts import CODE
from modelcc.runtime.devices.opencl_facts import OpenclFacts
from modelcc.runtime.errors import LoadError
from modelcc.targets.base import BuildConfig, Module, TargetOptions
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.names import symbol
from modelcc.targets.gpu.device_target import DeviceTarget
from modelcc.targets.gpu.llvm_kernels import LlvmKernels
from modelcc.targets.gpu.machine import GPUS, PROCESSOR, GpuModel
from modelcc.targets.native.target import native_target
from modelcc.targets.opencl.dialect import OPENCL
from modelcc.targets.opencl.machine import model_of
from modelcc.targets.opencl.spirv import HALVES, KERNELS, spirv_of

DOUBLES, HALF, IL = "cl_khr_fp64", "cl_khr_fp16", "cl_khr_il_program"
USUAL = (DOUBLES,)
SPIRV = "spirv"
LANGUAGES = ("c", SPIRV)
_DEVICE = "modelcc.runtime.devices.opencl_device"


@dataclass(frozen=True)
class OpenclTarget(DeviceTarget):
    """A device with those ``extensions`` of OpenCL that matter here and the machine model
    ``model``; with ``spirv`` it gets SPIR-V instead of OpenCL C."""

    extensions: tuple[str, ...] = USUAL
    spirv: bool = False
    model: GpuModel = PROCESSOR

    @property
    def name(self) -> str:
        return "opencl"

    @property
    def description(self) -> str:
        language = "SPIR-V" if self.spirv else f"OpenCL C {OPENCL.standard}"
        return f"device {self.index} of OpenCL, {language}, scheduled for {self.gpu.name}"

    @property
    def gpu(self) -> GpuModel:
        return self.model.portable

    @property
    def form(self) -> str:
        return "llvm" if self.spirv else "opencl"

    @property
    def forms(self) -> tuple[str, ...]:
        """LLVM IR and SPIR-V, or OpenCL C."""
        return (self.form, SPIRV) if self.spirv else (self.form,)

    @property
    def _llvm(self) -> LlvmKernels:
        """The printer of kernels that become SPIR-V."""
        return HALVES if HALF in self.extensions else KERNELS

    def symbol(self, name: str) -> str:
        return symbol(name)

    def lacks(self, function: Function) -> str:
        """64-bit floats, if the device has none."""
        if DOUBLES in self.extensions or not has_elements(self.legalize_groups(function), F64):
            return ""
        return "the device has no 64-bit floats"

    def legalize_groups(self, function: Function) -> Function:
        """Elementary functions and narrow types become arithmetic."""
        if self.spirv:
            return self._llvm.legal(function)
        return expand_instructions(expand_math(expand_narrow(function), arrays=False), {})

    def text(self, functions: Sequence[Function]) -> str:
        """OpenCL C, or LLVM IR for SPIR-V."""
        if self.spirv:
            return self._llvm.text(functions, self.gpu.limits)
        return emit_c(functions, EmitOptions(dialect=OPENCL))

    def compiled(self, text: str, config: BuildConfig) -> bytes:
        """SPIR-V, if the device gets it."""
        return spirv_of(text) if self.spirv else super().compiled(text, config)

    def render(self, modules: Sequence[Module], form: str, config: BuildConfig) -> bytes:
        """The device's kernels in one of :attr:`forms`."""
        if self.spirv and form == SPIRV:
            return b"".join(spirv_of(module.text) for module in modules if module.name == CODE)
        return super().render(modules, form, config)


def opencl_target(options: TargetOptions) -> OpenclTarget:
    """The target for ``options``, whose variant is the number of a device (``opencl:1``), a machine
    to schedule for (``opencl:rtx40``), a language (``opencl:c``, ``opencl:spirv``), or several of
    these in this order (``opencl:1:rtx40:c``); :class:`ModelError` for others."""
    words = [word for word in options.variant.split(":") if word]
    language = words.pop() if words and words[-1] in LANGUAGES else ""
    machine = words.pop() if words and words[-1] in GPUS else ""
    number = ":".join(words) or "0"
    if not number.isdecimal():
        raise ModelError(f"OpenCL's devices have numbers, and {number!r} is none", (), _HINT)
    host = native_target(replace(options, variant="", threads=1, schedule="", tuned=()))
    index, facts = int(number), facts_of(int(number))
    model = model_of(machine, facts)
    if facts is None:
        return OpenclTarget(host, options, index, USUAL, language == SPIRV, model)
    spirv = language == SPIRV or (not language and IL in facts.extensions)
    own = tuple(sorted(facts.extensions & {DOUBLES, HALF}))
    return OpenclTarget(host, options, index, own, spirv, model)


_HINT = (
    "opencl:0 is the first one; opencl:0:c or opencl:0:spirv says in which form it gets kernels, "
    f"and opencl:NAME what they are scheduled for: {', '.join(GPUS)}"
)


def facts_of(number: int) -> OpenclFacts | None:
    """What this machine's driver tells of device ``number``; None if there is none."""
    try:
        found: OpenclFacts = import_module(_DEVICE).device_facts(number)
    except (ImportError, LoadError):
        return None
    return found
