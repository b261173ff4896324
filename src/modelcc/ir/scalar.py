"""The closed vocabulary of scalar functions, shared by the tensor and the loop level.

Each function has a name, an arity, NumPy semantics (used by both interpreters) and a result rule:
``same`` as its operands or ``bool``.  Emitters print every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import ml_dtypes
import numpy as np

from modelcc.ir import special
from modelcc.ir.types import BOOL, I32, Array, DType

Domain = Literal["float", "int", "i32", "bool", "number", "any"]


@dataclass(frozen=True)
class ScalarFunction:
    """A scalar function: ``result`` gives its dtype, ``cost`` its rough weight (1 = one add)."""

    name: str
    arity: int
    numpy: Callable[..., Array]
    result: Literal["same", "bool"] = "same"
    domain: Domain = "number"
    cost: int = 1
    symbol: str | None = None

    def takes(self, dtype: DType) -> bool:
        """Whether it is defined on ``dtype``."""
        match self.domain:
            case "float":
                return dtype.is_float
            case "int":
                return dtype.is_integer
            case "i32":
                return dtype == I32
            case "bool":
                return dtype == BOOL
            case "number":
                return dtype.is_float or dtype.is_integer or dtype.kind == "complex"
            case "any":
                return True

    def result_of(self, dtype: DType) -> DType:
        """The dtype of its result on ``dtype``."""
        return BOOL if self.result == "bool" else dtype


def _truncated_divide(a: Array, b: Array) -> Array:
    """Integers round towards zero, and division by zero gives the dividend."""
    if np.issubdtype(np.asarray(a).dtype, np.integer):
        divisor: Array = np.where(np.equal(b, 0), 1, b).astype(np.asarray(b).dtype)
        quotient: Array = np.floor_divide(a, divisor)
        exact = np.equal(quotient * divisor, a)
        negative = np.not_equal(np.less(a, 0), np.less(divisor, 0))
        return (quotient + (negative & ~exact)).astype(np.asarray(a).dtype)
    return np.divide(a, b)


def _dot_halves(a: Array, b: Array) -> Array:
    """The product of the lower halves of the bits, as separate numbers, plus that of the upper
    ones."""
    half = np.asarray(a).dtype.type(np.asarray(a).dtype.itemsize * 4)
    low = [np.right_shift(np.left_shift(x, half), half) for x in (a, b)]
    high = [np.right_shift(x, half) for x in (a, b)]
    return np.add(np.multiply(*low), np.multiply(*high))


def _dot_bytes(a: Array, b: Array) -> Array:
    """The sum of the products of bytes: unsigned ones of ``a``, and those of ``b`` with the sign of
    its type."""
    own = np.asarray(a).dtype
    last = own.type(8 * (own.itemsize - 1))
    low = np.asarray(255).astype(own)
    total: Array = np.zeros_like(a)
    for shift in range(0, 8 * own.itemsize, 8):
        left = np.bitwise_and(np.right_shift(a, own.type(shift)), low)
        right = np.right_shift(np.left_shift(b, own.type(last - shift)), last)
        total = np.add(total, np.multiply(left, right))
    return total


def _rounding_high_mul(a: Array, b: Array) -> Array:
    """``a * b / 2**31``, rounded, halves up, and saturated (SQRDMULH; gemmlowp's
    SaturatingRoundingDoublingHighMul)."""
    product = np.multiply(np.asarray(a, np.int64), np.asarray(b, np.int64))
    return np.minimum((product + (1 << 30)) >> 31, (1 << 31) - 1).astype(np.int32)


def _rounding_high_word(a: Array, b: Array) -> Array:
    """``a * b / 2**32``, rounded, halves up (SMMULR)."""
    product = np.multiply(np.asarray(a, np.int64), np.asarray(b, np.int64))
    return ((product + (1 << 31)) >> 32).astype(np.int32)


def _high_word(a: Array, b: Array) -> Array:
    """``a * b / 2**32``, rounded down (the upper half of the product)."""
    product = np.multiply(np.asarray(a, np.int64), np.asarray(b, np.int64))
    return (product >> 32).astype(np.int32)


def _rounding_shr(x: Array, bits: Array) -> Array:
    """``x / 2**(bits mod 32)``, rounded, halves away from 0 (gemmlowp's RoundingDivideByPOT)."""
    wide, bits = np.asarray(x, np.int64), np.asarray(bits, np.int64) & 31
    half = (1 << bits) >> 1
    return ((wide + half - ((wide < 0) & (half > 0))) >> bits).astype(np.int32)


_F = ScalarFunction
FUNCTIONS: Mapping[str, ScalarFunction] = MappingProxyType(
    {
        f.name: f
        for f in (
            _F("add", 2, np.add, symbol="+"),
            _F("sub", 2, np.subtract, symbol="-"),
            _F("mul", 2, np.multiply, symbol="*"),
            _F("div", 2, _truncated_divide, cost=4, symbol="/"),
            _F("floordiv", 2, np.floor_divide, domain="int", cost=8),
            _F("mod", 2, np.mod, cost=8),
            _F("fmod", 2, np.fmod, cost=8),
            _F("pow", 2, special.power, cost=40),
            _F("min", 2, np.minimum),
            _F("max", 2, np.maximum),
            _F("minimum", 2, np.minimum, domain="float", cost=3),
            _F("maximum", 2, np.maximum, domain="float", cost=3),
            _F("neg", 1, np.negative),
            _F("abs", 1, np.abs),
            _F("sign", 1, np.sign, cost=2),
            _F("sqrt", 1, np.sqrt, domain="float", cost=4),
            _F("rsqrt", 1, special.rsqrt, domain="float", cost=6),
            _F("reciprocal", 1, np.reciprocal, domain="float", cost=4),
            _F("exp", 1, np.exp, domain="float", cost=12),
            _F("exp2", 1, np.exp2, domain="float", cost=12),
            _F("expm1", 1, np.expm1, domain="float", cost=16),
            _F("log", 1, np.log, domain="float", cost=14),
            _F("log1p", 1, np.log1p, domain="float", cost=16),
            _F("sin", 1, np.sin, domain="float", cost=20),
            _F("cos", 1, np.cos, domain="float", cost=20),
            _F("tan", 1, np.tan, domain="float", cost=30),
            _F("asin", 1, np.arcsin, domain="float", cost=20),
            _F("acos", 1, np.arccos, domain="float", cost=20),
            _F("atan", 1, np.arctan, domain="float", cost=20),
            _F("sinh", 1, np.sinh, domain="float", cost=20),
            _F("cosh", 1, np.cosh, domain="float", cost=20),
            _F("tanh", 1, np.tanh, domain="float", cost=14),
            _F("asinh", 1, np.arcsinh, domain="float", cost=20),
            _F("acosh", 1, np.arccosh, domain="float", cost=20),
            _F("atanh", 1, np.arctanh, domain="float", cost=20),
            _F("erf", 1, special.erf, domain="float", cost=14),
            _F("sigmoid", 1, special.sigmoid, domain="float", cost=14),
            _F("floor", 1, np.floor, domain="float"),
            _F("ceil", 1, np.ceil, domain="float"),
            _F("trunc", 1, np.trunc, domain="float"),
            _F("round", 1, np.rint, domain="float"),
            _F("isnan", 1, np.isnan, result="bool", domain="float"),
            _F("isinf", 1, np.isinf, result="bool", domain="float"),
            _F("eq", 2, np.equal, result="bool", domain="any", symbol="=="),
            _F("ne", 2, np.not_equal, result="bool", domain="any", symbol="!="),
            _F("lt", 2, np.less, result="bool", symbol="<"),
            _F("le", 2, np.less_equal, result="bool", symbol="<="),
            _F("gt", 2, np.greater, result="bool", symbol=">"),
            _F("ge", 2, np.greater_equal, result="bool", symbol=">="),
            _F("and", 2, np.bitwise_and, domain="any"),
            _F("or", 2, np.bitwise_or, domain="any"),
            _F("xor", 2, np.bitwise_xor, domain="any"),
            _F("not", 1, np.invert, domain="any"),
            _F("shl", 2, np.left_shift, domain="int"),
            _F("shr", 2, np.right_shift, domain="int"),
            _F("dot_halves", 2, _dot_halves, domain="int", cost=2),
            _F("dot_bytes", 2, _dot_bytes, domain="int", cost=2),
            _F("rounding_high_mul", 2, _rounding_high_mul, domain="i32", cost=3),
            _F("rounding_high_word", 2, _rounding_high_word, domain="i32", cost=2),
            _F("high_word", 2, _high_word, domain="i32", cost=2),
            _F("rounding_shr", 2, _rounding_shr, domain="i32", cost=4),
        )
    }
)

WORD_DOTS = ("dot_halves", "dot_bytes")
"""Functions that multiply numbers packed into words, and add the products."""

Combine = Literal["sum", "prod", "max", "min", "maximum", "minimum", "and", "or"]
COMBINE_FUNCTION: Mapping[Combine, str] = MappingProxyType(
    {
        "sum": "add",
        "prod": "mul",
        **{name: name for name in ("max", "min", "maximum", "minimum", "and", "or")},
    }
)
"""Functions that combine two values.  Of floats ``max`` and ``min`` may lose a NaN; ``maximum`` and
``minimum`` (as in IEEE 754-2019, but for the order of zeros) propagate it."""

MAY_LOSE_NAN: Mapping[str, str] = MappingProxyType({"maximum": "max", "minimum": "min"})
"""Extremes that propagate NaN, and their counterparts that may lose it."""


def identity(combine: Combine, dtype: DType) -> float | int | bool:
    """The identity element of ``combine``."""
    match combine:
        case "sum":
            return 0.0 if dtype.is_float else 0
        case "prod":
            return 1.0 if dtype.is_float else 1
        case "and":
            return True if dtype == BOOL else -1
        case "or":
            return False if dtype == BOOL else 0
        case "max" | "maximum":
            return _limits(dtype)[0]
        case "min" | "minimum":
            return _limits(dtype)[1]


def _limits(dtype: DType) -> tuple[float | int | bool, float | int | bool]:
    """The least and the greatest value, infinities included."""
    if dtype == BOOL:
        return False, True
    if dtype.is_integer:
        info = ml_dtypes.iinfo(dtype.numpy)
        return int(info.min), int(info.max)
    if np.isinf(np.array(np.inf, dtype.numpy)):
        return -np.inf, np.inf
    greatest = float(ml_dtypes.finfo(dtype.numpy).max)  # pyright: ignore[reportUnknownArgumentType]
    return -greatest, greatest
