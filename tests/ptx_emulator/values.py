"""Registers as bits, and what numbers these are of which type."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import ml_dtypes
import numpy as np
import numpy.typing as npt

from modelcc.ir.types import Array

NUMBERS: Mapping[str, npt.DTypeLike] = MappingProxyType(
    {
        "pred": np.bool_,
        **{f"{kind}{n}": f"{'i' if kind == 's' else 'u'}{n // 8}" for kind in "sub"
           for n in (8, 16, 32, 64)},
        "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
        "f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16, "tf32": np.float32,
        "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
        "e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2,
        "u16x2": np.uint16, "s16x2": np.int16, "f32x2": np.float32,
    }
)  # fmt: skip
"""Types of instructions as NumPy's; ``x2`` is two numbers of a register."""

_WORDS: Mapping[int, npt.DTypeLike] = MappingProxyType(
    {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
)


def word_type(size: int) -> npt.DTypeLike:
    """What holds so many bytes."""
    return _WORDS[size]


def register_type(declared: str) -> npt.DTypeLike:
    """What holds a register."""
    return np.bool_ if declared == "pred" else _WORDS[np.dtype(NUMBERS[declared]).itemsize]


def is_pair(name: str) -> bool:
    """Whether a type is two numbers."""
    return name.endswith("x2")


def numbers(bits: Array, name: str) -> Array:
    """Registers as numbers of a type, two in a second axis if it is a pair; the low bits, if
    registers are wider."""
    kind = np.dtype(NUMBERS[name])
    if name == "pred":
        return bits
    size = kind.itemsize * (2 if is_pair(name) else 1)
    words = np.ascontiguousarray(bits.astype(_WORDS[size], copy=False))
    found = words.view(kind)
    return found.reshape(len(words), 2) if is_pair(name) else found


def bits_of(values: Array, name: str, size: int) -> Array:
    """Numbers as registers of ``size`` bytes: those of signed types are extended by their sign."""
    kind = np.dtype(NUMBERS[name])
    with np.errstate(all="ignore"):
        exact = np.ascontiguousarray(values.astype(kind, copy=False))
    if is_pair(name):
        words = exact.view(_WORDS[2 * kind.itemsize]).reshape(len(exact))
    elif name.startswith("s"):
        return exact.astype(f"i{size}", copy=False).view(_WORDS[size])
    else:
        words = exact.view(_WORDS[kind.itemsize])
    return words.astype(_WORDS[size], copy=False)
