"""What instructions without memory do: functions of numbers by name (PTX ISA)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.ir.types import Array

Operation = Callable[..., Array]

_MODIFIERS = frozenset({"rn", "ftz", "sat", "full", "approx", "lo", "NaN", "wrap", "sync", "to"})


def _saturated(values: Array) -> Array:
    return np.where(np.isnan(values), 0.0, np.clip(values, 0.0, 1.0)).astype(values.dtype)


def _fused(a: Array, b: Array, c: Array) -> Array:
    """a b + c, rounded once but for ties of what is not seen of 53 bits."""
    exact = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    return exact.astype(a.dtype)


def _width(values: Array) -> int:
    return values.dtype.itemsize * 8


def _shift_left(a: Array, by: Array) -> Array:
    return np.where(by >= _width(a), 0, a << np.minimum(by, _width(a) - 1).astype(a.dtype))


def _shift_right(a: Array, by: Array) -> Array:
    most = _width(a) - 1
    shifted = a >> np.minimum(by, most).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(by > most, 0, shifted)


def high_product(a: Array, b: Array) -> Array:
    """The upper half of products."""
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
        return (a.astype(wide) * b.astype(wide) >> _width(a)).astype(a.dtype)
    signed = a.dtype.kind == "i"
    x, y = np.broadcast_arrays(a.view(np.uint64), np.asarray(b).view(np.uint64))
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    middle = (x >> shift) * (y & low) + ((x & low) * (y & low) >> shift)
    other = (x & low) * (y >> shift) + (middle & low)
    high = (x >> shift) * (y >> shift) + (middle >> shift) + (other >> shift)
    if not signed:
        return high
    high = high - np.where(a < 0, y, 0) - np.where(b < 0, x, 0)
    return high.astype(np.uint64).view(np.int64)


def _field(a: Array, start: Array, count: Array) -> Array:
    """Bits from ``start`` on at the lower end, behind copies of the uppermost one if numbers are
    signed."""
    kept = np.minimum(count & 0xFF, _width(a)).astype(a.dtype)
    words = a.view(f"u{a.itemsize}")
    shifted = _shift_right(words, start & 0xFF)
    upward = (_width(a) - kept).astype(words.dtype)
    return _shift_right(_shift_left(shifted.astype(words.dtype), upward).view(a.dtype), upward)


def _permuted(a: Array, b: Array, choice: Array) -> Array:
    both = np.stack([(v >> (8 * n)) & 0xFF for v in (a, b) for n in range(4)], axis=-1)
    found = np.zeros_like(a)
    for n in range(4):
        nibble = np.broadcast_to((choice >> (4 * n)) & 0xF, a.shape)
        byte = np.take_along_axis(both, (nibble & 7)[:, None].astype(np.int64), axis=-1)[:, 0]
        sign = np.where(byte & 0x80, 0xFF, 0).astype(a.dtype)
        found = found | (np.where(nibble & 8, sign, byte).astype(a.dtype) << (8 * n))
    return found


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f" or a.dtype.kind == "V":
        return a / b
    safe = np.where(b == 0, 1, b)
    quotient = np.abs(a) // np.abs(safe) if a.dtype.kind == "u" else None
    if quotient is None:
        quotient = (np.sign(a) * np.sign(safe)) * (np.abs(a) // np.abs(safe))
    return np.where(b == 0, ~a.dtype.type(0), quotient)


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a - _quotient(a, b) * b)


def _leading_zeros(a: Array) -> Array:
    found = np.full(a.shape, _width(a), np.uint32)
    for bit in range(_width(a)):
        found = np.where(a >> a.dtype.type(bit) & 1, _width(a) - 1 - bit, found)
    return found


def _ones(a: Array) -> Array:
    found = np.zeros(a.shape, np.uint32)
    for bit in range(_width(a)):
        found += (a >> a.dtype.type(bit) & 1).astype(np.uint32)
    return found


def _reversed(a: Array) -> Array:
    found, most = np.zeros_like(a), _width(a) - 1
    for bit in range(_width(a)):
        found |= (a >> a.dtype.type(bit) & 1) << a.dtype.type(most - bit)
    return found


def _is_float(values: Array) -> bool:
    return values.dtype.kind not in "iub"


def _minimum(nan: bool) -> Operation:
    return lambda a, b: np.minimum(a, b) if nan or not _is_float(a) else np.fmin(a, b)


def _maximum(nan: bool) -> Operation:
    return lambda a, b: np.maximum(a, b) if nan or not _is_float(a) else np.fmax(a, b)


def _exact(function: Operation) -> Operation:
    return lambda a: function(a.astype(np.float64)).astype(a.dtype)


_SIMPLE: Mapping[str, Operation] = MappingProxyType(
    {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "mad": lambda a, b, c: a * b + c, "fma": _fused, "div": _quotient, "rem": _remainder,
        "neg": lambda a: -a, "abs": np.abs, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b, "not": lambda a: ~a, "shl": _shift_left, "shr": _shift_right,
        "bfe": _field, "prmt": _permuted, "rcp": _exact(lambda a: 1 / a),
        "sqrt": _exact(np.sqrt), "rsqrt": _exact(lambda a: 1 / np.sqrt(a)), "ex2": _exact(np.exp2),
        "lg2": _exact(np.log2), "sin": _exact(np.sin), "cos": _exact(np.cos),
        "tanh": _exact(np.tanh), "copysign": lambda a, b: np.copysign(b, a),
        "clz": _leading_zeros, "popc": _ones, "brev": _reversed,
    }
)  # fmt: skip


def operation(parts: Sequence[str]) -> tuple[Operation, str] | None:
    """What an instruction of this name computes, of which type; None if it is another kind."""
    name, modifiers, kind = parts[0], parts[1:-1], parts[-1]
    if name in ("min", "max"):
        return (_minimum if name == "min" else _maximum)("NaN" in modifiers), kind
    if name in ("mul", "mad") and modifiers and modifiers[0] in ("hi", "wide"):
        return _products(name, modifiers[0], kind), kind
    simple = _SIMPLE.get(name)
    if simple is None or not set(modifiers) <= _MODIFIERS:
        return None
    if "sat" in modifiers:
        return lambda *given: _saturated(simple(*given)), kind
    return simple, kind


def _products(name: str, which: str, kind: str) -> Operation:
    if which == "hi":
        return high_product if name == "mul" else lambda a, b, c: high_product(a, b) + c
    wide = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 4}")
    if name == "mul":
        return lambda a, b: a.astype(wide) * b.astype(wide)
    return lambda a, b, c: a.astype(wide) * b.astype(wide) + c


_ORDERED: Mapping[str, Operation] = MappingProxyType(
    {
        "eq": lambda a, b: a == b, "ne": lambda a, b: (a != b) & _are_numbers(a, b),
        "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
        "num": lambda a, b: _are_numbers(a, b), "nan": lambda a, b: ~_are_numbers(a, b),
    }
)  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _are_numbers(a: Array, b: Array) -> Any:
    return ~(_is_nan(a) | _is_nan(b))


def _is_nan(values: Array) -> Any:
    return values != values


def comparison(name: str) -> Operation:
    """As ``setp`` calls it; ``u`` at its end holds of what is no number, too."""
    name = _UNSIGNED.get(name, name)
    if name in _ORDERED:
        return _ORDERED[name]
    ordered = _ORDERED[name.removesuffix("u")]
    return lambda a, b: ordered(a, b) | ~_are_numbers(a, b)


_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
)


def conversion(parts: Sequence[str]) -> Operation | None:
    """From numbers of the last type of the name to the one before; None if it is not a conversion
    of single numbers."""
    modifiers, to, source = parts[1:-2], parts[-2], parts[-1]
    rounding = next((_ROUNDINGS[m] for m in modifiers if m in _ROUNDINGS), None)
    if to[0] in "sub" and to[:2] != "bf":
        return _to_integer(to, rounding, "sat" in modifiers)
    if to == "tf32":
        return _to_tf32
    if not set(modifiers) <= {"rn", "ftz", "sat", "satfinite", "rni", "rzi", "rmi", "rpi", "rna"}:
        return None
    if rounding:
        return lambda a: rounding(a.astype(np.float64))
    if "sat" in modifiers:
        return lambda a: _saturated(a.astype(np.float32))
    del source
    return lambda a: a


def _to_integer(to: str, rounding: Callable[[Array], Array] | None, sat: bool) -> Operation:
    kind = np.dtype(f"{'i' if to[0] == 's' else 'u'}{int(to[1:]) // 8}")
    ends = np.iinfo(kind)

    def convert(a: Array) -> Array:
        if _is_float(a):
            exact = (rounding or np.trunc)(a.astype(np.float64))
            kept = np.clip(np.where(np.isnan(exact), 0.0, exact), float(ends.min), float(ends.max))
            found = kept.astype(kind)
            return np.where(exact >= float(ends.max), ends.max, found).astype(kind)
        return np.clip(a, ends.min, ends.max).astype(kind) if sat else a.astype(kind)

    return convert


def _to_tf32(a: Array) -> Array:
    """The nearest number of 10 bits, ties away from zero."""
    bits = a.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(a), rounded, a)
