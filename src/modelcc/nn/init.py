"""Initial values of parameters: distributions by an explicit generator of random numbers.

They are PyTorch's, under its names without the underscore, but map a shape to a tensor.
``rng`` is a seed or a generator of NumPy; None takes the operating system's entropy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor

Rng = int | np.random.Generator | None
"""A seed, a generator, or None for the operating system's entropy."""

Shape = Sequence[int]
Mode = Literal["fan_in", "fan_out"]


def generator(rng: Rng) -> np.random.Generator:
    """The generator for ``rng``."""
    return np.random.default_rng(rng)


def _tensor(array: Array, dtype: Any) -> Tensor:
    return Tensor(array, named_type(dtype))


def constant(shape: Shape, value: float, dtype: Any = "f32") -> Tensor:
    """``value`` everywhere."""
    return _tensor(np.full(tuple(shape), value), dtype)


def zeros(shape: Shape, dtype: Any = "f32") -> Tensor:
    """0 everywhere."""
    return constant(shape, 0.0, dtype)


def ones(shape: Shape, dtype: Any = "f32") -> Tensor:
    """1 everywhere."""
    return constant(shape, 1.0, dtype)


def eye(shape: Shape, dtype: Any = "f32") -> Tensor:
    """The identity, cropped or zero-padded to this shape."""
    _require_rank(shape, 2, "eye", exactly=True)
    return _tensor(np.eye(shape[0], shape[1]), dtype)


