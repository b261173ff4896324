"""How LLVM text is written for a machine."""

from __future__ import annotations

from modelcc.targets.llvm.emitter import EmitOptions
from modelcc.targets.llvm.instructions import Instructions
from modelcc.targets.native.machine import Machine, function_attributes


def emission(machine: Machine) -> EmitOptions:
    """How LLVM text for ``machine`` is written."""
    return EmitOptions(function_attributes(machine), machine.triple, instructions(machine))


def instructions(machine: Machine) -> Instructions:
    """What the machine's processor can do beyond what every processor of LLVM's can."""
    if machine.architecture != "x86_64":
        arm = machine.architecture == "aarch64"
        return Instructions(half_conversions=arm, rounding=arm)
    return Instructions(
        byte_dots=_byte_dots(machine),
        short_dots=_short_dots(machine),
        half_conversions="+f16c" in machine.features,
        rounding="+sse4.1" in machine.features,
    )


def _byte_dots(machine: Machine) -> int:
    """Bits of the widest instruction for dot products of bytes (VNNI), 0 if there is none."""
    if "+avx512vnni" in machine.features:
        return machine.vector_bits
    return min(machine.vector_bits, 256) if "+avxvnni" in machine.features else 0


def _short_dots(machine: Machine) -> int:
    """Bits of the widest instruction for sums of two products of i16, which SSE2 has."""
    if "+avx512bw" in machine.features:
        return machine.vector_bits
    return 256 if "+avx2" in machine.features else 128
