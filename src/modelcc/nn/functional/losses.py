"""Regression and probability losses, under PyTorch's names."""

from __future__ import annotations

import math
from typing import Any, Literal

from modelcc.ir.errors import ModelError
from modelcc.nn.functional.activation import logsigmoid
from modelcc.nn.functional.values import as_tensor, averaged, of, summed, where
from modelcc.ops.activation import Clip, Softplus
from modelcc.ops.comparison import Abs
from modelcc.ops.generate import Indices
from modelcc.ops.transcendental import Exp, Log
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

Reduction = Literal["mean", "sum", "none"]


def reduced(costs: Tensor, reduction: Reduction) -> Tensor:
    """The mean or the sum of all losses, or the losses themselves."""
    if reduction == "none":
        return costs
    if reduction == "mean":
        return averaged(costs) if costs.ndim else costs
    if reduction == "sum":
        return summed(costs) if costs.ndim else costs
    raise ModelError(f"reduction is {reduction!r}", callers_line(), "give mean, sum or none")


def matched(what: str, x: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors of one shape; :class:`ModelError` if they differ."""
    x, target = as_tensor(x), as_tensor(target)
    pairs = zip(x.shape, target.shape, strict=False)
    known = all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))
    if x.ndim != target.ndim or not known:
        raise ModelError(f"{what} of {x.type} against targets {target.type}", callers_line(),
                         "both need one shape")  # fmt: skip
    return x, target


def mse_loss(x: Any, target: Any, reduction: Reduction = "mean") -> Tensor:
    """``(x - target)^2``."""
    x, target = matched("mse_loss", x, target)
    difference = x - target
    return reduced(difference * difference, reduction)


def l1_loss(x: Any, target: Any, reduction: Reduction = "mean") -> Tensor:
    """``|x - target|``."""
    x, target = matched("l1_loss", x, target)
    return reduced(of(Abs(), x - target), reduction)


def huber_loss(x: Any, target: Any, reduction: Reduction = "mean", delta: float = 1.0) -> Tensor:
    """``(x - target)^2 / 2`` up to a distance of ``delta``, linear beyond."""
    x, target = matched("huber_loss", x, target)
    distance = of(Abs(), x - target)
    line = (distance - 0.5 * delta) * delta
    return reduced(where(distance < delta, distance * distance * 0.5, line), reduction)


def smooth_l1_loss(x: Any, target: Any, reduction: Reduction = "mean", beta: float = 1.0) -> Tensor:
    """``(x - target)^2 / (2 beta)`` up to a distance of ``beta``, linear beyond."""
    if beta == 0:
        return l1_loss(x, target, reduction)
    x, target = matched("smooth_l1_loss", x, target)
    distance = of(Abs(), x - target)
    square = distance * distance * (0.5 / beta)
    return reduced(where(distance < beta, square, distance - 0.5 * beta), reduction)


def binary_cross_entropy(
    x: Any, target: Any, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """``-target log x - (1 - target) log (1 - x)`` of probabilities; logarithms are at least
    -100."""
    x, target = matched("binary_cross_entropy", x, target)
    floor = Clip(-100.0, None)
    hit, miss = of(floor, of(Log(), x)), of(floor, of(Log(), 1 - x))
    return reduced(_weighted(-(target * hit + (1 - target) * miss), weight), reduction)


def binary_cross_entropy_with_logits(
    x: Any,
    target: Any,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """:func:`binary_cross_entropy` of ``sigmoid(x)``; ``pos_weight`` weighs the positive part."""
    x, target = matched("binary_cross_entropy_with_logits", x, target)
    if pos_weight is None:
        costs = x - x * target + of(Softplus(), -x)
    else:
        factor = (pos_weight - 1) * target + 1
        costs = (1 - target) * x - factor * logsigmoid(x)
    return reduced(_weighted(costs, weight), reduction)


def kl_div(
    x: Any,
    target: Any,
    reduction: Literal["mean", "sum", "none", "batchmean"] = "mean",
    log_target: bool = False,
) -> Tensor:
    """``target * (log target - x)`` for logarithms x; 0 where the target is 0."""
    x, target = matched("kl_div", x, target)
    if log_target:
        costs = of(Exp(), target) * (target - x)
    else:
        seen = target > 0
        logarithm = of(Log(), where(seen, target, 1.0))
        costs = where(seen, target * (logarithm - x), 0.0)
    if reduction == "batchmean":
        size = x.result(Indices((x.shape[0],), (), x.dtype))
        return summed(costs) / size
    return reduced(costs, reduction)


def poisson_nll_loss(
    x: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: Reduction = "mean",
) -> Tensor:
    """The negative log-likelihood of counts; ``full`` adds Stirling's term."""
    x, target = matched("poisson_nll_loss", x, target)
    costs = of(Exp(), x) - target * x if log_input else x - target * of(Log(), x + eps)
    if full:
        safe = where(target > 1, target, 2.0)
        stirling = safe * of(Log(), safe) - safe + of(Log(), safe * (2 * math.pi)) * 0.5
        costs = costs + where(target > 1, stirling, 0.0)
    return reduced(costs, reduction)


def _weighted(costs: Tensor, weight: Tensor | None) -> Tensor:
    return costs if weight is None else costs * weight
