"""Types and constants in WGSL.

Numbers of up to 32 bits are i32, u32 or f32, whatever their width in memory, those of 64 bits are
pairs of words, and 16-bit floats are f32 that have been rounded.
"""

from __future__ import annotations

import math

import numpy as np

from modelcc.ir.types import BF16, BOOL, F16, F32, DType

HALVES = (F16, BF16)
PAIR = "vec2<u32>"


def value_type(dtype: DType) -> str:
    """The type of a value; ``TypeError`` for those that WGSL cannot compute with."""
    if dtype == BOOL:
        return "bool"
    if dtype == F32 or dtype in HALVES:
        return "f32"
    if dtype.is_integer and dtype.bits == 64:
        return PAIR
    if dtype.is_integer and dtype.bits in (8, 16, 32):
        return "i32" if dtype.kind == "int" else "u32"
    raise TypeError(f"WGSL cannot compute with {dtype} elements")


def constant(value: float | int | bool, dtype: DType) -> str:
    """A constant of exactly the type of :func:`value_type`."""
    type_ = value_type(dtype)
    if type_ == "bool":
        return "true" if value else "false"
    if type_ == "f32":
        return _float(float(np.array(value).astype(dtype.numpy)))
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    number = (int(value) - low) % (1 << dtype.bits) + low
    if type_ == PAIR:
        return f"{PAIR}({number & 0xFFFFFFFF:#x}u, {number >> 32 & 0xFFFFFFFF:#x}u)"
    if type_ == "u32":
        return f"{number}u"
    return f"i32({number})" if number == -(1 << 31) else str(number)


def _float(value: float) -> str:
    """The language has no infinities and NaN as constants: these are the bits of variables."""
    if math.isnan(value):
        return "bitcast<f32>(f32_nan_bits)"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}bitcast<f32>(f32_infinity_bits)"
    return f"{np.float32(value)}f"
