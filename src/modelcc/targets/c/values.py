"""Spelling of types and constants in C.

The 16-bit floats are kept as their bits (``uint16_t``): C11 has no such types, and arithmetic on
them is done in ``float``.  A vector of bools is a mask: integers that are 0 or -1, as comparisons
yield, of the width of the compared elements.
"""

from __future__ import annotations

import math

import numpy as np

from modelcc.ir.types import BF16, BOOL, F16, F32, F64, DType
from modelcc.targets.c.dialect import GNU, CDialect

HALVES = (F16, BF16)
_FLOATS = {F64: "double", F32: "float", F16: "uint16_t", BF16: "uint16_t"}
_WIDTHS = (8, 16, 32, 64)


def scalar_type(dtype: DType) -> str:
    """C type of one element; ``TypeError`` for types that C cannot compute with."""
    if dtype == BOOL:
        return "bool"
    return memory_type(dtype)


def memory_type(dtype: DType) -> str:
    """C type of one element in memory, where a bool is a byte."""
    if dtype == BOOL:
        return "uint8_t"
    if dtype in _FLOATS:
        return _FLOATS[dtype]
    if dtype.is_integer and dtype.bits in _WIDTHS:
        return f"{dtype.kind}{dtype.bits}_t"
    raise TypeError(
        f"C code cannot compute with {dtype} elements; lower them to an integer or float type "
        f"of at least 8 bits first"
    )


def prefix(dtype: DType) -> str:
    """Short name in types and functions: ``f32``; halves are named after their bits."""
    if dtype in HALVES:
        return "u16"
    scalar_type(dtype)
    return "u8" if dtype == BOOL else dtype.name


def vector_type(dtype: DType, lanes: int) -> str:
    """Name of a vector in memory, or of a value other than bools; ``f32x16``."""
    return f"{prefix(dtype)}x{lanes}"


def mask_type(bits: int, lanes: int) -> str:
    """Name of the vector of ``lanes`` masks of ``bits`` bits each."""
    return f"i{bits}x{lanes}"


def constant(value: float | int | bool, dtype: DType, dialect: CDialect = GNU) -> str:
    """A scalar constant of exactly the type that ``scalar_type(dtype)`` has in arithmetic."""
    if dtype == BOOL:
        return "true" if value else "false"
    if dtype.is_integer:
        return _integer(int(value), dtype)
    if dtype in HALVES:
        return f"{int(np.array(value).astype(dtype.numpy).view(np.uint16)):#06x}"
    return _float(float(np.array(value).astype(dtype.numpy)), dtype, dialect)


def _integer(value: int, dtype: DType) -> str:
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    value = (value - low) % (1 << dtype.bits) + low
    if dtype.bits < 32:
        return str(value)
    if dtype.kind == "uint":
        return f"UINT{dtype.bits}_C({value})" if dtype.bits == 64 else f"{value}u"
    if value == low:  # its magnitude is out of the type's range
        return f"INT{dtype.bits}_MIN"
    return str(value) if dtype.bits == 32 else f"INT64_C({value})"


def _float(value: float, dtype: DType, dialect: CDialect) -> str:
    suffix = "f" if dtype == F32 else ""
    if math.isnan(value):
        return dialect.nan[dtype == F32]
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}{dialect.infinity[dtype == F32]}"
    text = str(np.float32(value)) if dtype == F32 else repr(value)
    mantissa, e, exponent = text.partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent + suffix
