"""Resizing and padding of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, floordiv
from modelcc.ir.types import Array
from modelcc.nn.functional.pooling import adaptive_average_pool
from modelcc.nn.functional.values import as_tensor, of
from modelcc.ops.gather import Gather
from modelcc.ops.padding import Pad
from modelcc.ops.resize import Resize
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

Mode = Literal["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"]
RANKS = (("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2))
"""Spatial axes of the modes that fix their number."""

Factors = float | Sequence[float]


def interpolate(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: Factors | None = None,
    mode: Mode = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """``[N, C, *S]`` resized to ``size``, or by ``scale_factor``.

    ``align_corners`` is for linear and cubic modes: pixels are points, the outer ones stay.
    With ``recompute_scale_factor`` positions are computed from the extents, not the given factor.
    """
    x = as_tensor(x)
    rank = x.ndim - 2
    _check(x, mode, align_corners)
    extents, factors = _extents(x, rank, size, scale_factor)
    if mode == "area":
        return adaptive_average_pool(rank, x, [_known(e) for e in extents])
    given = (None,) * rank if recompute_scale_factor or factors is None else factors
    resizing = _Resizing(extents, given, mode, bool(align_corners), antialias)
    return resizing.nearest(x) if mode.startswith("nearest") else of(resizing.op(x), x)


def _check(x: Tensor, mode: str, align_corners: bool | None) -> None:
    rank = x.ndim - 2
    known = dict(RANKS)
    if mode not in (*known, "nearest", "nearest-exact", "area") or known.get(mode, rank) != rank:
        raise ModelError(f"interpolation of {x.type} by {mode!r}", callers_line(),
                         "linear is for one spatial axis, bilinear and bicubic for two, trilinear "
                         "for three, nearest for any")  # fmt: skip
    if align_corners is not None and mode not in known:
        message = f"align_corners with interpolation by {mode!r}"
        raise ModelError(message, callers_line(), "it is for linear and cubic modes")


def _extents(
    x: Tensor, rank: int, size: int | Sequence[int] | None, factor: Factors | None
) -> tuple[tuple[Index, ...], tuple[float, ...] | None]:
    """Extents of the result, and the factors if given."""
    if (size is None) == (factor is None):
        raise ModelError("interpolate needs either a size or a scale_factor", callers_line())
    if size is not None:
        given = (size,) * rank if isinstance(size, int) else tuple(size)
        _require_each(given, rank, "sizes")
        return given, None
    assert factor is not None
    factors = (float(factor),) * rank if isinstance(factor, int | float) else tuple(factor)
    _require_each(factors, rank, "factors")
    return tuple(_scaled(e, f) for e, f in zip(x.shape[2:], factors, strict=True)), factors


def _require_each(given: Sequence[float], rank: int, what: str) -> None:
    if len(given) != rank:
        message = f"interpolate has {what} {list(given)} for {rank} spatial axes"
        raise ModelError(message, callers_line())


def _scaled(extent: Index, factor: float) -> Index:
    if isinstance(extent, int):
        return int(extent * factor)
    ratio = Fraction(factor)
    return floordiv(extent * ratio.numerator, ratio.denominator)


def _known(extent: Index) -> int | None:
    return extent if isinstance(extent, int) else None


@dataclass(frozen=True)
class _Resizing:
    """Resizing to extents, by factors if given."""

    extents: tuple[Index, ...]
    factors: tuple[float | None, ...]
    mode: str
    align_corners: bool
    antialias: bool

    def op(self, x: Tensor) -> Resize:
        """The op that computes it."""
        exact, nearest = self.mode == "nearest-exact", self.mode.startswith("nearest")
        cubic = self.mode == "bicubic"
        given = (None,) * len(self.factors) if self.align_corners else self.factors
        place = "align_corners" if self.align_corners else "half_pixel"
        return Resize(
            (*x.shape[:2], *self.extents),
            (1.0, 1.0, *given),
            "nearest" if nearest else "cubic" if cubic else "linear",
            "asymmetric" if nearest and not exact else place,
            "round_prefer_ceil" if exact else "floor",
            cubic_a=-0.5 if self.antialias else -0.75,
            exclude_outside=self.antialias,
            antialias=self.antialias,
        )

    def nearest(self, x: Tensor) -> Tensor:
        """By gathering where PyTorch's f32 arithmetic selects other elements than exact
        arithmetic."""
        op = self.op(x)
        axes = range(2, x.ndim)
        known = all(isinstance(x.shape[a], int) and isinstance(op.shape[a], int) for a in axes)
        if not known or all(self._agrees(op, x, axis) for axis in axes):
            return of(op, x)
        for axis in axes:
            x = of(Gather(axis), x, as_tensor(self._places(x, axis)))
        return x

    def _agrees(self, op: Resize, x: Tensor, axis: int) -> bool:
        return np.array_equal(self._places(x, axis), op.taps(axis, x.shape[axis])[0][:, 0])

    def _places(self, x: Tensor, axis: int) -> Array:
        """The source index of each result along an axis, as in PyTorch."""
        size, count, factor = x.shape[axis], self.extents[axis - 2], self.factors[axis - 2]
        assert isinstance(size, int) and isinstance(count, int)
        exact = self.mode == "nearest-exact"
        if count == size or (count == 2 * size and not exact):
            return np.arange(count) // (count // size if size else 1)
        ratio = np.float32(size) / np.float32(count) if factor is None else np.float32(1 / factor)
        at = np.arange(count, dtype=np.float32) + np.float32(0.5 if exact else 0)
        return np.minimum(np.floor(at * ratio).astype(np.int64), size - 1)


def pad(
    x: Any,
    pad: Sequence[int],
    mode: Literal["constant", "reflect", "replicate", "circular"] = "constant",
    value: float = 0.0,
) -> Tensor:
    """Pads the last axes: ``pad`` has before and after of the last axis, then of the one before.

    Negative amounts crop.
    """
    x = as_tensor(x)
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ModelError(f"pad {list(pad)} of {x.type}", callers_line(),
                         "give two numbers for each axis, the last axis first")  # fmt: skip
    lead = (0,) * (x.ndim - len(pad) // 2)
    before, after = tuple(pad[::2])[::-1], tuple(pad[1::2])[::-1]
    known: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode != "constant" and mode not in known:
        raise ModelError(f"pad by mode {mode!r}", callers_line(),
                         "there are constant, reflect, replicate and circular")  # fmt: skip
    return of(Pad((*lead, *before), (*lead, *after), known.get(mode, "constant"), value), x)
