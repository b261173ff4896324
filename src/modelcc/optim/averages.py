"""Running means that optimisers keep."""

from __future__ import annotations

from modelcc.tensor.tensor import Tensor


def mixed(mean: Tensor, fresh: Tensor, decay: float) -> Tensor:
    """``decay`` of the mean so far, and the rest of ``fresh``."""
    return mean + (fresh - mean) * (1.0 - decay)
