"""A target from outside modelcc: a small processor, and nothing else to register.

After ``pip install ./examples/target`` modelcc finds it by its entry point (see pyproject.toml):
``modelcc compile --target narrow``.  modelcc's own tests run on it, too: in a checkout,
``pytest --target narrow tests/ops/test_native.py``; what it cannot do is in
expected_failures.toml.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.capacity import Capacity
from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.types import U64
from modelcc.targets.base import TargetOptions
from modelcc.targets.native.target import NativeTarget, native_target


@dataclass(frozen=True)
class NarrowTarget(NativeTarget):
    """A processor with eight vector registers of 64 bits, and no unsigned 64-bit integers."""

    @property
    def name(self) -> str:
        return "narrow"

    @property
    def description(self) -> str:
        """For ``modelcc targets``."""
        return f"{self.cpu.vector_registers} vectors of {self.cpu.vector_bits} bits"

    @property
    def capacity(self) -> Capacity:
        """Ops that write their loops (sort, top-k) do so with single vectors, of two elements."""
        return replace(super().capacity, lanes=2)

    def legalize(self, function: Function) -> Function:
        """As for any processor; :class:`ModelError` for what this one lacks."""
        if any(parameter.buffer.dtype == U64 for parameter in function.parameters):
            hint = "convert the tensors to another type"
            raise ModelError("the target narrow has no type u64", function.source, hint)
        return super().legalize(function)


def narrow_target(options: TargetOptions) -> NarrowTarget:
    """The target for ``options``: code for the machine at hand, scheduled for the small one."""
    base = native_target(options)
    cpu = replace(base.cpu, vector_bits=64, vector_registers=8, l1_bytes=8 << 10, l2_bytes=64 << 10)
    return NarrowTarget(base.machine, cpu, options, base.codegen)
