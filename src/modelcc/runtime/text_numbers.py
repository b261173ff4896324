"""Numbers that texts spell, as C's strtoll, strtoull and strtod read them; nothing may follow.

ONNX has decimal numbers, with or without an exponent, and INF and NaN in any case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from modelcc.ir.types import Array, DType

_SPACE = r"[ \t\n\v\f\r]*"
_INTEGER = re.compile(rf"{_SPACE}([+-]?)0*([0-9]+)(?:\.[0-9]*)?{_SPACE}")
_FLOAT = re.compile(
    rf"{_SPACE}[+-]?(?:(nan|inf|infinity)|([0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?){_SPACE}",
    re.IGNORECASE | re.ASCII,
)
_DIGITS = len(str(2**64))


def numbers(texts: Sequence[str], dtype: DType) -> Array:
    """A vector of ``dtype``; ValueError for a text that spells none.

    Integers are of 64 bits, a fraction cut off, and then as many of their lowest bits as ``dtype``
    has; floats are of 64 bits, then rounded.
    """
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return np.array([_float(t) for t in texts], np.float64).astype(dtype.numpy)
    signed = dtype.kind == "int"
    low, high = (-(2**63), 2**63 - 1) if signed else (1 - 2**64, 2**64 - 1)
    bits = [_integer(t, low, high) % 2**64 for t in texts]
    return np.array(bits, np.uint64).view(np.int64 if signed else np.uint64).astype(dtype.numpy)


def _integer(text: str, low: int, high: int) -> int:
    found = _INTEGER.fullmatch(text)
    if found is None:
        raise ValueError(f"{_shown(text)} spells no integer, as '-12' does")
    sign, digits = found.groups()
    value = int(sign + digits[: _DIGITS + 1])
    if len(digits) > _DIGITS or not low <= value <= high:
        raise ValueError(f"{_shown(text)} is an integer of more than 64 bits")
    return value


def _float(text: str) -> float:
    found = _FLOAT.fullmatch(text)
    if found is None:
        raise ValueError(f"{_shown(text)} spells no number, as '-1.5e3' does")
    value = float(text)
    special, digits = found.groups()
    lost = value == 0 and any(digit in "123456789" for digit in digits or "")
    if lost or (math.isinf(value) and not special):
        raise ValueError(f"{_shown(text)} is beyond the range of floats of 64 bits")
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
