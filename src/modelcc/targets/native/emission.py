"""Options for LLVM text of a machine."""

from __future__ import annotations

from modelcc.targets.isa.table import available
from modelcc.targets.llvm.emitter import EmitOptions
from modelcc.targets.llvm.instructions import Instructions
from modelcc.targets.native.machine import Machine, function_attributes


def emission(machine: Machine) -> EmitOptions:
    """The options of LLVM text for ``machine``."""
    return EmitOptions(function_attributes(machine), machine.triple, instructions(machine))


def instructions(machine: Machine) -> Instructions:
    """The instructions of the machine's processor beyond LLVM's common subset."""
    arm = machine.architecture == "aarch64"
    return Instructions(
        encodings=available(machine.architecture, machine.features),
        half_conversions=arm or "+f16c" in machine.features,
        rounding=arm or "+sse4.1" in machine.features,
        features=machine.features,
    )
