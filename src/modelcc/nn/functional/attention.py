"""Scaled dot-product attention, with masks and dropout of its weights."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, product
from modelcc.ir.op import broadcast_shapes
from modelcc.ir.types import BOOL, I64
from modelcc.nn.functional.dropout import dropout
from modelcc.nn.functional.values import as_tensor, expanded, number, of, reshaped, swapped, where
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.generate import Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    dropout_key: Tensor | None = None,
) -> Tensor:
    """``softmax(scale * q k^T + mask) v`` for q ``[…, m, d]``, k ``[…, n, d]``, v ``[…, n, e]``.

    A bool mask says which keys are attended to, a float mask is added; a query without any gets
    zeros.  ``is_causal`` hides keys after the query; ``scale`` None is ``1 / sqrt(d)``.
    ``dropout_p`` drops weights, by ``dropout_key``; with ``enable_gqa`` heads of keys and values
    are shared by groups of query heads.
    """
    q, k, v = (as_tensor(x) for x in (query, key, value))
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ModelError(f"attention of {q.type}, {k.type} and {v.type}", callers_line(),
                         "each needs a length and a size in its last axes")  # fmt: skip
    if enable_gqa:
        k, v = (_repeated(x, q) for x in (k, v))
    mask = None if attn_mask is None else _added(as_tensor(attn_mask), q)
    seen = None if mask is None else _sees_any(mask)
    if mask is not None and seen is not None:
        mask = where(seen, mask, 0.0)
    factor = 1 / sqrt(number(q.shape[-1], "the size of a head")) if scale is None else scale
    if dropout_p:
        weights = attention_weights(q, k, mask, is_causal, factor)
        y = of(MatMul(), dropout(weights, dropout_p, key=dropout_key), v)
    else:
        y = _whole(q, k, v, mask, is_causal, factor)
    return y if seen is None else where(seen, y, 0.0)


def attention_weights(
    q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """``softmax(scale * q k^T + mask)``, for an additive mask."""
    scores = of(MatMul(), q, swapped(k, -1, -2)) * scale
    if mask is not None:
        scores = scores + mask
    if is_causal:
        scores = where(causal_mask(q, *scores.shape[-2:]), scores, -np.inf)
    return of(Softmax(scores.ndim - 1), scores)


def causal_mask(x: Tensor, queries: Index, keys: Index) -> Tensor:
    """Which keys each query may attend to, itself and those before: bools ``[queries, keys]``."""
    query = x.result(Iota((queries, 1), 0, 0, 1, I64))
    key = x.result(Iota((1, keys), 1, 0, 1, I64))
    return key <= query


def _whole(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    lead = broadcast_shapes(*(x.shape[:-2] for x in (q, k, v)))
    heads = [_of_four_axes(x, lead) for x in (q, k, v)]
    if mask is not None and mask.ndim > 2 and len(lead) != 2:
        mask = _of_four_axes(mask, lead)
    y = of(Attention(float(scale), is_causal), *heads, *([] if mask is None else [mask]))
    return reshaped(y, *lead, *y.shape[2:])


def _of_four_axes(x: Tensor, lead: tuple[Index, ...]) -> Tensor:
    """``x`` as [batch, heads, length, size], where ``lead`` are batch and heads."""
    pair = x.shape[-2:]
    if x.shape[:-2] != lead:
        x = expanded(reshaped(x, *(1,) * (len(lead) + 2 - x.ndim), *x.shape), *lead, *pair)
    outer = (product(lead[:-1]), lead[-1]) if lead else (1, 1)
    return reshaped(x, *outer, *pair)


def _repeated(x: Tensor, q: Tensor) -> Tensor:
    """Heads of keys or values, repeated for each group of query heads."""
    *lead, heads, length, size = x.shape
    times = number(q.shape[-3], "a number of heads") // number(heads, "a number of heads")
    wide = reshaped(x, *lead, heads, 1, length, size)
    return reshaped(
        expanded(wide, *lead, heads, times, length, size), *lead, heads * times, length, size
    )


def _added(mask: Tensor, q: Tensor) -> Tensor:
    """The additive form of a mask."""
    if mask.dtype == BOOL:
        zero = q.of_number(0.0, q.dtype)
        return where(mask, zero, -np.inf)
    return mask.cast(q.dtype)


def _sees_any(mask: Tensor) -> Tensor:
    """For each query, whether the mask leaves any key: ``[…, m, 1]``."""
    greatest = of(ReduceMax((mask.ndim - 1,), True), mask) if mask.ndim else mask
    return greatest > -np.inf
