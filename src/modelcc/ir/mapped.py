"""Memory-mapped arrays: releasing their pages while they are not needed."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.types import Array

CHUNK = 8 << 20
"""Bytes read at a time from data that may exceed memory."""


def mapped_file(array: Array) -> mmap.mmap | None:
    """The read-only map of a file that ``array`` lies in; None if it lies elsewhere."""
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        view = cast("Array | memoryview", owner)
        owner = view.obj if isinstance(view, memoryview) else view.base
    return owner if isinstance(owner, mmap.mmap) and memoryview(owner).readonly else None


def release_pages(array: Array) -> None:
    """Let the system reclaim the memory of the file that ``array`` is mapped from, if it is.

    Data that is used again is read again, from the file or the page cache.
    """
    found = mapped_file(array)
    if found is not None and hasattr(mmap, "MADV_DONTNEED"):
        found.madvise(mmap.MADV_DONTNEED)


def release_all(arrays: Iterable[Array]) -> None:
    """:func:`release_pages` for all arrays, which are mapped from few files."""
    found = {id(file): array for array in arrays if (file := mapped_file(array)) is not None}
    for array in found.values():
        release_pages(array)


def copy_bytes(target: NDArray[np.uint8], array: Array) -> None:
    """Copies the elements of ``array`` in row-major order to ``target`` and releases its pages."""
    source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, source.size, CHUNK):
        target[start : start + CHUNK] = source[start : start + CHUNK]
        if source.size >= CHUNK:
            release_pages(array)
