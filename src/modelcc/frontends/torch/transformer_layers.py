"""Decompositions of PyTorch's operators for whole transformer layers in inference.

They match ``native/transformers/transformer.cpp`` and ``attention.cpp``: a mask hides where it is
nonzero, whatever its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor
OF_QUERIES, OF_KEYS = 0, 1
"""Kinds of masks: [queries, keys], and [batch, keys]; others are [batch, heads, queries, keys]."""


def transformer_rules() -> dict[Any, Callable[..., Any]]:
    """Decompositions, by operator."""
    aten: Any = torch.ops.aten
    return {
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
        aten._native_multi_head_attention.default: _multi_head_attention,
    }


def _encoder_layer(
    src: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor,
    ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    def first(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (width,), norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (width,), norm_weight_2, norm_bias_2, eps)

    def attended(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        given = (x, x, x, width, heads, *weights, mask, False, True, mask_type)
        return _multi_head_attention(*given)[0]

    def fed(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        active = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(active, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(first(src))
        return x + fed(second(x))
    x = first(src + attended(src))
    return second(x + fed(x))


def _multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, qkv_weight: Tensor,
    qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None,
    need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    sides = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    projected = (functional.linear(x, weight, bias) for x, weight, bias in sides)
    q, k, v = (x.unflatten(-1, (heads, width // heads)).transpose(1, 2) for x in projected)
    hidden = None if mask is None else _of_four_axes(mask.to(torch.bool), mask_type)
    scores = q @ k.transpose(2, 3) * (width // heads) ** -0.5
    shown = scores if hidden is None else scores.masked_fill(hidden, float("-inf"))
    shares = functional.softmax(shown, -1)
    made = shares @ v
    if not need_weights:
        weights = query.new_empty(0)
    else:
        weights = shares.mean(1) if average_attn_weights else shares
    joined = made.transpose(1, 2).flatten(2)
    return functional.linear(joined, proj_weight, proj_bias), weights


def _of_four_axes(mask: Tensor, kind: int | None) -> Tensor:
    """``mask`` reshaped to broadcast to [batch, heads, queries, keys]."""
    if kind == OF_QUERIES:
        return mask[None, None]
    return mask[:, None, None] if kind == OF_KEYS else mask
