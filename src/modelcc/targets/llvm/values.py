"""Spelling of types and constants in LLVM IR.

The 16-bit floats are kept as their bits (``i16``): without instructions for them, LLVM lowers
arithmetic on its own types to library calls.
"""

from __future__ import annotations

import math
import re
import struct

import numpy as np

from modelcc.ir.types import BF16, BOOL, F16, F32, F64, DType

_PLAIN_NAME = re.compile(r"[A-Za-z._$-][A-Za-z0-9._$-]*")

_FLOATS = {F64: "double", F32: "float", F16: "half", BF16: "bfloat"}
_HALVES = (F16, BF16)


def scalar_type(dtype: DType) -> str:
    """LLVM type of one element in a register; ``TypeError`` for types LLVM cannot compute with."""
    if dtype == BOOL:
        return "i1"
    if dtype in _HALVES:
        return "i16"
    if dtype in _FLOATS:
        return _FLOATS[dtype]
    if dtype.is_integer and dtype.bits in (8, 16, 32, 64):
        return f"i{dtype.bits}"
    raise TypeError(
        f"LLVM code cannot compute with {dtype} elements; lower them to an integer or float type "
        f"of at least 8 bits first"
    )


def vector_of(element: str, lanes: int) -> str:
    """``lanes`` elements as an LLVM type; the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def value_type(dtype: DType, lanes: int = 1) -> str:
    """LLVM type of a value in a register."""
    return vector_of(scalar_type(dtype), lanes)


def float_type(dtype: DType, lanes: int = 1) -> str:
    """LLVM's float type for arithmetic."""
    return vector_of(_FLOATS.get(dtype) or scalar_type(dtype), lanes)


def memory_type(dtype: DType, lanes: int = 1) -> str:
    """LLVM type of a value in memory, where a bool is a byte."""
    return vector_of("i8" if dtype == BOOL else scalar_type(dtype), lanes)


def mangled(element: str, lanes: int) -> str:
    """The type as a suffix of an intrinsic's name: ``v16f32``."""
    short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def constant(value: float | int | bool, dtype: DType, lanes: int = 1) -> str:
    """A constant operand, without its type."""
    scalar = _scalar_constant(value, dtype)
    if lanes == 1:
        return scalar
    if scalar in ("0", "0.0", "false"):
        return "zeroinitializer"
    return f"splat ({scalar_type(dtype)} {scalar})"


def integers(values: range | tuple[int, ...], element: str) -> str:
    """A constant vector of integers."""
    return f"<{', '.join(f'{element} {v}' for v in values)}>"


def _scalar_constant(value: float | int | bool, dtype: DType) -> str:
    if dtype == BOOL:
        return "true" if value else "false"
    if dtype.is_integer:
        low = -(1 << (dtype.bits - 1))
        return str((int(value) - low) % (1 << dtype.bits) + low)
    if dtype in _HALVES:
        return str(int(np.array(value).astype(dtype.numpy).view(np.int16)))
    number = float(np.array(value).astype(dtype.numpy).astype(np.float64))
    return _decimal(number) if math.isfinite(number) else _hexadecimal(number)


def _decimal(number: float) -> str:
    text = repr(number)
    mantissa, e, exponent = text.partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent


def _hexadecimal(number: float) -> str:
    """Infinities and NaN have no decimal form; f32 is spelled with the bits of the f64."""
    return f"0x{struct.pack('>d', number).hex().upper()}"


def quoted(name: str) -> str:
    """A name as LLVM text after ``%`` or ``@``: unquoted if its characters allow."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    codes = name.encode()
    kept = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in codes)
    return f'"{"".join(kept)}"'
