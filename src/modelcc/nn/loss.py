"""Losses as modules: those of :mod:`modelcc.nn.functional`, with their settings."""

from __future__ import annotations

from typing import Any, Literal

from modelcc.nn.functional import classification, losses, similarity
from modelcc.nn.functional.ctc import ctc_loss
from modelcc.nn.functional.losses import Reduction
from modelcc.nn.module import Module
from modelcc.tensor.tensor import Tensor


class CrossEntropyLoss(Module):
    __doc__ = classification.cross_entropy.__doc__
    weight: Tensor | None
    reduction: Reduction

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
    reduction: Reduction

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
    reduction: Reduction

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        """``weight`` is that of each element."""
        self.weight, self.reduction = weight, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.binary_cross_entropy(x, target, self.weight, self.reduction)


class BCEWithLogitsLoss(Module):
    __doc__ = losses.binary_cross_entropy_with_logits.__doc__
    weight: Tensor | None
    reduction: Reduction
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
    """Base: the reduction of losses."""

    reduction: Reduction

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
    reduction: Reduction

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0) -> None:
        """``delta`` is the distance from which it is linear."""
        self.reduction, self.delta = reduction, delta

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.huber_loss(x, target, self.reduction, self.delta)


class SmoothL1Loss(Module):
    __doc__ = losses.smooth_l1_loss.__doc__
    reduction: Reduction

    def __init__(self, reduction: Reduction = "mean", beta: float = 1.0) -> None:
        """``beta`` is the distance from which it is linear."""
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


class PoissonNLLLoss(Module):
    __doc__ = losses.poisson_nll_loss.__doc__
    reduction: Reduction

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: Reduction = "mean",
    ) -> None:
        """``log_input`` says that x are logarithms."""
        self.log_input, self.full, self.eps, self.reduction = log_input, full, eps, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return losses.poisson_nll_loss(
            x, target, self.log_input, self.full, self.eps, self.reduction
        )


class CTCLoss(Module):
    __doc__ = ctc_loss.__doc__
    reduction: Reduction

    def __init__(
        self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False
    ) -> None:
        """``blank`` is the blank class."""
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(
        self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
            self.zero_infinity,
        )  # fmt: skip


class FocalLoss(Module):
    __doc__ = classification.focal_loss.__doc__
    alpha: Tensor | None
    reduction: Reduction

    def __init__(
        self,
        alpha: Tensor | None = None,
        gamma: float = 2.0,
        ignore_index: int = classification.IGNORED,
        reduction: Reduction = "mean",
    ) -> None:
        """``alpha`` is the weight of each class."""
        self.alpha, self.gamma = alpha, gamma
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return classification.focal_loss(
            x, target, self.alpha, self.gamma, self.ignore_index, self.reduction
        )


class TripletMarginLoss(Module):
    __doc__ = similarity.triplet_margin_loss.__doc__
    reduction: Reduction

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        """``p`` is that of the norm."""
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap
        self.reduction = reduction

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        return similarity.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class CosineEmbeddingLoss(Module):
    __doc__ = similarity.cosine_embedding_loss.__doc__
    reduction: Reduction

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        """``margin`` is the cosine up to which dissimilar pairs have no loss."""
        self.margin, self.reduction = margin, reduction

    def forward(self, x1: Any, x2: Any, target: Any) -> Tensor:
        return similarity.cosine_embedding_loss(x1, x2, target, self.margin, self.reduction)


class MarginRankingLoss(Module):
    __doc__ = similarity.margin_ranking_loss.__doc__
    reduction: Reduction

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        """``margin`` is the distance from which there is no loss."""
        self.margin, self.reduction = margin, reduction

    def forward(self, x1: Any, x2: Any, target: Any) -> Tensor:
        return similarity.margin_ranking_loss(x1, x2, target, self.margin, self.reduction)


class CosineSimilarity(Module):
    __doc__ = similarity.cosine_similarity.__doc__

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        """``dim`` is the axis of the vectors."""
        self.dim, self.eps = dim, eps

    def forward(self, x1: Any, x2: Any) -> Tensor:
        return similarity.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    __doc__ = similarity.pairwise_distance.__doc__

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        """``p`` is that of the norm."""
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Any, x2: Any) -> Tensor:
        return similarity.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
