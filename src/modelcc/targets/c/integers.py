"""Integer functions as inline C functions, of scalars and of vectors.

Overflow wraps around (two's complement): computed on unsigned integers, for which C defines it.
Division by 0 gives the dividend (``div``) or 0; shifts by the width or more give 0 or the sign.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from modelcc.ir.types import DType
from modelcc.targets.c.prelude import Prelude, each
from modelcc.targets.c.values import memory_type

_TYPE = re.compile(r"\bT\b")
UNARY = ("neg", "not", "abs", "sign")

_BOTH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "add": ("return (T)((uint64_t)a + (uint64_t)b);",),
        "sub": ("return (T)((uint64_t)a - (uint64_t)b);",),
        "mul": ("return (T)((uint64_t)a * (uint64_t)b);",),
        "and": ("return (T)(a & b);",),
        "or": ("return (T)(a | b);",),
        "xor": ("return (T)(a ^ b);",),
        "neg": ("return (T)(0 - (uint64_t)a);",),
        "not": ("return (T)~a;",),
        "min": ("return a < b ? a : b;",),
        "max": ("return a > b ? a : b;",),
        "sign": ("return (T)((a > 0) - (a < 0));",),
        "shl": ("return (T)((uint64_t)b < BITS ? (uint64_t)a << b : 0);",),
        "dot_halves": (
            "T x = (T)((T)((uint64_t)a << (BITS / 2)) >> (BITS / 2)), y = (T)(a >> (BITS / 2));",
            "T u = (T)((T)((uint64_t)b << (BITS / 2)) >> (BITS / 2)), v = (T)(b >> (BITS / 2));",
            "return (T)((uint64_t)x * (uint64_t)u + (uint64_t)y * (uint64_t)v);",
        ),
        "dot_bytes": (
            "uint64_t sum = 0;",
            "for (int q = 0; q < BITS; q += 8)",
            "    sum += ((uint64_t)a >> q & 255) *",
            "           (uint64_t)(T)((T)((uint64_t)b << (BITS - 8 - q)) >> (BITS - 8));",
            "return (T)sum;",
        ),
    }
)
_SIGNED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **_BOTH,
        "abs": ("return a < 0 ? (T)(0 - (uint64_t)a) : a;",),
        "shr": ("return (T)(a >> ((uint64_t)b < BITS ? b : BITS - 1));",),
        "div": (
            "if (b == 0)", "    return a;", "return b == -1 ? (T)(0 - (uint64_t)a) : (T)(a / b);"
        ),
        "floordiv": (
            "if (b == 0)", "    return 0;", "if (b == -1)", "    return (T)(0 - (uint64_t)a);",
            "return (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)));",
        ),
        "mod": (
            "if (b == 0 || b == -1)", "    return 0;",
            "return (T)(a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0));",
        ),
        "fmod": ("return b == 0 || b == -1 ? 0 : (T)(a % b);",),
        "rounding_high_mul": (
            "const int64_t high = ((int64_t)a * b + (1 << 30)) >> 31;",
            "return high > INT32_MAX ? INT32_MAX : (T)high;",
        ),
        "rounding_high_word": ("return (T)(((int64_t)a * b + ((int64_t)1 << 31)) >> 32);",),
        "high_word": ("return (T)(((int64_t)a * b) >> 32);",),
        "rounding_shr": (
            "const uint32_t mask = ((uint32_t)1 << (b & 31)) - 1, rest = (uint32_t)a & mask;",
            "return (a >> (b & 31)) + (rest > (mask >> 1) + (a < 0));",
        ),
    }
)  # fmt: skip
_UNSIGNED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **_BOTH,
        "abs": ("return a;",),
        "sign": ("return a > 0;",),
        "shr": ("return (T)((uint64_t)b < BITS ? a >> b : 0);",),
        "div": ("return b == 0 ? a : (T)(a / b);",),
        "floordiv": ("return b == 0 ? 0 : (T)(a / b);",),
        "mod": ("return b == 0 ? 0 : (T)(a % b);",),
        "fmod": ("return b == 0 ? 0 : (T)(a % b);",),
    }
)

_VECTOR: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "add": ("return (V)((U)a + (U)b);",),
        "sub": ("return (V)((U)a - (U)b);",),
        "mul": ("return (V)((U)a * (U)b);",),
        "and": ("return a & b;",),
        "or": ("return a | b;",),
        "xor": ("return a ^ b;",),
        "neg": ("return (V)-(U)a;",),
        "not": ("return ~a;",),
        "min": ("M less = (M)(a < b);", "return (V)(((U)a & (U)less) | ((U)b & ~(U)less));"),
        "max": ("M more = (M)(a > b);", "return (V)(((U)a & (U)more) | ((U)b & ~(U)more));"),
        "sign": ("V zero = {0};", "return (V)((U)(M)(a < zero) - (U)(M)(a > zero));"),
        "shl": (
            "U n = (U)b, fits = (U)(n < BITS);",
            "return (V)(((U)a << (n & (BITS - 1))) & fits);",
        ),
        "dot_halves": (
            "V x = (V)((U)a << (BITS / 2)) >> (BITS / 2), y = a >> (BITS / 2);",
            "V u = (V)((U)b << (BITS / 2)) >> (BITS / 2), v = b >> (BITS / 2);",
            "return (V)((U)x * (U)u + (U)y * (U)v);",
        ),
        "dot_bytes": (
            "U sum = {0};",
            "for (int q = 0; q < BITS; q += 8)",
            "    sum += ((U)a >> q & 255) * (U)((V)((U)b << (BITS - 8 - q)) >> (BITS - 8));",
            "return (V)sum;",
        ),
    }
)
_VECTOR_SIGNED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **_VECTOR,
        "abs": ("U sign = (U)(a < 0);", "return (V)(((U)a ^ sign) - sign);"),
        "shr": (
            "U n = (U)b, fits = (U)(n < BITS);",
            "return a >> (V)((n & fits) | (~fits & (BITS - 1)));",
        ),
    }
)
_VECTOR_UNSIGNED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **_VECTOR,
        "abs": ("return a;",),
        "sign": ("V zero = {0};", "return (V)-(U)(M)(a > zero);"),
        "shr": ("U fits = (U)(b < BITS);", "return (a >> (b & (BITS - 1))) & fits;"),
    }
)


class IntegerFunctions:
    """Names of functions, defined in ``prelude``."""

    def __init__(self, prelude: Prelude) -> None:
        self._prelude = prelude

    def name(self, function: str, dtype: DType, lanes: int) -> str | None:
        """The function on ``lanes`` elements; None if it has none."""
        scalars = _SIGNED if dtype.kind == "int" else _UNSIGNED
        if function not in scalars:
            return None
        if lanes == 1:
            return self._scalar(function, dtype, scalars[function])
        vectors = _VECTOR_SIGNED if dtype.kind == "int" else _VECTOR_UNSIGNED
        v = self._prelude.vector(dtype, lanes)
        parameters = f"{v} a" if function in UNARY else f"{v} a, {v} b"
        if function not in vectors:
            one = self._scalar(function, dtype, scalars[function])
            calls = each(lanes, lambda lane: f"{one}(a[{lane}], b[{lane}])")
            lines = [f"return ({v}){calls};"]
        else:
            lines = self._vector_lines(vectors[function], dtype, lanes)
        return self._prelude.function(f"{v}_{function}", v, parameters, lambda: lines)

    def _scalar(self, function: str, dtype: DType, lines: tuple[str, ...]) -> str:
        t = memory_type(dtype)
        parameters = f"{t} a" if function in UNARY else f"{t} a, {t} b"
        spelled = [_TYPE.sub(t, line).replace("BITS", str(dtype.bits)) for line in lines]
        return self._prelude.function(f"{dtype.name}_{function}", t, parameters, lambda: spelled)

    def _vector_lines(self, lines: tuple[str, ...], dtype: DType, lanes: int) -> list[str]:
        names = {
            "V": self._prelude.vector(dtype, lanes),
            "U": self._prelude.bits(dtype.bits, lanes),
            "M": self._prelude.mask(dtype.bits, lanes),
        }
        return [_spelled(line, names, dtype.bits) for line in lines]


def _spelled(line: str, names: Mapping[str, str], bits: int) -> str:
    for letter, name in names.items():
        line = line.replace(f"({letter})", f"({name})")
        if line.startswith(f"{letter} "):
            line = name + line[1:]
    return line.replace("BITS", str(bits))
