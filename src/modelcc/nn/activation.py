"""Activations as layers: those of :mod:`modelcc.nn.functional.activation`, with their settings.

``inplace`` is accepted for compatibility; tensors are immutable, so it has no effect.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from modelcc.nn import init
from modelcc.nn.functional import activation as functions
from modelcc.nn.module import Module
from modelcc.nn.roles import Parameter
from modelcc.tensor.tensor import Tensor


class _Plain(Module):
    """Base: no settings."""

    def __init__(self, inplace: bool = False) -> None:
        """Tensors are immutable: ``inplace`` has no effect."""


class _WithAlpha(Module):
    """Base: the factor of negative values."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        """With these settings."""
        self.alpha = alpha


class _Shrink(Module):
    """Base: the range around 0 that becomes 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        """With these settings."""
        self.lambd = lambd


class _AlongAxis(Module):
    """Base: activations that combine the elements along an axis."""

    def __init__(self, dim: int = -1) -> None:
        """With these settings."""
        self.dim = dim


class ReLU(_Plain):
    """``max(x, 0)``."""

    def forward(self, x: Any) -> Tensor:
        return functions.relu(x)


class ReLU6(_Plain):
    """``min(max(x, 0), 6)``."""

    def forward(self, x: Any) -> Tensor:
        return functions.relu6(x)


class LeakyReLU(Module):
    """x where it is positive, else ``negative_slope * x``."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        """With these settings."""
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Tensor:
        return functions.leaky_relu(x, self.negative_slope)


class ELU(_WithAlpha):
    """x where it is positive, else ``alpha * (exp(x) - 1)``."""

    def forward(self, x: Any) -> Tensor:
        return functions.elu(x, self.alpha)


class CELU(_WithAlpha):
    """x where it is positive, else ``alpha * (exp(x / alpha) - 1)``."""

    def forward(self, x: Any) -> Tensor:
        return functions.celu(x, self.alpha)


class SELU(_Plain):
    """A scaled ELU that keeps mean 0 and variance 1 (Klambauer et al., 2017)."""

    def forward(self, x: Any) -> Tensor:
        return functions.selu(x)


class GELU(Module):
    """``x * Phi(x)`` of the normal distribution, or its approximation by tanh."""

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        """With these settings."""
        self.approximate: Literal["none", "tanh"] = approximate

    def forward(self, x: Any) -> Tensor:
        return functions.gelu(x, self.approximate)


class SiLU(_Plain):
    """``x * sigmoid(x)``."""

    def forward(self, x: Any) -> Tensor:
        return functions.silu(x)


class Mish(_Plain):
    """``x * tanh(softplus(x))``."""

    def forward(self, x: Any) -> Tensor:
        return functions.mish(x)


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` exceeds ``threshold``."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        """With these settings."""
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Any) -> Tensor:
        return functions.softplus(x, self.beta, self.threshold)


class Softsign(Module):
    """``x / (1 + |x|)``."""

    def forward(self, x: Any) -> Tensor:
        return functions.softsign(x)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``."""

    def forward(self, x: Any) -> Tensor:
        return functions.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Tensor:
        return functions.tanh(x)


class LogSigmoid(Module):
    """``log(sigmoid(x))``."""

    def forward(self, x: Any) -> Tensor:
        return functions.logsigmoid(x)


class Hardsigmoid(_Plain):
    """``x / 6 + 1/2`` clamped to [0, 1]."""

    def forward(self, x: Any) -> Tensor:
        return functions.hardsigmoid(x)


class Hardswish(_Plain):
    """``x * hardsigmoid(x)``."""

    def forward(self, x: Any) -> Tensor:
        return functions.hardswish(x)


class Hardtanh(Module):
    """x clamped to the limits."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        """With these settings."""
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Any) -> Tensor:
        return functions.hardtanh(x, self.min_val, self.max_val)


class Hardshrink(_Shrink):
    """x where ``|x|`` exceeds ``lambd``, else 0."""

    def forward(self, x: Any) -> Tensor:
        return functions.hardshrink(x, self.lambd)


class Softshrink(_Shrink):
    """x moved by ``lambd`` towards 0, and 0 where ``|x|`` is smaller."""

    def forward(self, x: Any) -> Tensor:
        return functions.softshrink(x, self.lambd)


class Tanhshrink(Module):
    """``x - tanh(x)``."""

    def forward(self, x: Any) -> Tensor:
        return functions.tanhshrink(x)


class Threshold(Module):
    """x where it exceeds ``threshold``, else ``value``."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        """With these settings."""
        self.threshold, self.value = threshold, value

    def forward(self, x: Any) -> Tensor:
        return functions.threshold(x, self.threshold, self.value)


class GLU(_AlongAxis):
    """The first half along an axis times the sigmoid of the second (Dauphin et al., 2016)."""

    def forward(self, x: Any) -> Tensor:
        return functions.glu(x, self.dim)


class Softmax(_AlongAxis):
    """``exp(x) / sum exp(x)`` along an axis."""

    def forward(self, x: Any) -> Tensor:
        return functions.softmax(x, self.dim)


class LogSoftmax(_AlongAxis):
    """``x - log sum exp(x)`` along an axis."""

    def forward(self, x: Any) -> Tensor:
        return functions.log_softmax(x, self.dim)


class Softmin(_AlongAxis):
    """The softmax of ``-x``."""

    def forward(self, x: Any) -> Tensor:
        return functions.softmin(x, self.dim)


class Softmax2d(Module):
    """The softmax over the channels of ``[N, C, H, W]`` or ``[C, H, W]``."""

    def forward(self, x: Any) -> Tensor:
        return functions.softmax(x, -3)


class PReLU(Module):
    """x where it is positive, else ``weight * x``: one weight, or one per channel (axis 1).

    He et al., "Delving deep into rectifiers", 2015.
    """

    weight: Tensor

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = "f32") -> None:
        """``init`` is the initial value of the weights."""
        self.num_parameters, self.init, self._dtype = num_parameters, init, dtype
        self.reset_parameters()

    def reset_parameters(self, rng: np.random.Generator | None = None) -> None:
        """Resets to the initial value."""
        weight = init.constant((self.num_parameters,), self.init, self._dtype)
        self.weight = Parameter(weight)

    def forward(self, x: Any) -> Tensor:
        return functions.prelu(x, self.weight)
