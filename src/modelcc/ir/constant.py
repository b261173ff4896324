"""Constant data of a program, at every level: a handle, never text."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.mapped import CHUNK, copy_bytes, release_pages
from modelcc.ir.types import Array, TensorType, dtype_of

Sample: TypeAlias = tuple[str, tuple[int, ...], bytes]
"""Element type, shape and some of the elements of a constant."""

SAMPLES = 16


class Constant:
    """Handle to constant data (in memory or memory-mapped), compared by content digest."""

    def __init__(self, data: Array) -> None:
        self._data = data

    def __repr__(self) -> str:
        return f"Constant({self.type})"

    @property
    def data(self) -> Array:
        """The elements."""
        return self._data

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._data.nbytes

    def part(self, axis: int, start: int, stop: int) -> Array:
        """The elements at ``start`` to ``stop`` along ``axis``, or to its end if that is less."""
        return self.data[(*(slice(None),) * axis, slice(start, stop))]

    def write(self, target: NDArray[np.uint8]) -> None:
        """Copy the elements' bytes, in row-major order, to ``target``."""
        copy_bytes(target, self._data)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of dtype, shape and bytes (of the elements' text for strings)."""
        data = self.data
        h = hashlib.sha256(f"{dtype_of(data)}{data.shape}".encode())
        if data.dtype == object:
            h.update(repr(data.tolist()).encode())
        else:
            h.update(np.ascontiguousarray(data).view(np.uint8).data)
            if data.nbytes >= CHUNK:
                release_pages(data)
        return h.hexdigest()

    @cached_property
    def sample(self) -> Sample:
        """Data compared before digests: if it differs, so do these."""
        data = self.data
        step = max(1, data.size // SAMPLES)
        some = data.flat[::step] if data.size else data
        content = repr(some.tolist()).encode() if data.dtype == object else some.tobytes()
        if data.nbytes >= CHUNK:
            release_pages(data)  # operating systems read ahead around requested pages
        return str(dtype_of(data)), data.shape, content

    @property
    def type(self) -> TensorType:
        return TensorType(tuple(self._data.shape), dtype_of(self._data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and (
            other.data is self.data or other.digest == self.digest
        )

    def __hash__(self) -> int:
        return hash(self.digest)
