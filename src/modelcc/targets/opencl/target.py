"""The target ``opencl``: whatever has a driver of OpenCL 1.2, whose compiler takes OpenCL C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.targets.base import TargetOptions
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.names import symbol
from modelcc.targets.gpu.device_target import DeviceTarget
from modelcc.targets.gpu.machine import PROCESSOR, GpuModel
from modelcc.targets.native.target import native_target
from modelcc.targets.opencl.dialect import OPENCL


@dataclass(frozen=True)
class OpenclTarget(DeviceTarget):
    """A device that takes OpenCL C."""

    @property
    def name(self) -> str:
        return "opencl"

    @property
    def description(self) -> str:
        return f"device {self.index} of OpenCL, OpenCL C {OPENCL.standard}"

    @property
    def gpu(self) -> GpuModel:
        return PROCESSOR

    @property
    def form(self) -> str:
        return "opencl"

    def symbol(self, name: str) -> str:
        return symbol(name)

    def legalize_groups(self, function: Function) -> Function:
        """Elementary functions and narrow elements become arithmetic."""
        return expand_instructions(expand_math(expand_narrow(function)), {})

    def text(self, functions: Sequence[Function]) -> str:
        return emit_c(functions, EmitOptions(dialect=OPENCL))


def opencl_target(options: TargetOptions) -> OpenclTarget:
    """The target for ``options``, whose variant is the number of a device (``opencl:1``);
    :class:`ModelError` for others."""
    number = options.variant or "0"
    if not number.isdecimal():
        hint = "opencl:0 is the first one"
        raise ModelError(f"OpenCL's devices have numbers, and {number!r} is none", (), hint)
    host = native_target(replace(options, variant="", threads=1, schedule="", tuned=()))
    return OpenclTarget(host, options, int(number))
