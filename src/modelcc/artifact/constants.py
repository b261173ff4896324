"""The block of memory that holds a model's constants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from modelcc.artifact.manifest import ALIGNMENT, ConstantSpec
from modelcc.ir.types import Array, TensorType

Bytes = NDArray[np.uint8]


class Block(Protocol):
    """Memory for constants in a program's layout."""

    @property
    def address(self) -> int:
        """A multiple of ``ALIGNMENT``."""
        ...

    @property
    def view(self) -> memoryview:
        """Its bytes."""
        ...


class Writable(Protocol):
    """A constant that can be serialised to memory."""

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        ...

    def write(self, target: Bytes) -> None:
        """Copy the elements' bytes to ``target``."""
        ...


def padded_size(constants: Iterable[Writable]) -> int:
    """Total size of ``constants``, each aligned, in bytes."""
    return sum(-(-constant.nbytes // ALIGNMENT) * ALIGNMENT for constant in constants)


def fill_block(block: Block, constants: Mapping[str, Writable]) -> tuple[ConstantSpec, ...]:
    """Write each constant to ``block``, which has room for all; equal ones are shared."""
    places: dict[str, int] = {}
    end = 0
    table: list[ConstantSpec] = []
    memory = np.frombuffer(block.view, np.uint8) if constants else np.empty(0, np.uint8)
    for name, constant in constants.items():
        own = memory[end : end + constant.nbytes]
        constant.write(own)
        digest = digest_of(own)
        if digest not in places:
            places[digest] = end
            end += -(-own.size // ALIGNMENT) * ALIGNMENT
        shape = tuple(extent for extent in constant.type.static_shape())
        offset = places[digest]
        table.append(ConstantSpec(name, constant.type.dtype, shape, offset, own.size, digest))
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
    """The block of constants, piece by piece, including padding."""
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
