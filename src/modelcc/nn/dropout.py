"""Dropout with a key of random numbers of its own, which moves on at every call in training."""

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


class _Dropout(Module):
    """Base: the chance, and the key, which is in no state dict."""

    key: Tensor

    def __init__(self, p: float = 0.5, *, rng: Rng = None) -> None:
        """``p`` is the chance of an element to become 0."""
        if not 0 <= p <= 1:
            raise ModelError(f"a chance of {p} to drop an element", callers_line())
        self.p = p
        self.reset_parameters(init.generator(rng))

    def reset_parameters(self, rng: np.random.Generator) -> None:
        """Draw the key anew."""
        self.key = Buffer(new_key(rng), persistent=False)

    def moved_key(self) -> Tensor:
        """The key of this call; the next one takes the place of it."""
        key = self.key
        if self.training and self.p:
            self.key = next_key(key)
        return key


class Dropout(_Dropout):
    """In training, elements are 0 with chance ``p``, and others are scaled to keep the mean."""

    def forward(self, x: Any) -> Tensor:
        return dropout(x, self.p, self.training, key=self.moved_key())


class Dropout1d(_Dropout):
    """In training, whole channels of ``[N, C, L]`` are 0 with chance ``p``."""

    def forward(self, x: Any) -> Tensor:
        return feature_dropout(x, self.p, self.training, key=self.moved_key())


class Dropout2d(Dropout1d):
    """In training, whole channels of ``[N, C, H, W]`` are 0 with chance ``p``."""


class Dropout3d(Dropout1d):
    """In training, whole channels of ``[N, C, D, H, W]`` are 0 with chance ``p``."""
