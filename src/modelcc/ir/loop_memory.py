"""Reads and writes of the loop level's interpreter: checked, of scalars and of vectors."""

from __future__ import annotations

import numpy as np

from modelcc.ir.types import Array, NumpyType

Lanes = Array
"""Lanes of a vector, or a NumPy scalar, which has the same methods."""


def undefined(size: int, dtype: NumpyType) -> Array:
    """Uninitialised memory: NaN or the largest integer."""
    if np.issubdtype(dtype, np.integer):
        return np.full(size, np.iinfo(dtype).max, dtype)
    return np.full(size, np.nan, np.float64).astype(dtype)


def load(buffer: Array, offset: int, lanes: int, stride: int, active: int | None) -> Lanes:
    """Lane l is element ``offset + l*stride``; lanes from ``active`` on are 0."""
    if lanes == 1:
        if active is not None and active < 1:
            return buffer.dtype.type(0)
        if not 0 <= offset < len(buffer):
            _check(buffer, offset, offset)
        return buffer[offset]
    if stride > 0:
        count = lanes if active is None else min(max(active, 0), lanes)
        last = offset + (count - 1) * stride
        _check(buffer, offset, last)
        found = buffer[offset : last + 1 : stride]
        if count == lanes:
            return found.copy()
        result = np.zeros(lanes, buffer.dtype)
        result[:count] = found[:count]
        return result
    return _lanes(buffer, offset + stride * np.arange(lanes), active)


def gather(buffer: Array, offset: int, offsets: Lanes, active: int | None) -> Lanes:
    """Lane l is element ``offset + offsets[l]``."""
    if offsets.ndim == 0:
        return load(buffer, offset + int(offsets), 1, 1, active)
    return _lanes(buffer, offset + offsets.astype(np.int64), active)


def part(buffer: Array, offset: int, count: int) -> Array:
    """A view of ``count`` elements from ``offset`` on."""
    if count > 0:
        _check(buffer, offset, offset + count - 1)
    return buffer[offset : offset + count]


def _lanes(buffer: Array, where: Array, active: int | None) -> Array:
    count = len(where) if active is None else min(max(active, 0), len(where))
    result = np.zeros(len(where), buffer.dtype)
    if count:
        _check(buffer, int(where[:count].min()), int(where[:count].max()))
        result[:count] = buffer[where[:count]]
    return result


def store(buffer: Array, offset: int, value: Lanes, stride: int, active: int | None) -> None:
    """Element ``offset + l*stride`` becomes lane l; lanes from ``active`` on are kept."""
    if value.ndim == 0:
        if active is None or active > 0:
            _check(buffer, offset, offset)
            buffer[offset] = value
        return
    if stride > 0:
        count = len(value) if active is None else min(max(active, 0), len(value))
        last = offset + (count - 1) * stride
        _check(buffer, offset, last)
        if count:
            buffer[offset : last + 1 : stride] = value[:count]
        return
    _write(buffer, offset + stride * np.arange(len(value)), value, active)


def scatter(buffer: Array, offset: int, offsets: Lanes, value: Lanes, active: int | None) -> None:
    """Element ``offset + offsets[l]`` becomes lane l."""
    if value.ndim == 0:
        store(buffer, offset + int(offsets), value, 1, active)
    else:
        _write(buffer, offset + offsets.astype(np.int64), value, active)


def _write(buffer: Array, where: Array, value: Array, active: int | None) -> None:
    count = len(where) if active is None else min(max(active, 0), len(where))
    if count:
        _check(buffer, int(where[:count].min()), int(where[:count].max()))
        buffer[where[:count]] = value[:count]


def _check(buffer: Array, low: int, high: int) -> None:
    if low <= high and (low < 0 or high >= len(buffer)):
        raise IndexError(
            f"access to elements {low} to {high} of a buffer of {len(buffer)} {buffer.dtype}"
        )
