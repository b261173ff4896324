"""The block of memory that holds a model's constants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from modelcc.artifact.manifest import ALIGNMENT, ConstantSpec
from modelcc.ir.types import Array, dtype_of

Bytes = NDArray[np.uint8]


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


def digest_of(data: Bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data.data).hexdigest()


def block_size(table: Sequence[ConstantSpec]) -> int:
    """Bytes from the first constant to the end of the last."""
    return max((spec.offset + spec.size for spec in table), default=0)


def constant_bytes(array: Array) -> Bytes:
    """The elements' bytes in row-major order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def block_pieces(table: Sequence[ConstantSpec], constants: Mapping[str, Array]) -> Iterator[Bytes]:
    """The block of constants, piece by piece, with the zeros in between."""
    end = 0
    for spec in table:
        if spec.offset >= end:
            yield np.zeros(spec.offset - end, np.uint8)
            yield constant_bytes(constants[spec.name])
            end = spec.offset + spec.size


def constant_view(block: memoryview, spec: ConstantSpec) -> Array:
    """A constant as an array that shares the block's memory."""
    data = block[spec.offset : spec.offset + spec.size]
    return np.frombuffer(data, np.uint8).view(spec.dtype.numpy).reshape(spec.shape)
