"""Activation functions: elementwise, each with its attributes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from modelcc.ir import special
from modelcc.ir.compute import Element, apply, select
from modelcc.ir.narrowing import ELEMENTS, WIDE
from modelcc.ir.op import Builder, Op, Sample
from modelcc.ir.quantized_form import FOLLOWS, ROUNDED, QuantizedForm
from modelcc.ir.types import I32, Array
from modelcc.ops.arithmetic import (
    Differentiable,
    Value,
    binary_samples,
    of,
    typed_samples,
    unary_samples,
)
from modelcc.ops.comparison import Abs, above, where
from modelcc.ops.samples import sample, tensor
from modelcc.ops.transcendental import Erf, Exp, Sigmoid, Tanh


class Activation(Differentiable):
    """Base: an elementwise function of one float operand."""

    narrowing = ELEMENTS
    domain = "float"

    def slope(self, x: Value) -> Value:
        """The derivative at x."""
        raise NotImplementedError(self.mnemonic())

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * self.slope(x),)

    def quantize(self) -> QuantizedForm:
        return ROUNDED


class Composite(Activation):
    """Base of activations that are a formula of other ops."""

    def formula(self, x: Value) -> Value:
        """The function, from simpler ops."""
        raise NotImplementedError(self.mnemonic())

    def decompose(self, build: Builder, x: str) -> tuple[str]:
        return (self.formula(Value(build, x)).name,)

    def quantize(self) -> QuantizedForm:
        return FOLLOWS


def sigmoid(x: Element) -> Element:
    """``1 / (1 + exp(-x))``."""
    return apply("sigmoid", x)


def softplus(x: Element) -> Element:
    """``log(1 + exp(x))`` without overflow."""
    return apply("max", x, 0.0) + apply("log1p", apply("exp", -apply("abs", x)))


def one_of(x: Value, bound: float, high: float | Value, low: float | Value) -> Value:
    """``high`` where ``x > bound``, else ``low``."""
    return where(above(x, bound), x.lift(high), low)


@dataclass(frozen=True)
class Relu(Activation):
    """``max(x, 0)``."""

    domain = "number"
    samples = (*unary_samples(), *typed_samples((I32,), 1))

    def element(self, x: Element) -> Element:
        return apply("max", x, 0)

    def evaluate(self, x: Array) -> Array:
        return np.maximum(x, np.zeros_like(x))

    def slope(self, x: Value) -> Value:
        return one_of(x, 0.0, 1.0, 0.0)

    def quantize(self) -> QuantizedForm:
        return FOLLOWS


@dataclass(frozen=True)
class LeakyRelu(Activation):
    """x where ``x > 0``, else ``alpha * x``."""

    alpha: float = 0.01
    samples = (*unary_samples(), *unary_samples(alpha=0.25))

    def element(self, x: Element) -> Element:
        return select(x > 0.0, x, x * self.alpha)

    def evaluate(self, x: Array) -> Array:
        return np.where(x > 0, x, x * np.asarray(self.alpha, x.dtype))

    def slope(self, x: Value) -> Value:
        return one_of(x, 0.0, 1.0, self.alpha)


@dataclass(frozen=True)
class PRelu(Differentiable):
    """x where ``x > 0``, else ``slope * x``; slope broadcasts to x."""

    narrowing = ELEMENTS
    samples = (
        *binary_samples(),
        sample(tensor(2, 3, "n"), tensor(3, 1)),
        *typed_samples((I32,), 2),
    )

    def element(self, x: Element, slope: Element) -> Element:
        return select(x > 0, x, x * slope)

    def evaluate(self, x: Array, slope: Array) -> Array:
        return np.where(x > 0, x, x * slope)

    def adjoint(self, dy: Value, y: Value, x: Value, slope: Value) -> tuple[Value, Value]:
        positive = above(x, 0.0)
        return where(positive, dy, dy * slope), where(positive, 0.0, dy * x)

    def quantize(self) -> QuantizedForm:
        return ROUNDED


@dataclass(frozen=True)
class ThresholdedRelu(Activation):
    """x where ``x > alpha``, else 0."""

    alpha: float = 1.0
    samples = unary_samples()

    def element(self, x: Element) -> Element:
        return select(x > self.alpha, x, 0.0)

    def evaluate(self, x: Array) -> Array:
        return np.where(x > np.asarray(self.alpha, x.dtype), x, np.zeros_like(x))

    def slope(self, x: Value) -> Value:
        return one_of(x, self.alpha, 1.0, 0.0)


@dataclass(frozen=True)
class Elu(Activation):
    """x where ``x > 0``, else ``alpha * (exp(x) - 1)`` (Clevert et al. 2015)."""

    alpha: float = 1.0
    samples = (*unary_samples(), *unary_samples(alpha=0.5))

    def element(self, x: Element) -> Element:
        return select(x > 0.0, x, apply("expm1", x) * self.alpha)

    def evaluate(self, x: Array) -> Array:
        return np.where(x > 0, x, np.expm1(x) * np.asarray(self.alpha, x.dtype))

    def slope(self, x: Value) -> Value:
        return one_of(x, 0.0, 1.0, of(Exp(), x) * self.alpha)


@dataclass(frozen=True)
class Celu(Activation):
    """x where ``x > 0``, else ``alpha * (exp(x / alpha) - 1)`` (Barron 2017)."""

    alpha: float = 1.0
    samples = (*unary_samples(), *unary_samples(alpha=0.5))

    def element(self, x: Element) -> Element:
        return select(x > 0.0, x, apply("expm1", x / self.alpha) * self.alpha)

    def evaluate(self, x: Array) -> Array:
        alpha = np.asarray(self.alpha, x.dtype)
        return np.where(x > 0, x, np.expm1(x / alpha) * alpha)

    def slope(self, x: Value) -> Value:
        return one_of(x, 0.0, 1.0, of(Exp(), x / self.alpha))


@dataclass(frozen=True)
class Selu(Activation):
    """``gamma * x`` where ``x > 0``, else ``gamma * alpha * (exp(x) - 1)`` (Klambauer 2017)."""

    alpha: float = 1.6732632423543772
    gamma: float = 1.0507009873554805
    samples = (*unary_samples(), *unary_samples(alpha=0.5, gamma=2.0))

    def element(self, x: Element) -> Element:
        return select(x > 0.0, x, apply("expm1", x) * self.alpha) * self.gamma

    def evaluate(self, x: Array) -> Array:
        alpha, gamma = np.asarray(self.alpha, x.dtype), np.asarray(self.gamma, x.dtype)
        return np.where(x > 0, x, np.expm1(x) * alpha) * gamma

    def slope(self, x: Value) -> Value:
        return one_of(x, 0.0, 1.0, of(Exp(), x) * self.alpha) * self.gamma


@dataclass(frozen=True)
class Softplus(Activation):
    """``log(1 + exp(x))``."""

    narrowing = WIDE
    samples = (*unary_samples(), *unary_samples(-40.0, 40.0))

    def element(self, x: Element) -> Element:
        return softplus(x)

    def evaluate(self, x: Array) -> Array:
        return np.logaddexp(x, np.zeros_like(x))

    def slope(self, x: Value) -> Value:
        return of(Sigmoid(), x)


@dataclass(frozen=True)
class Softsign(Activation):
    """``x / (1 + |x|)``."""

    samples = unary_samples()

    def element(self, x: Element) -> Element:
        return x / (apply("abs", x) + 1.0)

    def evaluate(self, x: Array) -> Array:
        return x / (1 + np.abs(x))

    def slope(self, x: Value) -> Value:
        root = of(Abs(), x) + 1.0
        return 1.0 / (root * root)


@dataclass(frozen=True)
class HardSigmoid(Activation):
    """``alpha * x + beta`` clipped to 0 … 1."""

    alpha: float = 0.2
    beta: float = 0.5
    samples = (*unary_samples(-4.0, 4.0), *unary_samples(-4.0, 4.0, alpha=1 / 6))

    def element(self, x: Element) -> Element:
        return apply("min", apply("max", x * self.alpha + self.beta, 0.0), 1.0)

    def evaluate(self, x: Array) -> Array:
        line = x * np.asarray(self.alpha, x.dtype) + np.asarray(self.beta, x.dtype)
        return np.clip(line, np.zeros_like(x), np.ones_like(x))

    def slope(self, x: Value) -> Value:
        line = x * self.alpha + self.beta
        return one_of(line, 0.0, one_of(line, 1.0, 0.0, self.alpha), 0.0)


@dataclass(frozen=True)
class Affine(Activation):
    """``alpha * x + beta``."""

    alpha: float = 1.0
    beta: float = 0.0
    samples = unary_samples(alpha=0.5, beta=0.25)

    def element(self, x: Element) -> Element:
        return x * self.alpha + self.beta

    def evaluate(self, x: Array) -> Array:
        return x * np.asarray(self.alpha, x.dtype) + np.asarray(self.beta, x.dtype)

    def slope(self, x: Value) -> Value:
        return x * 0.0 + self.alpha


@dataclass(frozen=True)
class ScaledTanh(Activation):
    """``alpha * tanh(beta * x)``."""

    alpha: float = 1.0
    beta: float = 1.0
    samples = unary_samples(alpha=1.5, beta=0.75)

    def element(self, x: Element) -> Element:
        return apply("tanh", x * self.beta) * self.alpha

    def evaluate(self, x: Array) -> Array:
        inner = np.tanh(x * np.asarray(self.beta, x.dtype))
        return inner * np.asarray(self.alpha, x.dtype)

    def slope(self, x: Value) -> Value:
        inner = of(Tanh(), x * self.beta)
        return (1.0 - inner * inner) * (self.alpha * self.beta)


@dataclass(frozen=True)
class HardSwish(Composite):
    """``x * min(max(x / 6 + 1/2, 0), 1)`` (Howard et al. 2019)."""

    samples = unary_samples(-4.0, 4.0)

    def element(self, x: Element) -> Element:
        return x * HardSigmoid(1 / 6, 0.5).element(x)

    def evaluate(self, x: Array) -> Array:
        return x * HardSigmoid(1 / 6, 0.5).evaluate(x)

    def formula(self, x: Value) -> Value:
        return x * of(HardSigmoid(1 / 6, 0.5), x)

    def slope(self, x: Value) -> Value:
        inner = HardSigmoid(1 / 6, 0.5)
        return of(inner, x) + x * inner.slope(x)


@dataclass(frozen=True)
class Clip(Activation):
    """``min(max(x, low), high)``; None is no bound."""

    domain = "number"
    low: float | None = None
    high: float | None = None
    samples = (
        *(sample(*s.operands, low=-0.5, high=0.5) for s in unary_samples()),
        *(Sample((tensor(3, "n"),), bounds) for bounds in ({"low": 0.0}, {"high": 1.0}, {})),
        sample(tensor(5, dtype=I32), low=-1, high=1),
    )

    def element(self, x: Element) -> Element:
        x = x if self.low is None else apply("max", x, self.low)
        return x if self.high is None else apply("min", x, self.high)

    def evaluate(self, x: Array) -> Array:
        low = x if self.low is None else np.maximum(x, np.asarray(self.low, x.dtype))
        return low if self.high is None else np.minimum(low, np.asarray(self.high, x.dtype))

    def slope(self, x: Value) -> Value:
        one = 1.0 if self.high is None else one_of(x, self.high, 0.0, 1.0)
        return x.lift(one) if self.low is None else one_of(x, self.low, one, 0.0)

    def quantize(self) -> QuantizedForm:
        return FOLLOWS


@dataclass(frozen=True)
class Swish(Composite):
    """``x * sigmoid(alpha * x)`` (Ramachandran et al. 2017)."""

    alpha: float = 1.0
    samples = (*unary_samples(), *unary_samples(alpha=1.5))

    def element(self, x: Element) -> Element:
        return x * sigmoid(x * self.alpha)

    def evaluate(self, x: Array) -> Array:
        return x * special.sigmoid(x * np.asarray(self.alpha, x.dtype))

    def formula(self, x: Value) -> Value:
        return x * of(Sigmoid(), x * self.alpha)

    def slope(self, x: Value) -> Value:
        gate = of(Sigmoid(), x * self.alpha)
        return gate + x * gate * (1.0 - gate) * self.alpha


@dataclass(frozen=True)
class Silu(Composite):
    """``x * sigmoid(x)`` (Elfwing et al. 2017)."""

    samples = unary_samples()

    def element(self, x: Element) -> Element:
        return x * sigmoid(x)

    def evaluate(self, x: Array) -> Array:
        return x * special.sigmoid(x)

    def formula(self, x: Value) -> Value:
        return x * of(Sigmoid(), x)

    def slope(self, x: Value) -> Value:
        return Swish().slope(x)


@dataclass(frozen=True)
class Mish(Composite):
    """``x * tanh(softplus(x))`` (Misra 2019)."""

    samples = unary_samples()

    def element(self, x: Element) -> Element:
        return x * apply("tanh", softplus(x))

    def evaluate(self, x: Array) -> Array:
        return x * np.tanh(Softplus().evaluate(x))

    def formula(self, x: Value) -> Value:
        return x * of(Tanh(), of(Softplus(), x))

    def slope(self, x: Value) -> Value:
        gate = of(Tanh(), of(Softplus(), x))
        return gate + x * (1.0 - gate * gate) * of(Sigmoid(), x)


@dataclass(frozen=True)
class Gelu(Composite):
    """``x * Phi(x)`` with the normal distribution Phi, or its tanh approximation.

    Hendrycks & Gimpel, "Gaussian error linear units", 2016.
    """

    approximate: Literal["none", "tanh"] = "none"
    samples = (*unary_samples(), *unary_samples(approximate="tanh"))

    def element(self, x: Element) -> Element:
        if self.approximate == "none":
            return x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1.0)
        inner = x * (x * x * _CUBIC + 1.0) * _SCALE
        return x * 0.5 * (apply("tanh", inner) + 1.0)

    def evaluate(self, x: Array) -> Array:
        wide = x.astype(np.float64)
        if self.approximate == "none":
            return wide * 0.5 * (1 + special.erf(wide / math.sqrt(2)))
        return wide * 0.5 * (1 + np.tanh(_SCALE * (wide + _CUBIC * wide**3)))

    def formula(self, x: Value) -> Value:
        return x * self._gate(x)

    def _gate(self, x: Value) -> Value:
        if self.approximate == "none":
            return (of(Erf(), x * math.sqrt(0.5)) + 1.0) * 0.5
        return (of(Tanh(), x * (x * x * _CUBIC + 1.0) * _SCALE) + 1.0) * 0.5

    def slope(self, x: Value) -> Value:
        gate = self._gate(x)
        if self.approximate == "none":
            return gate + x * of(Exp(), x * x * -0.5) * math.sqrt(0.5 / math.pi)
        inner = x * x * (3 * _CUBIC * _SCALE) + _SCALE
        return gate + x * gate * (1.0 - gate) * inner * 2.0


_SCALE = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


OPS: tuple[type[Op], ...] = (
    *(Relu, LeakyRelu, PRelu, ThresholdedRelu, Elu, Celu, Selu, Softplus, Softsign),
    *(HardSigmoid, Affine, ScaledTanh, HardSwish, Clip, Swish, Silu, Mish, Gelu),
)
