"""Classification losses: cross-entropy, its parts and variants."""

from __future__ import annotations

from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ir.types import I64
from modelcc.nn.functional.activation import log_softmax
from modelcc.nn.functional.losses import (
    Reduction,
    binary_cross_entropy_with_logits,
    matched,
    reduced,
)
from modelcc.nn.functional.values import as_tensor, of, reshaped, summed, where
from modelcc.ops.gather import Gather
from modelcc.ops.gather_elements import GatherElements
from modelcc.ops.generate import Indices
from modelcc.ops.transcendental import Exp, Sigmoid
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

IGNORED = -100
"""The class that is ignored by default."""


def cross_entropy(
    x: Any,
    target: Any,
    weight: Tensor | None = None,
    ignore_index: int = IGNORED,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """``-log softmax(x)`` at the targets, for x ``[N, C, *S]`` or ``[C]`` along its classes.

    Targets are classes ``[N, *S]`` (integers), or probabilities in the shape of x.  ``weight``
    ``[C]`` weighs classes, and the mean is by their weights.
    """
    x, target = as_tensor(x), as_tensor(target)
    logarithms = log_softmax(x, 1 if x.ndim > 1 else 0)
    if target.dtype.is_float:
        return _by_chances(logarithms, target, weight, reduction, label_smoothing)
    target = target.cast(I64)
    if not label_smoothing:
        return nll_loss(logarithms, target, weight, ignore_index, reduction)
    costs, weights = _picked(logarithms, target, weight, ignore_index)
    spread = _spread(logarithms, weight)
    classes = logarithms.shape[1 if logarithms.ndim > 1 else 0]
    smooth = where(target != ignore_index, spread, 0.0) * (label_smoothing / _whole(classes))
    total = costs * (1 - label_smoothing) + smooth
    return _mean_by_weights(total, weights, reduction)


def nll_loss(
    x: Any,
    target: Any,
    weight: Tensor | None = None,
    ignore_index: int = IGNORED,
    reduction: Reduction = "mean",
) -> Tensor:
    """``-x`` at the targets, for logarithms x ``[N, C, *S]`` and classes ``[N, *S]``.

    A class out of range fails the run; ``ignore_index`` is ignored.
    """
    costs, weights = _picked(as_tensor(x), as_tensor(target), weight, ignore_index)
    return _mean_by_weights(costs, weights, reduction)


def _picked(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Losses of the targets, and the weight of each."""
    axis = 1 if x.ndim > 1 else 0
    if target.dtype.is_float or target.ndim != x.ndim - 1:
        raise ModelError(f"targets {target.type} for classes along axis {axis} of {x.type}",
                         callers_line(), "give the number of a class for each row")  # fmt: skip
    target = target.cast(I64)
    seen = target != ignore_index
    safe = where(seen, target, 0)
    places = reshaped(safe, *safe.shape[:axis], 1, *safe.shape[axis:])
    found = reshaped(of(GatherElements(axis, signed=False), x, places), *target.shape)
    each = seen.cast(x.dtype) if weight is None else _class_weights(weight, safe, seen)
    return -where(seen, found, 0.0) * (1.0 if weight is None else each), each


def _class_weights(weight: Tensor, target: Tensor, seen: Tensor) -> Tensor:
    return where(seen, of(Gather(0), weight, target), 0.0)


def _mean_by_weights(costs: Tensor, weights: Tensor, reduction: Reduction) -> Tensor:
    if reduction != "mean":
        return reduced(costs, reduction)
    if not costs.ndim:
        return costs / weights
    return summed(costs) / summed(weights)


def _spread(logarithms: Tensor, weight: Tensor | None) -> Tensor:
    """The sum of the losses over all classes."""
    axis = 1 if logarithms.ndim > 1 else 0
    if weight is not None:
        logarithms = logarithms * _along(weight, axis, logarithms.ndim)
    return -summed(logarithms, axis)


def _along(weight: Tensor, axis: int, rank: int) -> Tensor:
    return reshaped(weight, *(weight.shape[0], *(1,) * (rank - axis - 1)))


def _whole(extent: Any) -> int:
    if not isinstance(extent, int):
        raise ModelError(f"the number of classes must be known, not {extent}", callers_line())
    return extent


def _by_chances(
    logarithms: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: Reduction,
    smoothing: float,
) -> Tensor:
    logarithms, target = matched("cross_entropy", logarithms, target)
    axis = 1 if logarithms.ndim > 1 else 0
    if smoothing:
        target = target * (1 - smoothing) + smoothing / _whole(logarithms.shape[axis])
    costs = logarithms * target
    if weight is not None:
        costs = costs * _along(weight, axis, costs.ndim)
    costs = -summed(costs, axis)
    if reduction != "mean":
        return reduced(costs, reduction)
    total = summed(costs) if costs.ndim else costs
    rows = 1
    for extent in costs.shape:
        rows = rows * extent
    return total / total.result(Indices((rows,), (), total.dtype))


def sigmoid_focal_loss(
    x: Any, target: Any, alpha: float = 0.25, gamma: float = 2.0, reduction: Reduction = "none"
) -> Tensor:
    """Cross-entropy of ``sigmoid(x)`` by ``(1 - p)^gamma``, p the probability of the right answer.

    ``alpha`` weighs the positive ones, unless it is below 0; defaults are torchvision's.
    Lin et al., "Focal loss for dense object detection", 2017.
    """
    x, target = matched("sigmoid_focal_loss", x, target)
    chance = of(Sigmoid(), x)
    right = chance * target + (1 - chance) * (1 - target)
    costs = binary_cross_entropy_with_logits(x, target, reduction="none")
    costs = costs * (1 - right) ** gamma
    if alpha >= 0:
        costs = costs * (alpha * target + (1 - alpha) * (1 - target))
    return reduced(costs, reduction)


def focal_loss(
    x: Any,
    target: Any,
    alpha: Tensor | None = None,
    gamma: float = 2.0,
    ignore_index: int = IGNORED,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy of classes by ``(1 - p)^gamma``, p the probability of the target.

    ``alpha`` ``[C]`` weighs classes; the mean is over the targets that are not ignored, unweighted.
    """
    x, target = as_tensor(x), as_tensor(target)
    logarithms = log_softmax(x, 1 if x.ndim > 1 else 0)
    costs, seen = _picked(logarithms, target, None, ignore_index)
    costs = costs * (1 - of(Exp(), -costs)) ** gamma
    if alpha is not None:
        costs = costs * of(Gather(0), alpha, where(seen > 0, target.cast(I64), 0))
    return _mean_by_weights(costs, seen, reduction)
