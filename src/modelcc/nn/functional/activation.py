"""Activations, elementwise and along an axis, under PyTorch's names and with its defaults.

``inplace`` is accepted for compatibility; tensors are immutable, so it has no effect.
"""

from __future__ import annotations

from typing import Any, Literal

from modelcc.ir.op import Op
from modelcc.nn.functional.values import as_tensor, axis_of, of, part, reshaped, where
from modelcc.ops import activation as ops
from modelcc.ops.attention import LogSoftmax, Softmax
from modelcc.ops.comparison import Abs, Greater
from modelcc.ops.transcendental import Sigmoid, Tanh
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor


def _applied(op: Op, x: Any) -> Tensor:
    return of(op, as_tensor(x))


def relu(x: Any, inplace: bool = False) -> Tensor:
    """``max(x, 0)``."""
    return _applied(ops.Relu(), x)


def relu6(x: Any, inplace: bool = False) -> Tensor:
    """``min(max(x, 0), 6)``."""
    return _applied(ops.Clip(0.0, 6.0), x)


def leaky_relu(x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where it is positive, else ``negative_slope * x``."""
    return _applied(ops.LeakyRelu(negative_slope), x)


def prelu(x: Any, weight: Tensor) -> Tensor:
    """x where it is positive, else ``weight * x``; one weight, or one per channel (axis 1)."""
    x = as_tensor(x)
    shape = (weight.shape[0], *(1,) * (x.ndim - 2)) if x.ndim > 1 else (weight.shape[0],)
    return of(ops.PRelu(), x, reshaped(weight, *shape))


def elu(x: Any, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else ``alpha * (exp(x) - 1)``."""
    return _applied(ops.Elu(alpha), x)


def celu(x: Any, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else ``alpha * (exp(x / alpha) - 1)``."""
    return _applied(ops.Celu(alpha), x)


def selu(x: Any, inplace: bool = False) -> Tensor:
    """A scaled ELU that keeps mean 0 and variance 1 (Klambauer et al., 2017)."""
    return _applied(ops.Selu(), x)


def gelu(x: Any, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """``x * Phi(x)`` of the normal distribution, or its approximation by tanh."""
    return _applied(ops.Gelu(approximate), x)


def silu(x: Any, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``."""
    return _applied(ops.Silu(), x)


def mish(x: Any, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))``."""
    return _applied(ops.Mish(), x)


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` exceeds ``threshold``."""
    x = as_tensor(x)
    scaled = x if beta == 1 else x * beta
    smooth = of(ops.Softplus(), scaled)
    return where(scaled > threshold, x, smooth if beta == 1 else smooth / beta)


def softsign(x: Any) -> Tensor:
    """``x / (1 + |x|)``."""
    return _applied(ops.Softsign(), x)


def sigmoid(x: Any) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return _applied(Sigmoid(), x)


def tanh(x: Any) -> Tensor:
    """The hyperbolic tangent."""
    return _applied(Tanh(), x)


def logsigmoid(x: Any) -> Tensor:
    """``log(sigmoid(x))``."""
    return -of(ops.Softplus(), -as_tensor(x))


def hardsigmoid(x: Any, inplace: bool = False) -> Tensor:
    """``x / 6 + 1/2`` clamped to [0, 1]."""
    return _applied(ops.HardSigmoid(1 / 6, 0.5), x)


def hardswish(x: Any, inplace: bool = False) -> Tensor:
    """``x * hardsigmoid(x)``."""
    return _applied(ops.HardSwish(), x)


def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x clamped to the limits."""
    return _applied(ops.Clip(min_val, max_val), x)


def hardshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """x where ``|x|`` exceeds ``lambd``, else 0."""
    x = as_tensor(x)
    return where(of(Abs(), x) > lambd, x, 0.0)


def softshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """x moved by ``lambd`` towards 0, and 0 where ``|x|`` is smaller."""
    x = as_tensor(x)
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, 0.0))


def tanhshrink(x: Any) -> Tensor:
    """``x - tanh(x)``."""
    x = as_tensor(x)
    return x - of(Tanh(), x)


def threshold(x: Any, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it exceeds ``threshold``, else ``value``."""
    x = as_tensor(x)
    return where(of(Greater(), *x.alike(threshold)), x, float(value))


def glu(x: Any, dim: int = -1) -> Tensor:
    """The first half along an axis times the sigmoid of the second (Dauphin et al., 2016)."""
    x = as_tensor(x)
    axis = axis_of(x, dim)
    half = x.shape[axis] // 2
    return part(x, axis, 0, half) * of(Sigmoid(), part(x, axis, half, half))


def softmax(x: Any, dim: int = -1, dtype: Any = None) -> Tensor:
    """``exp(x) / sum exp(x)`` along an axis."""
    x = _cast(x, dtype)
    return of(Softmax(axis_of(x, dim)), x)


def log_softmax(x: Any, dim: int = -1, dtype: Any = None) -> Tensor:
    """``x - log sum exp(x)`` along an axis."""
    x = _cast(x, dtype)
    return of(LogSoftmax(axis_of(x, dim)), x)


def softmin(x: Any, dim: int = -1) -> Tensor:
    """The softmax of ``-x``."""
    return softmax(-as_tensor(x), dim)


def _cast(x: Any, dtype: Any) -> Tensor:
    x = as_tensor(x)
    return x if dtype is None else x.cast(named_type(dtype))
