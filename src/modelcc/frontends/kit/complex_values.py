"""Complex numbers: pairs of real values at import; the graph contains no complex types.

Inputs and outputs of a model have real and imaginary parts in a last axis of extent 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.groups import GroupValue
from modelcc.ir.types import C64, C128, F16, F32, F64, DType
from modelcc.ops.broadcast import Reshape
from modelcc.ops.control import At
from modelcc.ops.shape import Concat

C32 = DType("c32", "complex", 32, "complex32")
"""Complex with f16 parts, which NumPy lacks; only the parts exist as arrays."""


@dataclass(frozen=True)
class ComplexValue(GroupValue):
    """A tensor of complex numbers: its real and its imaginary part, of the same type."""

    real: str
    imag: str
    kind = "a tensor of complex numbers"

    @property
    def parts(self) -> tuple[str, ...]:
        return self.real, self.imag

    def of(self, parts: Sequence[str]) -> GroupValue:
        real, imag = parts
        return ComplexValue(real, imag)


def part_type(dtype: DType) -> DType:
    """The type of the parts of complex numbers."""
    return {32: F16, 64: F32}.get(dtype.bits, F64)


def complex_type(part: DType) -> DType:
    """The type of complex numbers whose parts have this type."""
    return {16: C32, 32: C64}.get(part.bits, C128)


def of_parts(emitter: Emitter, name: str) -> str:
    """The complex numbers whose parts are the last axis of ``name``."""
    axis = emitter.type_of(name).rank - 1
    return emitter.group(ComplexValue(*(emitter.emit(At(axis, n), name) for n in (0, 1))))


def as_parts(emitter: Emitter, name: str) -> str:
    """``name``; of complex numbers the parts in a last axis."""
    group = emitter.find_group(name)
    if group is None:
        return name
    shape = emitter.type_of(group.parts[0]).shape
    parts = [emitter.emit(Reshape((*shape, 1)), part) for part in group.parts]
    return emitter.emit(Concat(len(shape)), *parts)
