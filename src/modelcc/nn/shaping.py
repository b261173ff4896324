"""Layers that reshape."""

from __future__ import annotations

from typing import Any

from modelcc.nn.functional.shaping import flatten, unflatten
from modelcc.nn.module import Module
from modelcc.tensor.tensor import Tensor


class Flatten(Module):
    """Axes from ``start_dim`` to ``end_dim`` merged into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        """By default all except the batch."""
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Any) -> Tensor:
        return flatten(x, self.start_dim, self.end_dim)


class Unflatten(Module):
    """One axis split into several; one of their extents may be -1."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        """``unflattened_size`` are the extents of axis ``dim``."""
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Any) -> Tensor:
        return unflatten(x, self.dim, self.unflattened_size)
