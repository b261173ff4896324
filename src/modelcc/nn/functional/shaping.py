"""Data movement: flattening, and pixel shuffling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ir.index import floordiv, product
from modelcc.nn.functional.values import as_tensor, axis_of, permuted, reshaped
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor


def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Axes from ``start_dim`` to ``end_dim`` merged into one."""
    x = as_tensor(x)
    if not x.ndim:
        return reshaped(x, 1)
    first, last = axis_of(x, start_dim), axis_of(x, end_dim)
    inner = product(x.shape[first : last + 1])
    return reshaped(x, *x.shape[:first], inner, *x.shape[last + 1 :])


def unflatten(x: Any, dim: int, sizes: Sequence[int]) -> Tensor:
    """Axis ``dim`` split into several; one of their extents may be -1."""
    x = as_tensor(x)
    axis = axis_of(x, dim)
    known = prod(s for s in sizes if s != -1)
    extents = [floordiv(x.shape[axis], known) if s == -1 else s for s in sizes]
    return reshaped(x, *x.shape[:axis], *extents, *x.shape[axis + 1 :])


def pixel_shuffle(x: Any, upscale_factor: int) -> Tensor:
    """``[…, C r^2, H, W]`` to ``[…, C, H r, W r]`` (Shi et al., 2016)."""
    x = as_tensor(x)
    *lead, channels, height, width = x.shape
    r = upscale_factor
    if isinstance(channels, int) and channels % (r * r):
        raise ModelError(f"{channels} channels of {x.type} do not divide into {r} x {r} pixels",
                         callers_line())  # fmt: skip
    count = floordiv(channels, r * r)
    n = len(lead)
    parts = reshaped(x, *lead, count, r, r, height, width)
    turned = permuted(parts, *range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshaped(turned, *lead, count, height * r, width * r)


def pixel_unshuffle(x: Any, downscale_factor: int) -> Tensor:
    """``[…, C, H r, W r]`` to ``[…, C r^2, H, W]``."""
    x = as_tensor(x)
    *lead, channels, height, width = x.shape
    r = downscale_factor
    if any(isinstance(e, int) and e % r for e in (height, width)):
        raise ModelError(f"pixels of {x.type} do not divide by {r}", callers_line())
    n = len(lead)
    inner = (channels, floordiv(height, r), r, floordiv(width, r), r)
    turned = permuted(reshaped(x, *lead, *inner), *range(n), n, n + 2, n + 4, n + 1, n + 3)
    return reshaped(turned, *lead, channels * (r * r), floordiv(height, r), floordiv(width, r))
