"""Dropout with its own random key, which advances at every call in training."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.nn import init
from modelcc.nn.functional.dropout import dropout, feature_dropout, new_key, next_key
from modelcc.nn.init import Rng
from modelcc.nn.module import Module
from modelcc.nn.roles import Buffer
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor


class Keyed(Module):
    """Base of layers with random numbers: a key of its own, excluded from state dicts."""

    key: Tensor

    def draw_key(self, rng: np.random.Generator) -> None:
        """Draws another key."""
        self.key = Buffer(new_key(rng), persistent=False)

    def moved_key(self, p: float) -> Tensor:
        """The key of this call; in training, if ``p`` is above 0, it advances."""
        key = self.key
        if self.training and p:
            self.key = next_key(key)
        return key


def chance(p: float) -> float:
    """``p``; :class:`ModelError` unless it is a probability."""
    if not 0 <= p <= 1:
        raise ModelError(f"a chance of {p} to drop an element", callers_line())
    return p


class _Dropout(Keyed):
    """Base: the probability."""

    def __init__(self, p: float = 0.5, inplace: bool = False, *, rng: Rng = None) -> None:
        """``p`` is the probability of an element to become 0; ``inplace`` has no effect."""
        self.p = chance(p)
        self.draw_key(init.generator(rng))

    def reset_parameters(self, rng: np.random.Generator) -> None:
        """Redraws the key."""
        self.draw_key(rng)


class Dropout(_Dropout):
    """In training, elements are 0 with probability ``p``, and others are scaled to keep the
    mean."""

    def forward(self, x: Any) -> Tensor:
        return dropout(x, self.p, self.training, key=self.moved_key(self.p))


class Dropout1d(_Dropout):
    """In training, whole channels of ``[N, C, L]`` are 0 with probability ``p``."""

    def forward(self, x: Any) -> Tensor:
        return feature_dropout(x, self.p, self.training, key=self.moved_key(self.p))


class Dropout2d(Dropout1d):
    """In training, whole channels of ``[N, C, H, W]`` are 0 with probability ``p``."""


class Dropout3d(Dropout1d):
    """In training, whole channels of ``[N, C, D, H, W]`` are 0 with probability ``p``."""
