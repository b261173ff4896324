"""Decompositions for gradient scaling in half precision.

They match ``native/cuda/AmpKernels.cu``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def scaling_rules() -> dict[Any, Callable[..., Any]]:
    """Decompositions, by operator."""
    aten: Any = torch.ops.aten
    return {
        aten._amp_foreach_non_finite_check_and_unscale.default: _unscaled,
        aten._amp_update_scale.default: _next_scale,
    }


def _unscaled(
    grads: Sequence[Tensor], found_inf: Tensor, inverse: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Gradients times ``inverse``, and 1 if any of them is not finite."""
    for grad in grads:
        bad = torch.any(~torch.isfinite(grad))
        found_inf = torch.where(bad, torch.ones_like(found_inf), found_inf)
    return [(grad * inverse.to(torch.float32)).to(grad.dtype) for grad in grads], found_inf


def _next_scale(
    scale: Tensor, tracker: Tensor, found_inf: Tensor, growth: float, backoff: float, interval: int
) -> tuple[Tensor, Tensor]:
    """The scale of the next step, and the number of successful steps since it changed."""
    bad, counted = found_inf.to(torch.bool), tracker + 1
    due = torch.eq(counted, interval)
    grown = scale * growth
    larger = torch.where(due & torch.isfinite(grown), grown, scale)
    count = torch.where(bad | due, torch.zeros_like(tracker), counted)
    return torch.where(bad, scale * backoff, larger), count.to(tracker.dtype)
