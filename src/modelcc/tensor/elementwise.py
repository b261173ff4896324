"""Functions of each element: roots, exponentials, trigonometry, rounding, bounds."""

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


@lru_cache(256)
def float_type(dtype: DType) -> DType:
    """The type of ``exp`` of ``dtype``: as NumPy has it, floats keep theirs."""
    if dtype.is_float:
        return dtype
    return dtype_of(np.exp(np.zeros((), dtype.numpy)).dtype) if dtype.bits >= 8 else F32


class TensorElementwise(TensorOperators):
    """Functions of each element by itself."""

    __slots__ = ()

    def of_floats(self, op: Op) -> Self:
        """``op`` of the elements as floats."""
        x = self.floats()
        return x.result(op, x)

    def floats(self) -> Self:
        """The same values as floats, which may be what they are."""
        return self.cast(float_type(self.type.dtype))

    def exp(self) -> Self:
        """e to the power of each element."""
        return self.of_floats(Exp())

    def exp2(self) -> Self:
        """2 to the power of each element."""
        return self.of_floats(Exp2())

    def expm1(self) -> Self:
        """``exp(x) - 1``, exact near 0."""
        return self.of_floats(Expm1())

    def log(self) -> Self:
        """The natural logarithm."""
        return self.of_floats(Log())

    def log1p(self) -> Self:
        """``log(1 + x)``, exact near 0."""
        return self.of_floats(Log1p())

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self.log() * float(1 / np.log(2))

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self.log() * float(1 / np.log(10))

    def sqrt(self) -> Self:
        """The square root; NaN below 0."""
        return self.of_floats(Sqrt())

    def rsqrt(self) -> Self:
        """``1 / sqrt(x)``."""
        return self.of_floats(Rsqrt())

    def reciprocal(self) -> Self:
        """``1 / x``."""
        return self.of_floats(Reciprocal())

    def square(self) -> Self:
        """The square."""
        return self * self

    def sigmoid(self) -> Self:
        """``1 / (1 + exp(-x))``."""
        return self.of_floats(Sigmoid())

    def erf(self) -> Self:
        """The error function."""
        return self.of_floats(Erf())

    def sin(self) -> Self:
        """The sine."""
        return self.of_floats(Sin())

    def cos(self) -> Self:
        """The cosine."""
        return self.of_floats(Cos())

    def tan(self) -> Self:
        """The tangent."""
        return self.of_floats(Tan())

    def arcsin(self) -> Self:
        """The inverse sine."""
        return self.of_floats(Asin())

    def arccos(self) -> Self:
        """The inverse cosine."""
        return self.of_floats(Acos())

    def arctan(self) -> Self:
        """The inverse tangent."""
        return self.of_floats(Atan())

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        return self.of_floats(Sinh())

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return self.of_floats(Cosh())

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self.of_floats(Tanh())

    def arcsinh(self) -> Self:
        """The inverse hyperbolic sine."""
        return self.of_floats(Asinh())

    def arccosh(self) -> Self:
        """The inverse hyperbolic cosine."""
        return self.of_floats(Acosh())

    def arctanh(self) -> Self:
        """The inverse hyperbolic tangent."""
        return self.of_floats(Atanh())

    def abs(self) -> Self:
        """The magnitude."""
        return self if self.type.dtype == BOOL else self.result(Abs(), self)

    def sign(self) -> Self:
        """-1, 0 or 1."""
        return self.result(Sign(), self)

    def _stepped(self, op: Op) -> Self:
        """``op`` of floats; whole numbers are what they are."""
        return self.result(op, self) if self.type.dtype.is_float else self

    def floor(self) -> Self:
        """The greatest whole number not above x."""
        return self._stepped(Floor())

    def ceil(self) -> Self:
        """The least whole number not below x."""
        return self._stepped(Ceil())

    def trunc(self) -> Self:
        """The next whole number towards 0."""
        if not self.type.dtype.is_float:
            return self
        return self.result(Floor(), self.abs()) * self.sign()

    def round(self, decimals: int = 0) -> Self:
        """To so many decimals, halves to the even neighbour."""
        if not decimals:
            return self._stepped(Round())
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
        """Between ``min`` and ``max``, None for no bound."""
        found = self if min is None else self.maximum(min)
        return found if max is None else found.minimum(max)

    def isnan(self) -> Self:
        """Where it is not a number."""
        return self.result(IsNaN(), self.floats())

    def isinf(self) -> Self:
        """Where it is infinite, of either sign."""
        return self.result(IsInf(), self.floats())

    def isfinite(self) -> Self:
        """Where it is neither infinite nor NaN."""
        return ~(self.isnan() | self.isinf())
