"""Lengths, distances and angles of vectors, and losses of them."""

from __future__ import annotations

from typing import Any

from modelcc.nn.functional.losses import Reduction, reduced
from modelcc.nn.functional.values import as_tensor, axis_of, of, summed, where
from modelcc.ops.activation import Clip, Relu
from modelcc.ops.comparison import Abs
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.transcendental import Pow, Sqrt
from modelcc.tensor.tensor import Tensor


def vector_norm(x: Any, p: float = 2.0, dim: int = -1, keepdim: bool = False) -> Tensor:
    """``(sum of |x|^p)^(1/p)`` along an axis; the maximum for p infinity."""
    x = as_tensor(x)
    axis = axis_of(x, dim)
    if p == 2:
        return of(Sqrt(), summed(x * x, axis, keepdims=keepdim))
    size = of(Abs(), x)
    if p == float("inf"):
        return of(ReduceMax((axis,), keepdim), size)
    total = summed(size if p == 1 else size**p, axis, keepdims=keepdim)
    return total if p == 1 else of(Pow(), total, total.of_number(1 / p, total.dtype))


def normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """``x / max(norm, eps)``, the p-norm along an axis."""
    x = as_tensor(x)
    return x / of(Clip(eps, None), vector_norm(x, p, dim, keepdim=True))


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle of vectors along an axis; lengths are at least ``eps``."""
    x1, x2 = as_tensor(x1), as_tensor(x2)
    wide = axis_of(x1 if x1.ndim >= x2.ndim else x2, dim) - max(x1.ndim, x2.ndim)
    return summed(normalize(x1, 2, wide, eps) * normalize(x2, 2, wide, eps), _axis(x1, x2, wide))


def _axis(x1: Tensor, x2: Tensor, dim: int) -> int:
    return max(x1.ndim, x2.ndim) + dim


def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last axis."""
    return vector_norm(as_tensor(x1) - as_tensor(x2) + eps, p, -1, keepdim)


def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """``max(d(anchor, positive) - d(anchor, negative) + margin, 0)`` with the p-norm's distance d.

    With ``swap`` the smaller of the negative's distances from anchor and positive is used.
    """
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        other = pairwise_distance(positive, negative, p, eps)
        far = where(other < far, other, far)
    return reduced(of(Relu(), near - far + margin), reduction)


def cosine_embedding_loss(
    x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: Reduction = "mean"
) -> Tensor:
    """``1 - cosine`` where the target is 1, ``max(cosine - margin, 0)`` where it is -1."""
    cosine = cosine_similarity(x1, x2, -1)
    apart = of(Relu(), cosine - margin)
    return reduced(where(as_tensor(target) > 0, 1 - cosine, apart), reduction)


def margin_ranking_loss(
    x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: Reduction = "mean"
) -> Tensor:
    """``max(-target * (x1 - x2) + margin, 0)`` for targets 1 or -1."""
    distance = as_tensor(x1) - as_tensor(x2)
    return reduced(of(Relu(), -as_tensor(target) * distance + margin), reduction)
