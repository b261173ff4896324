"""Attention with parameters: projections of queries, keys and values, by heads."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import BOOL
from modelcc.nn import init
from modelcc.nn.dropout import Keyed, chance
from modelcc.nn.functional.attention import (
    attention_weights,
    causal_mask,
    scaled_dot_product_attention,
)
from modelcc.nn.functional.dropout import dropout
from modelcc.nn.functional.linear import linear
from modelcc.nn.functional.values import (
    as_tensor,
    averaged,
    expanded,
    filled,
    joined,
    of,
    parts,
    permuted,
    reshaped,
    where,
)
from modelcc.nn.init import Rng
from modelcc.nn.linear import Linear
from modelcc.nn.roles import Parameter
from modelcc.ops.generate import Full
from modelcc.ops.matmul import MatMul
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor


class _OutputProjection(Linear):
    """A linear map whose bias is initialised to 0."""

    def reset_parameters(self, rng: np.random.Generator) -> None:
        super().reset_parameters(rng)
        if self.bias is not None:
            self.bias = init.zeros((self.out_features,), self._dtype)


class MultiheadAttention(Keyed):
    """Multi-head attention with ``num_heads`` heads (Vaswani et al., "Attention is all you need",
    2017).

    x are ``[L, N, E]``, with ``batch_first`` ``[N, L, E]``, or ``[L, E]``.  Parameters are
    PyTorch's: ``in_proj_weight`` ``[3E, E]`` (three of them if ``kdim`` or ``vdim`` differ),
    ``in_proj_bias`` and ``out_proj``.
    """

    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """``dropout`` applies to weights; ``add_bias_kv`` and ``add_zero_attn`` append a key
        each."""
        if embed_dim % num_heads:
            message = f"{embed_dim} features do not divide into {num_heads} heads"
            raise ModelError(message, callers_line())
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, chance(dropout)
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.add_zero_attn, self.batch_first = add_zero_attn, batch_first
        self._dtype, self._biased, self._extra = named_type(dtype), bias, add_bias_kv
        drawn = init.generator(rng)
        self.reset_parameters(drawn)
        self.out_proj = _OutputProjection(embed_dim, embed_dim, bias, dtype=dtype, rng=drawn)

    def reset_parameters(self, rng: np.random.Generator) -> None:
        """Re-initialises the parameters, and the random key."""
        size, dtype = self.embed_dim, self._dtype
        same = self.kdim == self.vdim == size
        self.in_proj_weight = (
            Parameter(init.xavier_uniform((3 * size, size), rng=rng, dtype=dtype)) if same else None
        )
        for name, width in (("q", size), ("k", self.kdim), ("v", self.vdim)):
            drawn = None if same else init.xavier_uniform((size, width), rng=rng, dtype=dtype)
            setattr(self, f"{name}_proj_weight", None if drawn is None else Parameter(drawn))
        self.in_proj_bias = Parameter(init.zeros((3 * size,), dtype)) if self._biased else None
        for name in ("bias_k", "bias_v"):
            drawn = init.xavier_normal((1, 1, size), rng=rng, dtype=dtype) if self._extra else None
            setattr(self, name, None if drawn is None else Parameter(drawn))
        if self.dropout:
            self.draw_key(rng)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, and if ``need_weights`` the weights ``[N, L, S]``, else None.

        Bool masks hide where true, float masks are added: ``key_padding_mask``
        ``[N, S]``, ``attn_mask`` ``[L, S]`` or ``[N * heads, L, S]``.  Without ``attn_mask``,
        ``is_causal`` hides the keys after each query.
        """
        shared = query is key is value
        query, key, value = (as_tensor(x) for x in (query, key, value))
        single = query.ndim == 2
        if single:
            query, key, value = (
                reshaped(x, x.shape[0], 1, x.shape[1]) for x in (query, key, value)
            )
        elif self.batch_first:
            query, key, value = (permuted(x, 1, 0, 2) for x in (query, key, value))
        q, k, v = self._projected(query, key, value, shared)
        mask = self._mask(q, attn_mask, key_padding_mask)
        causal = is_causal and attn_mask is None
        y, weights = self._attended(q, k, v, mask, causal, need_weights)
        batch, heads, length, size = y.shape
        y = reshaped(permuted(y, 2, 0, 1, 3), length, batch, heads * size)
        y = self.out_proj(y)
        if weights is not None and average_attn_weights:
            weights = averaged(weights, 1)
        if single:
            y = reshaped(y, length, y.shape[2])
            weights = None if weights is None else reshaped(weights, *weights.shape[1:])
        elif self.batch_first:
            y = permuted(y, 1, 0, 2)
        return y, weights

    # --- projections

    def _projected(
        self, query: Tensor, key: Tensor, value: Tensor, shared: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Heads of queries, keys and values, ``[N, H, L, D]``."""
        bias = self.in_proj_bias
        if shared and self.in_proj_weight is not None:
            q, k, v = parts(linear(query, self.in_proj_weight, bias), 2, 3)
        else:
            biases = [None] * 3 if bias is None else parts(bias, 0, 3)
            pairs = zip((query, key, value), self._weights(), biases, strict=True)
            q, k, v = (linear(x, weight, b) for x, weight, b in pairs)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                joined([x, expanded(extra, 1, x.shape[1], self.embed_dim)], 0)
                for x, extra in ((k, self.bias_k), (v, self.bias_v))
            )
        q, k, v = (self._by_heads(x) for x in (q, k, v))
        if self.add_zero_attn:
            k, v = (joined([x, filled(x, 0.0, *x.shape[:2], 1, x.shape[3])], 2) for x in (k, v))
        return q, k, v

    def _weights(self) -> list[Tensor]:
        if self.in_proj_weight is not None:
            return parts(self.in_proj_weight, 0, 3)
        return [getattr(self, f"{name}_proj_weight") for name in "qkv"]

    def _by_heads(self, x: Tensor) -> Tensor:
        length, batch, size = x.shape
        heads = reshaped(x, length, batch, self.num_heads, size // self.num_heads)
        return permuted(heads, 1, 2, 0, 3)

    # --- masks

    def _mask(self, q: Tensor, attn_mask: Any, padding: Any) -> Tensor | None:
        """The additive mask of scores ``[N, H, L, S]``, if any."""
        masks: list[Tensor] = []
        if attn_mask is not None:
            given = as_tensor(attn_mask)
            if given.ndim == 3:
                given = reshaped(given, q.shape[0], self.num_heads, *given.shape[1:])
            masks.append(_hidden(given, q))
        if padding is not None:
            given = as_tensor(padding)
            batch = given.shape[0] if given.ndim == 2 else 1
            masks.append(reshaped(_hidden(given, q), batch, 1, 1, given.shape[-1]))
        if not masks:
            return None
        mask = masks[0] if len(masks) == 1 else masks[0] + masks[1]
        more = self._more_keys()
        return (
            joined([mask, filled(mask, 0.0, *mask.shape[:-1], more)], mask.ndim - 1)
            if (more)
            else mask
        )

    def _more_keys(self) -> int:
        return int(self._extra) + int(self.add_zero_attn)

    def _attended(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, weighted: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The weighted values of each head, and the weights if requested."""
        if causal and self._more_keys():
            seen = causal_mask(q, q.shape[2], k.shape[2] - self._more_keys())
            ones = q.result(Full((q.shape[2], self._more_keys()), True, BOOL))
            hidden = where(joined([seen, ones], 1), q.of_number(0.0, q.dtype), -np.inf)
            mask, causal = hidden if mask is None else mask + hidden, False
        p = self.dropout if self.training else 0.0
        key = self.moved_key(p) if p else None
        if not weighted:
            found = scaled_dot_product_attention(q, k, v, mask, p, causal, dropout_key=key)
            return found, None
        scale = 1 / sqrt(self.embed_dim // self.num_heads)
        weights = attention_weights(q, k, mask, causal, scale)
        weights = dropout(weights, p, key=key)
        return of(MatMul(), weights, v), weights


def _hidden(mask: Tensor, q: Tensor) -> Tensor:
    """An additive mask: bools hide where true."""
    if mask.dtype != BOOL:
        return mask.cast(q.dtype)
    return where(mask, q.of_number(-np.inf, q.dtype), 0.0)


MultiHeadAttention = MultiheadAttention
"""The same, with the paper's spelling."""
