"""Elementwise functions: roots, exponentials, trigonometry, rounding, bounds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Self

import numpy as np

from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, F32, DType, dtype_of
from modelcc.ops.elementwise import (
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp,
    Exp2,
    Expm1,
    Floor,
    IsInf,
    IsNaN,
    Log,
    Log1p,
    Max,
    Min,
    Reciprocal,
    Round,
    Rsqrt,
    Sigmoid,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
)
from modelcc.tensor.operators import TensorOperators

EXP, EXP2, EXPM1, LOG, LOG1P, SQRT = Exp(), Exp2(), Expm1(), Log(), Log1p(), Sqrt()
RSQRT, RECIPROCAL, SIGMOID, ERF, SIN, COS = Rsqrt(), Reciprocal(), Sigmoid(), Erf(), Sin(), Cos()
TAN, ASIN, ACOS, ATAN, SINH, COSH = Tan(), Asin(), Acos(), Atan(), Sinh(), Cosh()
TANH, ASINH, ACOSH, ATANH, ABS, SIGN = Tanh(), Asinh(), Acosh(), Atanh(), Abs(), Sign()
FLOOR, CEIL, ROUND, ISNAN, ISINF = Floor(), Ceil(), Round(), IsNaN(), IsInf()


@lru_cache(256)
def float_type(dtype: DType) -> DType:
    """The type of ``exp`` of ``dtype``, as in NumPy: floats keep theirs."""
    if dtype.is_float:
        return dtype
    return dtype_of(np.exp(np.zeros((), dtype.numpy)).dtype) if dtype.bits >= 8 else F32


class TensorElementwise(TensorOperators):
    """Elementwise functions."""

    __slots__ = ()

    def of_floats(self, op: Op) -> Self:
        """``op`` of the elements as floats."""
        return (self if self.type.dtype.kind == "float" else self.floats()).of_elements(op)

    def floats(self) -> Self:
        """The same values as floats, unchanged if they are."""
        return self.cast(float_type(self.type.dtype))

    def exp(self) -> Self:
        """e to the power of each element."""
        return self.of_floats(EXP)

    def exp2(self) -> Self:
        """2 to the power of each element."""
        return self.of_floats(EXP2)

    def expm1(self) -> Self:
        """``exp(x) - 1``, accurate near 0."""
        return self.of_floats(EXPM1)

    def log(self) -> Self:
        """The natural logarithm."""
        return self.of_floats(LOG)

    def log1p(self) -> Self:
        """``log(1 + x)``, accurate near 0."""
        return self.of_floats(LOG1P)

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self.log() * float(1 / np.log(2))

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self.log() * float(1 / np.log(10))

    def sqrt(self) -> Self:
        """The square root; NaN below 0."""
        return self.of_floats(SQRT)

    def rsqrt(self) -> Self:
        """``1 / sqrt(x)``."""
        return self.of_floats(RSQRT)

    def reciprocal(self) -> Self:
        """``1 / x``."""
        return self.of_floats(RECIPROCAL)

    def square(self) -> Self:
        """The square."""
        x = self.counted()
        return x * x

    def sigmoid(self) -> Self:
        """``1 / (1 + exp(-x))``."""
        return self.of_floats(SIGMOID)

    def erf(self) -> Self:
        """The error function."""
        return self.of_floats(ERF)

    def sin(self) -> Self:
        """The sine."""
        return self.of_floats(SIN)

    def cos(self) -> Self:
        """The cosine."""
        return self.of_floats(COS)

    def tan(self) -> Self:
        """The tangent."""
        return self.of_floats(TAN)

    def arcsin(self) -> Self:
        """The inverse sine."""
        return self.of_floats(ASIN)

    def arccos(self) -> Self:
        """The inverse cosine."""
        return self.of_floats(ACOS)

    def arctan(self) -> Self:
        """The inverse tangent."""
        return self.of_floats(ATAN)

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        return self.of_floats(SINH)

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return self.of_floats(COSH)

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self.of_floats(TANH)

    def arcsinh(self) -> Self:
        """The inverse hyperbolic sine."""
        return self.of_floats(ASINH)

    def arccosh(self) -> Self:
        """The inverse hyperbolic cosine."""
        return self.of_floats(ACOSH)

    def arctanh(self) -> Self:
        """The inverse hyperbolic tangent."""
        return self.of_floats(ATANH)

    def abs(self) -> Self:
        """The magnitude."""
        return self if self.type.dtype == BOOL else self.of_elements(ABS)

    def sign(self) -> Self:
        """-1, 0 or 1."""
        return self.of_elements(SIGN)

    def _stepped(self, op: Op) -> Self:
        """``op`` of floats; integers are unchanged."""
        return self.of_elements(op) if self.type.dtype.is_float else self

    def floor(self) -> Self:
        """The greatest integer not above x."""
        return self._stepped(FLOOR)

    def ceil(self) -> Self:
        """The least integer not below x."""
        return self._stepped(CEIL)

    def trunc(self) -> Self:
        """The nearest integer towards 0."""
        if not self.type.dtype.is_float:
            return self
        return self.result(FLOOR, self.abs()) * self.sign()

    def round(self, decimals: int = 0) -> Self:
        """Rounded to ``decimals`` decimals, halves to even."""
        if not decimals:
            return self._stepped(ROUND)
        if not self.type.dtype.is_float:
            scale = 10**-decimals if decimals < 0 else 1
            return (self.floats() / scale).round().cast(self.type.dtype) * scale
        scaled = self * 10.0**decimals if decimals > 0 else self / 10.0**-decimals
        whole = scaled.round()
        return whole / 10.0**decimals if decimals > 0 else whole * 10.0**-decimals

    def maximum(self, other: Any) -> Self:
        """The greater of both, NaN if one is."""
        return self.extreme(Max(), other)

    def minimum(self, other: Any) -> Self:
        """The lesser of both, NaN if one is."""
        return self.extreme(Min(), other)

    def extreme(self, op: Op, other: Any) -> Self:
        """``op`` of both in their common type; bools are compared as numbers."""
        a, b = self.alike(other)
        if a.type.dtype == BOOL:
            return a | b if isinstance(op, Max) else a & b
        return a.result(op, a, b)

    def clip(self, min: Any = None, max: Any = None) -> Self:
        """Clamped to ``min`` and ``max``, None for no bound."""
        found = self if min is None else self.maximum(min)
        return found if max is None else found.minimum(max)

    def isnan(self) -> Self:
        """Where it is NaN."""
        return self.result(ISNAN, self.floats())

    def isinf(self) -> Self:
        """Where it is infinite, of either sign."""
        return self.result(ISINF, self.floats())

    def isfinite(self) -> Self:
        """Where it is neither infinite nor NaN."""
        return ~(self.isnan() | self.isinf())
