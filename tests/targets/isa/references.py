"""What instructions compute, by NumPy: of a row of operands in each trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from modelcc.ir.types import Array

Reference = Callable[..., Array]


def wide(a: Array) -> Array:
    """In numbers that hold all products and sums."""
    return a.astype(np.int64 if a.dtype.kind in "iu" else np.float64)


def dots(a: Array, b: Array, c: Array) -> Array:
    """Products of as many neighbours as there are for each sum."""
    products = wide(a) * wide(b)
    return wide(c) + products.reshape(*c.shape, -1).sum(2)


def words(left: type[np.integer], right: type[np.integer]) -> Reference:
    """Of the parts of words in memory."""

    def reference(a: Array, b: Array, c: Array | None = None) -> Array:
        start = np.zeros(a.shape, np.int64) if c is None else c
        return dots(a.view(left), b.view(right), start)

    return reference


def blocks(a: Array, b: Array, c: Array) -> Array:
    """Matrices of 2 x 4 by transposes of others."""
    left, right = (wide(x).reshape(len(x), -1, 2, 4) for x in (a, b))
    return wide(c) + np.einsum("tvik,tvjk->tvij", left, right).reshape(c.shape)


def upper_word(a: Array, b: Array) -> Array:
    """Of a product, halves up."""
    return np.floor_divide(wide(a) * wide(b) + (1 << 31), 1 << 32)


def shifted(a: Array, b: Array) -> Array:
    """Quotients by powers of two, rounded down, of which the exponents' lowest bytes count."""
    return np.floor_divide(wide(a), 1 << np.minimum(b & 255, 62).astype(np.int64))


REFERENCES: Mapping[str, Reference] = {
    "dot4": dots,
    "sdot": dots,
    "udot": dots,
    "vdpbf16ps": dots,
    "bfmmla": blocks,
    "dot_halves": words(np.int16, np.int16),
    "dot_bytes": words(np.uint8, np.int8),
    "add_dot_bytes": words(np.uint8, np.int8),
    "smmulr": upper_word,
    "high_word": lambda a, b: wide(a) * wide(b) >> 32,
    "ssat8": lambda a: np.clip(a, -128, 127),
    "ssat8_half": lambda a: np.clip(a >> 1, -128, 127),
    "asr": shifted,
}
