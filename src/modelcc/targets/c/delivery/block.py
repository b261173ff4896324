"""The weights as one block of bytes, in the layout that the code reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.artifact.constants import block_size, constant_view, fill_block, padded_size
from modelcc.artifact.manifest import ALIGNMENT, ConstantSpec
from modelcc.artifact.memory import Memory
from modelcc.ir.constant import Constant
from modelcc.ir.types import Array


@dataclass(frozen=True)
class WeightBlock:
    """Constants and their offsets in a block, whose size is a multiple of 64 bytes."""

    table: tuple[ConstantSpec, ...]
    block: Memory
    size: int
    sha256: str

    @property
    def data(self) -> memoryview:
        """The bytes of the file."""
        return self.block.view[: self.size].toreadonly()

    @property
    def places(self) -> tuple[ConstantSpec, ...]:
        """A constant for each offset, in order: equal ones share theirs, empty ones have none."""
        found = {spec.offset: spec for spec in reversed(self.table) if spec.size}
        return tuple(found[offset] for offset in sorted(found))

    def array(self, spec: ConstantSpec) -> Array:
        """The elements of a constant."""
        return constant_view(self.data, spec)


def weights_of(constants: Mapping[str, Constant]) -> WeightBlock | None:
    """The block of ``constants``; None if they are empty."""
    block = Memory(padded_size(constants.values()))
    table = fill_block(block, constants)
    size = -(-block_size(table) // ALIGNMENT) * ALIGNMENT
    if not size:
        return None
    return WeightBlock(table, block, size, hashlib.sha256(block.view[:size]).hexdigest())
