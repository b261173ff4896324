"""Elementwise functions of analysis: powers, exponentials, trigonometry."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from modelcc.ir import special
from modelcc.ir.narrowing import ELEMENTS
from modelcc.ir.op import Op
from modelcc.ir.quantized_form import ROUNDED, QuantizedForm
from modelcc.ir.types import I64, Array
from modelcc.ops.arithmetic import (
    Differentiable,
    Value,
    binary_samples,
    of,
    typed_samples,
    unary_samples,
)
from modelcc.ops.samples import sample


@dataclass(frozen=True)
class Exp(Differentiable):
    """e to the power of x."""

    domain, function, numpy = "float", "exp", np.exp
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * y,)


@dataclass(frozen=True)
class Exp2(Differentiable):
    """2 to the power of x."""

    domain, function, numpy = "float", "exp2", np.exp2
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * y * math.log(2.0),)


@dataclass(frozen=True)
class Log(Differentiable):
    """The natural logarithm."""

    domain, function, numpy = "float", "log", np.log
    samples = unary_samples(0.25, 4.0)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy / x,)


@dataclass(frozen=True)
class Expm1(Differentiable):
    """``exp(x) - 1``, exact near zero."""

    domain, function, numpy = "float", "expm1", np.expm1
    samples = (*unary_samples(), sample(np.array([1e-9, -1e-9, -80, 0], np.float32)))

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * (y + 1.0),)


@dataclass(frozen=True)
class Log1p(Differentiable):
    """``log(1 + x)``, exact near zero."""

    domain, function, numpy = "float", "log1p", np.log1p
    samples = (*unary_samples(-0.75, 4.0), sample(np.array([1e-9, -1e-9, 3e8, 0], np.float32)))

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy / (x + 1.0),)


@dataclass(frozen=True)
class Sqrt(Differentiable):
    """The square root."""

    domain, function, numpy = "float", "sqrt", np.sqrt
    samples = unary_samples(0.25, 4.0)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (0.5 * dy / y,)


@dataclass(frozen=True)
class Rsqrt(Differentiable):
    """``1 / sqrt(x)``."""

    domain, function, numpy = "float", "rsqrt", special.rsqrt
    samples = unary_samples(0.25, 4.0)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (-0.5 * dy * y / x,)


@dataclass(frozen=True)
class Reciprocal(Differentiable):
    """``1 / x``."""

    domain, function = "float", "reciprocal"
    samples = unary_samples(0.25, 4.0)

    def evaluate(self, x: Array) -> Array:
        return 1 / x

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (-dy * y * y,)


@dataclass(frozen=True)
class Erf(Differentiable):
    """The Gauss error function."""

    narrowing = ELEMENTS
    domain, function, numpy = "float", "erf", special.erf
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * (2 / math.sqrt(math.pi)) * of(Exp(), -(x * x)),)


@dataclass(frozen=True)
class Sigmoid(Differentiable):
    """``1 / (1 + exp(-x))``."""

    narrowing = ELEMENTS
    domain, function, numpy = "float", "sigmoid", special.sigmoid
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * y * (1.0 - y),)

    def quantize(self) -> QuantizedForm:
        return ROUNDED


@dataclass(frozen=True)
class Tanh(Differentiable):
    """The hyperbolic tangent."""

    narrowing = ELEMENTS
    domain, function, numpy = "float", "tanh", np.tanh
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * (1.0 - y * y),)

    def quantize(self) -> QuantizedForm:
        return ROUNDED


@dataclass(frozen=True)
class Sin(Differentiable):
    """The sine of x radians."""

    domain, function, numpy = "float", "sin", np.sin
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * of(Cos(), x),)


@dataclass(frozen=True)
class Cos(Differentiable):
    """The cosine of x radians."""

    domain, function, numpy = "float", "cos", np.cos
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (-dy * of(Sin(), x),)


@dataclass(frozen=True)
class Tan(Differentiable):
    """The tangent of x radians."""

    domain, function, numpy = "float", "tan", np.tan
    samples = unary_samples(-1.0, 1.0)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * (y * y + 1.0),)


@dataclass(frozen=True)
class Asin(Differentiable):
    """The angle in [-pi/2, pi/2] with sine x."""

    domain, function, numpy = "float", "asin", np.arcsin
    samples = unary_samples(-0.9, 0.9)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * of(Rsqrt(), 1.0 - x * x),)


@dataclass(frozen=True)
class Acos(Differentiable):
    """The angle in [0, pi] with cosine x."""

    domain, function, numpy = "float", "acos", np.arccos
    samples = unary_samples(-0.9, 0.9)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (-dy * of(Rsqrt(), 1.0 - x * x),)


@dataclass(frozen=True)
class Atan(Differentiable):
    """The angle in [-pi/2, pi/2] with tangent x."""

    domain, function, numpy = "float", "atan", np.arctan
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy / (x * x + 1.0),)


@dataclass(frozen=True)
class Sinh(Differentiable):
    """The hyperbolic sine."""

    domain, function, numpy = "float", "sinh", np.sinh
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * of(Cosh(), x),)


@dataclass(frozen=True)
class Cosh(Differentiable):
    """The hyperbolic cosine."""

    domain, function, numpy = "float", "cosh", np.cosh
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * of(Sinh(), x),)


@dataclass(frozen=True)
class Asinh(Differentiable):
    """The inverse of the hyperbolic sine."""

    domain, function, numpy = "float", "asinh", np.arcsinh
    samples = unary_samples()

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * of(Rsqrt(), x * x + 1.0),)


@dataclass(frozen=True)
class Acosh(Differentiable):
    """The non-negative inverse of the hyperbolic cosine."""

    domain, function, numpy = "float", "acosh", np.arccosh
    samples = unary_samples(1.25, 4.0)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * of(Rsqrt(), x * x - 1.0),)


@dataclass(frozen=True)
class Atanh(Differentiable):
    """The inverse of the hyperbolic tangent."""

    domain, function, numpy = "float", "atanh", np.arctanh
    samples = unary_samples(-0.9, 0.9)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy / (1.0 - x * x),)


@dataclass(frozen=True)
class Pow(Differentiable):
    """``a`` to the power of ``b``; the gradient by b is that of positive a."""

    function, numpy = "pow", special.power
    samples = (
        *binary_samples(0.25, 2.0),
        sample(np.array([2, -3, 0, 5]), np.array([3, 2, 0, 1])),
        sample(np.array([2, -1, 1, -1, -3]), np.array([-1, -3, -2, -2, -1])),
        *typed_samples((I64,), 2, 0, 4),
    )

    def adjoint(self, dy: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
        return dy * b * of(Pow(), a, b - 1.0), dy * y * of(Log(), a)


OPS: tuple[type[Op], ...] = (
    *(Exp, Exp2, Expm1, Log, Log1p, Sqrt, Rsqrt, Reciprocal, Erf, Sigmoid, Tanh, Pow),
    *(Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh),
)
