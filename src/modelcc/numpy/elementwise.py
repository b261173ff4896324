"""Elementwise functions under NumPy's names."""

from __future__ import annotations

import math
from typing import Any, cast

import ml_dtypes

from modelcc.ir.types import BOOL
from modelcc.numpy.arrays import asarray
from modelcc.numpy.pairs import where
from modelcc.ops.comparison import IsInf
from modelcc.tensor.promotion import is_complex
from modelcc.tensor.tensor import Tensor


def exp(x: Any) -> Tensor:
    """e to the power of each element."""
    return asarray(x).exp()


def exp2(x: Any) -> Tensor:
    """2 to the power of each element."""
    return asarray(x).exp2()


def expm1(x: Any) -> Tensor:
    """``exp(x) - 1``, accurate near 0."""
    return asarray(x).expm1()


def log(x: Any) -> Tensor:
    """The natural logarithm."""
    return asarray(x).log()


def log1p(x: Any) -> Tensor:
    """``log(1 + x)``, accurate near 0."""
    return asarray(x).log1p()


def log2(x: Any) -> Tensor:
    """The logarithm to base 2."""
    return asarray(x).log2()


def log10(x: Any) -> Tensor:
    """The logarithm to base 10."""
    return asarray(x).log10()


def sqrt(x: Any) -> Tensor:
    """The square root; NaN below 0."""
    return asarray(x).sqrt()


def reciprocal(x: Any) -> Tensor:
    """``1 / x``."""
    return asarray(x).reciprocal()


def square(x: Any) -> Tensor:
    """The square."""
    return asarray(x).square()


def sin(x: Any) -> Tensor:
    """The sine."""
    return asarray(x).sin()


def cos(x: Any) -> Tensor:
    """The cosine."""
    return asarray(x).cos()


def tan(x: Any) -> Tensor:
    """The tangent."""
    return asarray(x).tan()


def arcsin(x: Any) -> Tensor:
    """The inverse sine."""
    return asarray(x).arcsin()


def arccos(x: Any) -> Tensor:
    """The inverse cosine."""
    return asarray(x).arccos()


def arctan(x: Any) -> Tensor:
    """The inverse tangent."""
    return asarray(x).arctan()


def sinh(x: Any) -> Tensor:
    """The hyperbolic sine."""
    return asarray(x).sinh()


def cosh(x: Any) -> Tensor:
    """The hyperbolic cosine."""
    return asarray(x).cosh()


def tanh(x: Any) -> Tensor:
    """The hyperbolic tangent."""
    return asarray(x).tanh()


def arcsinh(x: Any) -> Tensor:
    """The inverse hyperbolic sine."""
    return asarray(x).arcsinh()


def arccosh(x: Any) -> Tensor:
    """The inverse hyperbolic cosine."""
    return asarray(x).arccosh()


def arctanh(x: Any) -> Tensor:
    """The inverse hyperbolic tangent."""
    return asarray(x).arctanh()


def abs(x: Any) -> Tensor:
    """The magnitude."""
    return asarray(x).abs()


def sign(x: Any) -> Tensor:
    """-1, 0 or 1."""
    return asarray(x).sign()


def floor(x: Any) -> Tensor:
    """The greatest integer not above x."""
    return asarray(x).floor()


def ceil(x: Any) -> Tensor:
    """The least integer not below x."""
    return asarray(x).ceil()


def trunc(x: Any) -> Tensor:
    """x rounded towards 0."""
    return asarray(x).trunc()


def isnan(x: Any) -> Tensor:
    """Where it is NaN."""
    return asarray(x).isnan()


def isinf(x: Any) -> Tensor:
    """Where it is infinite, of either sign."""
    return asarray(x).isinf()


def isfinite(x: Any) -> Tensor:
    """Where it is neither infinite nor NaN."""
    return asarray(x).isfinite()


def rint(x: Any) -> Tensor:
    """The nearest integer, as a float; halves to even."""
    return asarray(x).floats().round()


def round(a: Any, decimals: int = 0) -> Tensor:
    """Rounded to ``decimals``, halves to even."""
    return asarray(a).round(decimals)


def negative(x: Any) -> Tensor:
    """``-x``."""
    return -asarray(x)


def positive(x: Any) -> Tensor:
    """``x``."""
    return asarray(x)


def cbrt(x: Any) -> Tensor:
    """The cube root."""
    value = asarray(x).floats()
    return value.sign() * value.abs() ** (1 / 3)


def deg2rad(x: Any) -> Tensor:
    """Degrees as radians."""
    return asarray(x).floats() * (math.pi / 180)


def rad2deg(x: Any) -> Tensor:
    """Radians as degrees."""
    return asarray(x).floats() * (180 / math.pi)


def clip(a: Any, a_min: Any = None, a_max: Any = None) -> Tensor:
    """Between ``a_min`` and ``a_max``, None for no bound."""
    return asarray(a).clip(a_min, a_max)


def logical_not(x: Any) -> Tensor:
    """Where it is 0."""
    return ~asarray(x).cast(BOOL)


def bitwise_not(x: Any) -> Tensor:
    """The bitwise complement."""
    return ~asarray(x)


def isneginf(x: Any) -> Tensor:
    """Where it is negative infinity."""
    value = asarray(x).floats()
    return value.result(IsInf(True, False), value)


def isposinf(x: Any) -> Tensor:
    """Where it is positive infinity."""
    value = asarray(x).floats()
    return value.result(IsInf(False, True), value)


def nan_to_num(x: Any, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    """NaN and infinities replaced by numbers: by default 0, the maximum and the minimum."""
    value = asarray(x)
    if is_complex(value):
        whole: Any = value
        return whole.paired(*(nan_to_num(p, nan, posinf, neginf) for p in (value.real, value.imag)))
    if not value.dtype.is_float:
        return value
    limits: Any = cast(Any, ml_dtypes.finfo)(value.dtype.numpy)
    most = float(limits.max)
    found = where(value.isnan(), nan, value)
    found = where(isposinf(value), most if posinf is None else posinf, found)
    return where(isneginf(value), -most if neginf is None else neginf, found)


def sigmoid(x: Any) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return asarray(x).sigmoid()


def astype(x: Any, dtype: Any) -> Tensor:
    """The same values as ``dtype``."""
    return asarray(x).astype(dtype)
