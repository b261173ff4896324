"""Linear maps with parameters: Linear, Bilinear and Embedding; and none: Identity."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.nn import init
from modelcc.nn.functional.linear import bilinear, embedding, linear
from modelcc.nn.init import Rng
from modelcc.nn.module import Module
from modelcc.nn.roles import Parameter
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor


class Identity(Module):
    """x, whatever the arguments of the constructor."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """All arguments are ignored, so that it can stand in for any layer."""

    def forward(self, x: Any) -> Any:
        return x


class Uniform(Module):
    """Base: a weight and optionally a bias, both uniform within ``1 / sqrt(fan)``."""

    weight: Tensor
    bias: Tensor | None

    def _draw(
        self, shape: tuple[int, ...], outputs: int, fan: int, bias: bool, dtype: Any, rng: Rng
    ) -> None:
        self._shape, self._outputs, self._fan = shape, outputs, fan
        self._dtype, self._biased = named_type(dtype), bias
        self.reset_parameters(init.generator(rng))

    def reset_parameters(self, rng: np.random.Generator) -> None:
        """Re-initialises the parameters."""
        bound = 1 / math.sqrt(self._fan) if self._fan else 0.0
        uniform = partial(init.uniform, a=-bound, b=bound, rng=rng, dtype=self._dtype)
        self.weight = Parameter(uniform(self._shape))
        self.bias = Parameter(uniform((self._outputs,))) if self._biased else None


class Linear(Uniform):
    """``x @ weight^T + bias``: weight ``[out, in]``, bias ``[out]``, x ``[…, in]``."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """Both uniform within ``1 / sqrt(in_features)``."""
        self.in_features, self.out_features = in_features, out_features
        shape = (out_features, in_features)
        self._draw(shape, out_features, in_features, bias, dtype, rng)

    def forward(self, x: Any) -> Tensor:
        return linear(x, self.weight, self.bias)


class Bilinear(Uniform):
    """``x1 @ weight[o] @ x2 + bias[o]`` for each output: weight ``[out, in1, in2]``."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """Both uniform within ``1 / sqrt(in1_features)``."""
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self._draw(shape, out_features, in1_features, bias, dtype, rng)

    def forward(self, x1: Any, x2: Any) -> Tensor:
        return bilinear(x1, x2, self.weight, self.bias)


class Embedding(Module):
    """Rows of a table ``[num_embeddings, embedding_dim]`` by integers of any shape.

    The row ``padding_idx`` is initially 0, and not trained.
    """

    weight: Tensor

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """Normally distributed, of mean 0 and variance 1."""
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ModelError(f"padding_idx {padding_idx} of {num_embeddings} rows", callers_line())
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self._dtype = named_type(dtype)
        self.reset_parameters(init.generator(rng))

    def reset_parameters(self, rng: np.random.Generator) -> None:
        """Re-initialises the table."""
        table = rng.normal(size=(self.num_embeddings, self.embedding_dim))
        if self.padding_idx is not None:
            table[self.padding_idx] = 0
        self.weight = Parameter(Tensor(table, self._dtype))

    def forward(self, indices: Any) -> Tensor:
        return embedding(indices, self.weight, self.padding_idx)
