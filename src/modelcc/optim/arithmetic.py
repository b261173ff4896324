"""Formulas that optimisers and schedules share."""

from __future__ import annotations

from modelcc.ops.comparison import Max, Min, Where
from modelcc.tensor.tensor import Tensor

Scalar = Tensor | float


def mixed(mean: Tensor, fresh: Tensor, decay: float) -> Tensor:
    """A running mean: ``decay`` of what it was, the rest of ``fresh``."""
    return mean + (fresh - mean) * (1.0 - decay)


def where(condition: Tensor, a: Scalar, b: Scalar) -> Tensor:
    """``a`` where ``condition`` holds, else ``b``: f64 scalars."""
    first, second = (x if isinstance(x, Tensor) else Tensor(x, "f64") for x in (a, b))
    return condition.result(Where(), condition, first, second)


def least(a: Tensor, b: Scalar) -> Tensor:
    """The lesser of both."""
    return a.result(Min(), *a.alike(b))


def greatest(a: Tensor, b: Scalar) -> Tensor:
    """The greater of both."""
    return a.result(Max(), *a.alike(b))
