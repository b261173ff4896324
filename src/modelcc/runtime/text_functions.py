"""String processing, which compiled code cannot do: executed here, before it runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.ir.types import DTYPES, Array, DType
from modelcc.runtime.full_match import Automaton, Matcher

Settings = Mapping[str, Any]
Function = Callable[[Sequence[Array], Settings], tuple[Array, ...]]


_SPACE = r"[ \t\n\v\f\r]*"
_INTEGER = re.compile(rf"{_SPACE}([+-]?)0*([0-9]+)(?:\.[0-9]*)?{_SPACE}")
_FLOAT = re.compile(
    rf"{_SPACE}[+-]?(?:(nan|inf|infinity)|([0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?){_SPACE}",
    re.IGNORECASE | re.ASCII,
)
_DIGITS = len(str(2**64))


def _on_texts(function: Function) -> Callable[[Sequence[object], Settings], tuple[Array, ...]]:
    """``function`` of the caller's operands; ValueError for one that is not a string."""

    def run(operands: Sequence[object], settings: Settings) -> tuple[Array, ...]:
        return function([as_texts(operand) for operand in operands], settings)

    return run


def as_texts(value: object) -> Array:
    """``value`` as an array of ``str``; ValueError if it cannot be."""
    array = np.asarray(value)
    if array.dtype.kind not in "OUT":
        raise ValueError(f"it is of {array.dtype}; give an array of str")
    flat = [t.decode() if isinstance(t, bytes) else str(t) for t in array.reshape(-1).tolist()]
    return _objects(flat, array.shape)


def _objects(texts: Sequence[str], shape: Sequence[int]) -> Array:
    result = np.empty(len(texts), object)
    result[:] = texts
    return result.reshape(tuple(shape))


def literal(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """The strings in the settings."""
    return (_objects(settings["texts"], settings["shape"]),)


def concat(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """Concatenation of both operands' strings, broadcast."""
    first, second = np.broadcast_arrays(*operands)
    pairs = zip(first.reshape(-1).tolist(), second.reshape(-1).tolist(), strict=True)
    return (_objects([a + b for a, b in pairs], first.shape),)


def split(operands: Sequence[Array], settings: Settings) -> tuple[Array, Array]:
    """Parts of each string along a new last axis, padded with empty ones, and their numbers."""
    (x,), most = operands, settings["maxsplit"]
    parts = [text.split(settings["delimiter"] or None, most) for text in x.reshape(-1).tolist()]
    width = max(map(len, parts), default=0)
    flat = [text for row in parts for text in (*row, *[""] * (width - len(row)))]
    counts = np.array([len(row) for row in parts], np.int64)
    return _objects(flat, (*x.shape, width)), counts.reshape(x.shape)


def normalize(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """Without stop words, in upper or lower case; one empty string if nothing is left."""
    (x,), words, case = operands, settings["stopwords"], settings["case"]
    exact = settings["is_case_sensitive"]
    stops = set(words) if exact else {word.lower() for word in words}
    kept = [t for t in x.reshape(-1).tolist() if (t if exact else t.lower()) not in stops]
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case, str)
    texts = [change(text) for text in kept] or [""]
    return (_objects(texts, (*x.shape[:-1], len(texts))),)


def full_match(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """Whether each string as a whole matches a regular expression."""
    (x,) = operands
    matcher = Matcher(Automaton(**settings))
    found = [matcher.matches(text) for text in x.reshape(-1).tolist()]
    return (np.array(found, bool).reshape(x.shape),)


def to_numbers(operands: Sequence[Array], settings: Settings) -> tuple[Array]:
    """Numbers parsed as by C's strtoll, strtoull and strtod.

    ValueError for invalid ones, including trailing characters.  ONNX has decimal numbers, with or
    without an exponent, and INF and NaN in any case.
    """
    (x,) = operands
    return (numbers(x.reshape(-1).tolist(), DTYPES[settings["dtype"]]).reshape(x.shape),)


def numbers(texts: Sequence[str], dtype: DType) -> Array:
    """A vector of ``dtype``; ValueError for an invalid string.

    Integers are parsed in 64 bits, fractions truncated, and then reduced to the lowest bits of
    ``dtype``; floats are parsed as f64, then rounded.
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


_FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "literal": literal,
        "concat": concat,
        "split": split,
        "normalize": normalize,
        "full_match": full_match,
        "to_numbers": to_numbers,
    }
)

TEXT_FUNCTIONS = MappingProxyType({name: _on_texts(f) for name, f in _FUNCTIONS.items()})
