"""Dropout: random elements become 0, by an explicit key."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, product
from modelcc.ir.types import F32, U32
from modelcc.nn.functional.values import as_tensor, of, part, reshaped, where
from modelcc.ops.arithmetic import Cast
from modelcc.ops.generate import Iota
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor


def new_key(rng: np.random.Generator) -> Tensor:
    """A key of random numbers: two words."""
    return Tensor(rng.integers(0, 2**32, 2, np.uint32))


def next_key(key: Tensor) -> Tensor:
    """The key after ``key``."""
    return key + Tensor(np.array([0, 1], np.uint32))


def uniform(key: Tensor, *shape: Index) -> Tensor:
    """Uniform f32 in [0, 1), one per position, by the two words of ``key``.

    The hash is Wellons' lowbias32 (Hash Function Prospector, 2018).
    """
    line = key.result(Iota((product(shape),), 0, 0, 1, U32))
    first, second = (part(key, 0, i, 1) for i in (0, 1))
    words = _mixed(_mixed(_mixed(line + first)) ^ _mixed(second + 1))
    return reshaped(of(Cast(F32), words >> 8) * 2.0**-24, *shape)


def _mixed(x: Tensor) -> Tensor:
    for bits, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> bits)) * factor
    return x ^ (x >> 16)


def dropout(x: Any, p: float = 0.5, training: bool = True, *, key: Tensor | None = None) -> Tensor:
    """In ``training``, 0 with probability ``p``, others scaled by ``1 / (1 - p)``; else x.

    Srivastava et al., "Dropout", 2014.
    """
    return _dropped(as_tensor(x), p, training, key, as_tensor(x).shape)


def feature_dropout(
    x: Any, p: float = 0.5, training: bool = True, *, key: Tensor | None = None
) -> Tensor:
    """As :func:`dropout`, on whole channels of ``[N, C, *S]``."""
    x = as_tensor(x)
    return _dropped(x, p, training, key, (*x.shape[:2], *(1,) * (x.ndim - 2)))


def _dropped(
    x: Tensor, p: float, training: bool, key: Tensor | None, shape: tuple[Index, ...]
) -> Tensor:
    if not 0 <= p <= 1:
        raise ModelError(f"a chance of {p} to drop an element", callers_line())
    if not training or p == 0:
        return x
    if key is None:
        raise ModelError("dropout in training needs a key of random numbers", callers_line(),
                         "pass key=, or use the layer Dropout, which has one")  # fmt: skip
    kept = uniform(key, *shape) >= p
    return where(kept, x * (1 / (1 - p) if p < 1 else 0.0), 0.0)