def dirac(shape: Shape, groups: int = 1, dtype: Any = "f32") -> Tensor:
    """Weights of a convolution that preserves as many channels as possible: 1 at the centre."""
    _require_rank(shape, 3, "dirac")
    if shape[0] % groups:
        raise ModelError(f"{shape[0]} output channels do not divide into {groups} groups",
                         callers_line())  # fmt: skip
    array = np.zeros(tuple(shape))
    each = shape[0] // groups
    middle = tuple(e // 2 for e in shape[2:])
    for group in range(groups):
        for channel in range(min(each, shape[1])):
            array[(group * each + channel, channel, *middle)] = 1
    return _tensor(array, dtype)


def uniform(
    shape: Shape, a: float = 0.0, b: float = 1.0, *, rng: Rng = None, dtype: Any = "f32"
) -> Tensor:
    """Uniform in [a, b)."""
    return _tensor(generator(rng).uniform(a, b, tuple(shape)), dtype)


def normal(
    shape: Shape, mean: float = 0.0, std: float = 1.0, *, rng: Rng = None, dtype: Any = "f32"
) -> Tensor:
    """Normally distributed."""
    return _tensor(generator(rng).normal(mean, std, tuple(shape)), dtype)


def trunc_normal(
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    *,
    rng: Rng = None,
    dtype: Any = "f32",
) -> Tensor:
    """Normally distributed in [a, b], by rejection sampling.

    :class:`ModelError` if hardly any samples are inside.
    """
    chance = _normal_chance((b - mean) / std) - _normal_chance((a - mean) / std)
    if chance < 1e-4:
        raise ModelError(f"of a normal distribution of {mean} and {std} hardly anything falls "
                         f"within [{a}, {b}]", callers_line())  # fmt: skip
    drawn = generator(rng)
    array = drawn.normal(mean, std, tuple(shape))
    while (outside := (array < a) | (array > b)).any():
        array = np.where(outside, drawn.normal(mean, std, array.shape), array)
    return _tensor(array, dtype)


def _normal_chance(x: float) -> float:
    """The cumulative distribution function of the standard normal distribution."""
    return (1 + math.erf(x / math.sqrt(2))) / 2


def xavier_uniform(
    shape: Shape, gain: float = 1.0, *, rng: Rng = None, dtype: Any = "f32"
) -> Tensor:
    """Uniform of variance ``2 gain^2 / (fan_in + fan_out)`` (Glorot & Bengio, 2010)."""
    bound = gain * math.sqrt(6 / sum(fans(shape)))
    return uniform(shape, -bound, bound, rng=rng, dtype=dtype)


def xavier_normal(
    shape: Shape, gain: float = 1.0, *, rng: Rng = None, dtype: Any = "f32"
) -> Tensor:
    """Normal of variance ``2 gain^2 / (fan_in + fan_out)`` (Glorot & Bengio, 2010)."""
    return normal(shape, 0.0, gain * math.sqrt(2 / sum(fans(shape))), rng=rng, dtype=dtype)


def kaiming_uniform(
    shape: Shape,
    a: float = 0.0,
    mode: Mode = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    rng: Rng = None,
    dtype: Any = "f32",
) -> Tensor:
    """Uniform of variance ``gain^2 / fan`` (He et al., "Delving deep into rectifiers", 2015)."""
    bound = math.sqrt(3) * _kaiming_deviation(shape, a, mode, nonlinearity)
    return uniform(shape, -bound, bound, rng=rng, dtype=dtype)


def kaiming_normal(
    shape: Shape,
    a: float = 0.0,
    mode: Mode = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    rng: Rng = None,
    dtype: Any = "f32",
) -> Tensor:
    """Normal of variance ``gain^2 / fan`` (He et al., "Delving deep into rectifiers", 2015)."""
    deviation = _kaiming_deviation(shape, a, mode, nonlinearity)
    return normal(shape, 0.0, deviation, rng=rng, dtype=dtype)


def _kaiming_deviation(shape: Shape, a: float, mode: Mode, nonlinearity: str) -> float:
    fan = fans(shape)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def orthogonal(shape: Shape, gain: float = 1.0, *, rng: Rng = None, dtype: Any = "f32") -> Tensor:
    """Rows or columns, whichever are fewer, are orthogonal and of length ``gain``.

    Saxe et al., "Exact solutions to the nonlinear dynamics of learning", 2013.
    """
    _require_rank(shape, 2, "orthogonal")
    rows, columns = shape[0], math.prod(shape[1:])
    flat = generator(rng).normal(size=(max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(flat)
    q = q * np.sign(np.diag(r))
    return _tensor(gain * (q if rows >= columns else q.T).reshape(tuple(shape)), dtype)


def sparse(
    shape: Shape, sparsity: float, std: float = 0.01, *, rng: Rng = None, dtype: Any = "f32"
) -> Tensor:
    """Normal, except that a fraction ``sparsity`` of each column is 0 (Martens, 2010)."""
    _require_rank(shape, 2, "sparse", exactly=True)
    drawn = generator(rng)
    array = drawn.normal(0, std, tuple(shape))
    count = math.ceil(sparsity * shape[0])
    for column in range(shape[1]):
        array[drawn.permutation(shape[0])[:count], column] = 0
    return _tensor(array, dtype)


GAINS = (
    ("linear", 1.0), ("conv1d", 1.0), ("conv2d", 1.0), ("conv3d", 1.0), ("conv_transpose1d", 1.0),
    ("conv_transpose2d", 1.0), ("conv_transpose3d", 1.0), ("sigmoid", 1.0), ("tanh", 5 / 3),
    ("relu", math.sqrt(2)), ("selu", 3 / 4),
)  # fmt: skip
"""Factors that preserve variances through a function; PyTorch's values."""


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor of standard deviations before a function; ``param`` is the slope of leaky_relu."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope**2))
    known = dict(GAINS)
    if nonlinearity not in known:
        raise ModelError(f"there is no gain for {nonlinearity!r}", callers_line(),
                         f"there are {', '.join(known)} and leaky_relu")  # fmt: skip
    return known[nonlinearity]


def fans(shape: Shape) -> tuple[int, int]:
    """Inputs of each output, and outputs of each input, of weights ``[out, in, *kernel]``."""
    _require_rank(shape, 2, "a fan")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _require_rank(shape: Shape, rank: int, what: str, exactly: bool = False) -> None:
    if len(shape) < rank or (exactly and len(shape) != rank):
        many = "exactly" if exactly else "at least"
        raise ModelError(f"{what} needs {many} {rank} axes, not {list(shape)}", callers_line())
