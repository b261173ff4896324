"""Gradient clipping: functions of a dict of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from modelcc.optim.optimizer import Tensors
from modelcc.tensor.tensor import Tensor

EPSILON = 1e-6
"""Added to a norm before dividing by it, as in torch."""


class Clipping(Protocol):
    """A function of gradients by path."""

    def __call__(self, grads: Tensors) -> dict[str, Tensor]:
        """The clipped gradients."""
        ...


@dataclass(frozen=True)
class ClipValue:
    """Clips every element to ``-limit`` … ``limit``."""

    limit: float

    def __call__(self, grads: Tensors) -> dict[str, Tensor]:
        return {p: g.clip(-self.limit, self.limit) for p, g in grads.items()}


@dataclass(frozen=True)
class ClipNorm:
    """Each gradient scaled down to a Euclidean norm of ``limit`` if it has more."""

    limit: float

    def __call__(self, grads: Tensors) -> dict[str, Tensor]:
        return {path: _scaled(g, global_norm({path: g}), self.limit) for path, g in grads.items()}


@dataclass(frozen=True)
class ClipGlobalNorm:
    """All gradients scaled down together to a norm of ``limit``, as ``clip_grad_norm_`` does."""

    limit: float

    def __call__(self, grads: Tensors) -> dict[str, Tensor]:
        if not grads:
            return {}
        norm = global_norm(grads)
        return {path: _scaled(grad, norm, self.limit) for path, grad in grads.items()}


def global_norm(grads: Tensors) -> Tensor:
    """The Euclidean norm of all gradients together, a scalar; 0 if there are none."""
    return _sum([_squares(grad) for grad in grads.values()]).sqrt()


def _scaled(grad: Tensor, norm: Tensor, limit: float) -> Tensor:
    return grad * (limit / (norm + EPSILON)).minimum(1.0).astype(grad.dtype)


def _squares(grad: Tensor) -> Tensor:
    wide = grad.astype("f32") if grad.dtype.bits < 32 else grad
    return wide.square().sum()


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0] if terms else Tensor(0.0)
    for term in terms[1:]:
        total = total + term
    return total
