"""Long lists in serialised attributes, decoded without an object per item.

ONNX's lists are rarely packed (https://protobuf.dev/programming-guides/encoding): each item is a
tag of one byte and a number, or a length and a string.  NumPy finds the starts of items, block by
block; None means that the bytes are not such a list, and protobuf may parse them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.types import Array

BLOCK = 1 << 18
"""Bytes per block."""

_LONGEST = 10
_KINDS = 64

Bytes = NDArray[np.uint8]


class Codes(NamedTuple):
    """A list of strings: the distinct ones, and the index of each item."""

    texts: tuple[str, ...]
    codes: Array


def coded(texts: Sequence[str]) -> Codes:
    """The distinct strings of a list, and the index of each item."""
    known = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    return Codes(tuple(known), np.fromiter(map(known.__getitem__, texts), np.int64, len(texts)))


def integers(content: memoryview, tag: int | None) -> Array | None:
    """The integers in ``content``, each after ``tag``, in the narrowest dtype that holds them."""
    data = np.frombuffer(content, np.uint8)
    parts: list[Array] = []
    for values in _blocks(data, tag):
        if values is None:
            return None
        parts.append(narrowed(values))
    return np.concatenate(parts) if parts else np.empty(0, np.int8)


def _blocks(data: Bytes, tag: int | None) -> Iterator[Array | None]:
    step, start = 1 if tag is None else 2, 0
    while start < len(data):
        block = data[start : start + BLOCK]
        ends = np.flatnonzero(block < 128)
        ends = ends[: len(ends) // step * step]
        if not len(ends):
            yield None
            return
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        if tag is not None:
            tags = block[begins[::2]]
            if (tags != tag).any():
                yield None
                return
            begins, ends = begins[1::2], ends[1::2]
        yield _numbers(block, begins, ends - begins)
        start += int(ends[-1]) + 1


def _numbers(block: Bytes, begins: Array, more: Array) -> Array | None:
    """Varints (7 bits per byte, little-endian) with up to ``more`` bytes after the first."""
    longest = int(more.max())
    if longest >= _LONGEST:
        return None
    values = (block[begins] & 127).astype(np.uint64)
    for k in range(1, longest + 1):
        which = np.flatnonzero(more >= k)
        bits = (block[begins[which] + k] & 127).astype(np.uint64)
        values[which] |= bits << np.uint64(7 * k)
    return values.view(np.int64)


def narrowed(values: Array) -> Array:
    """Integers in the narrowest dtype that holds them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for dtype in (np.int8, np.int16, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values


def floats(content: memoryview, tag: int | None) -> Array | None:
    """The f32 numbers in ``content``, each after ``tag``."""
    data = np.frombuffer(content, np.uint8)
    width = 4 if tag is None else 5
    if len(data) % width:
        return None
    items = data.reshape(-1, width)
    if tag is not None and (items[:, 0] != tag).any():
        return None
    numbers = np.ascontiguousarray(items[:, width - 4 :]).view("<f4").reshape(-1)
    return numbers.astype(np.float32, copy=False)


def texts(content: memoryview, tag: int | None) -> Codes | None:
    """The strings in ``content``, each after ``tag`` and its length: short ones with few distinct
    values.

    Every byte equal to the tag is taken for one, which is verified by the lengths.
    """
    data = np.frombuffer(content, np.uint8)
    begins = np.flatnonzero(data == tag).astype(np.int32 if len(data) < 1 << 31 else np.int64)
    if not len(begins) or begins[0] or begins[-1] + 1 >= len(data):
        return None
    lengths = data[begins + 1]
    ends = begins + 2 + lengths
    if (lengths > 127).any() or ends[-1] != len(data) or (ends[:-1] != begins[1:]).any():
        return None
    codes = np.zeros(len(begins), np.uint8)
    found: list[bytes] = []
    left = np.arange(len(begins), dtype=begins.dtype)
    while left.size and len(found) < _KINDS:
        first = int(left[0])
        text = data[int(begins[first]) + 2 : int(ends[first])]
        same = lengths[left] == len(text)
        for k, letter in enumerate(text):
            place = left[same]
            same[same] = data[begins[place] + (2 + k)] == letter
        codes[left[same]] = len(found)
        found.append(text.tobytes())
        left = left[~same]
    try:
        return None if left.size else Codes(tuple(text.decode() for text in found), codes)
    except UnicodeDecodeError:
        return None
