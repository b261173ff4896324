"""Places of constants for artifacts that no pipeline makes."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.artifact.constants import constant_bytes, digest_of
from modelcc.artifact.manifest import ALIGNMENT, ConstantSpec
from modelcc.ir.types import Array, dtype_of


def constant_table(constants: Mapping[str, Array]) -> tuple[ConstantSpec, ...]:
    """A place for each constant, in the given order; equal bytes are kept once."""
    places: dict[str, int] = {}
    end = 0
    table: list[ConstantSpec] = []
    for name, array in constants.items():
        data = constant_bytes(array)
        digest = digest_of(data)
        if digest not in places:
            places[digest] = end
            end += -(-data.size // ALIGNMENT) * ALIGNMENT
        offset = places[digest]
        shape = tuple(array.shape)
        table.append(ConstantSpec(name, dtype_of(array), shape, offset, data.size, digest))
    return tuple(table)
