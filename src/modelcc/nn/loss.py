"""Losses as modules: those of :mod:`modelcc.nn.functional`, with their settings."""

from __future__ import annotations

from typing import Any, Literal

from modelcc.nn.functional import classification, losses
from modelcc.nn.functional.losses import Reduction
from modelcc.nn.module import Module
from modelcc.tensor.tensor import Tensor


class CrossEntropyLoss(Module):
    __doc__ = classification.cross_entropy.__doc__
    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = classification.IGNORED,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        """``weight`` is that of each class."""
        self.weight, self.ignore_index = weight, ignore_index
        self.reduction, self.label_smoothing = reduction, label_smoothing

    def forward(self, x: Any, target: Any) -> Tensor:
        return classification.cross_entropy(
            x, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


class NLLLoss(Module):
    __doc__ = classification.nll_loss.__doc__
    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = classification.IGNORED,
        reduction: Reduction = "mean",
    ) -> None:
        """``weight`` is that of each class."""
        self.weight, self.ignore_index, self.reduction = weight, ignore_index, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return classification.nll_loss(x, target, self.weight, self.ignore_index, self.reduction)


class BCELoss(Module):
    __doc__ = losses.binary_cross_entropy.__doc__
    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        """``weight`` is that of each element."""
        self.weight, self.reduction = weight, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.binary_cross_entropy(x, target, self.weight, self.reduction)


class BCEWithLogitsLoss(Module):
    __doc__ = losses.binary_cross_entropy_with_logits.__doc__
    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        """``weight`` is that of each element, ``pos_weight`` that of positive ones."""
        self.weight, self.reduction, self.pos_weight = weight, reduction, pos_weight

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.binary_cross_entropy_with_logits(
            x, target, self.weight, self.reduction, self.pos_weight
        )


class _Loss(Module):
    """Base: how costs become one number."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        """``reduction`` is mean, sum or none."""
        self.reduction = reduction


class MSELoss(_Loss):
    __doc__ = losses.mse_loss.__doc__

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.mse_loss(x, target, self.reduction)


class L1Loss(_Loss):
    __doc__ = losses.l1_loss.__doc__

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.l1_loss(x, target, self.reduction)


class HuberLoss(Module):
    __doc__ = losses.huber_loss.__doc__

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0) -> None:
        """``delta`` is where the line begins."""
        self.reduction, self.delta = reduction, delta

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.huber_loss(x, target, self.reduction, self.delta)


class SmoothL1Loss(Module):
    __doc__ = losses.smooth_l1_loss.__doc__

    def __init__(self, reduction: Reduction = "mean", beta: float = 1.0) -> None:
        """``beta`` is where the line begins."""
        self.reduction, self.beta = reduction, beta

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.smooth_l1_loss(x, target, self.reduction, self.beta)


class KLDivLoss(Module):
    __doc__ = losses.kl_div.__doc__

    def __init__(
        self,
        reduction: Literal["mean", "sum", "none", "batchmean"] = "mean",
        log_target: bool = False,
    ) -> None:
        """``log_target`` says that targets are logarithms, too."""
        self.reduction: Literal["mean", "sum", "none", "batchmean"] = reduction
        self.log_target = log_target

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.kl_div(x, target, self.reduction, self.log_target)
