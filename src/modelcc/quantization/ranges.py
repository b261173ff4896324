"""Choice of a tensor's quantisation range, scale and zero point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.types import Array, DType
from modelcc.ops.quant import limits
from modelcc.quantization.histogram import BINS, Histogram
from modelcc.quantization.settings import QuantizationSettings

SMALLEST = 1e-12
"""The minimum scale: that of a zero tensor."""

SHRINKS = np.geomspace(1.0, 1 / 64, 49)
"""Fractions of the whole range that are tried."""


@dataclass(frozen=True)
class Rounding:
    """``real = (q - zero) * scale`` with q of ``dtype``."""

    dtype: DType
    scale: np.float32
    zero: int

    @property
    def zero_point(self) -> Array:
        """The zero point as an array of the dtype."""
        return np.asarray(self.zero, self.dtype.numpy)

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """``x`` quantised and dequantised."""
        low, high = limits(self.dtype)
        q = np.clip(np.rint(x / self.scale) + self.zero, low, high)
        return (q - self.zero) * np.float64(self.scale)


def rounding(low: float, high: float, dtype: DType, symmetric: bool) -> Rounding:
    """The rounding for ``low`` to ``high``, which include 0."""
    least, most = limits(dtype)
    if symmetric:
        middle = 0 if dtype.kind == "int" else int(most + 1) // 2
        scale = max(-low, high) / (most - middle)
        return Rounding(dtype, np.float32(max(scale, SMALLEST)), middle)
    scale = np.float32(max((high - low) / (most - least), SMALLEST))
    return Rounding(dtype, scale, int(np.clip(np.rint(least - low / scale), least, most)))


def chosen_rounding(seen: Histogram, dtype: DType, settings: QuantizationSettings) -> Rounding:
    """By the method of the settings; 16 bits, finer than a histogram, cover the whole range."""
    symmetric = settings.symmetric
    low, high = seen.low, seen.high
    if dtype.bits <= 8 and seen.limit:
        match settings.method:
            case "percentile":
                low, high = percentile(seen, settings.percentile)
            case "entropy":
                low, high = entropy(seen, 1 << dtype.bits)
            case "mse":
                low, high = least_error(seen, dtype, symmetric)
            case _:
                pass
    return rounding(low, high, dtype, symmetric)


def percentile(seen: Histogram, share: float) -> tuple[float, float]:
    """The range without the smallest and the largest values, equally many, of ``100 - share`` %."""
    below = np.cumsum(seen.counts) / seen.counts.sum()
    tail = (100 - share) / 200
    first = int(np.searchsorted(below, tail, "right"))
    last = int(np.searchsorted(below, 1 - tail, "left"))
    edge = 2 * seen.limit / BINS
    low, high = first * edge - seen.limit, (last + 1) * edge - seen.limit
    return max(min(low, 0.0), seen.low), min(max(high, 0.0), seen.high)


def least_error(seen: Histogram, dtype: DType, symmetric: bool) -> tuple[float, float]:
    """The range with the least mean squared quantisation error.

    First both ends shrink together, then each separately.
    """
    used = seen.counts > 0
    values, counts = seen.centres[used], seen.counts[used].astype(np.float64)

    def error(shares: tuple[float, float]) -> float:
        ends = seen.low * shares[0], seen.high * shares[1]
        return float(counts @ (rounding(*ends, dtype, symmetric)(values) - values) ** 2)

    best = min(((s, s) for s in SHRINKS), key=error)
    for _ in range(0 if symmetric else 2):
        best = min(((s, best[1]) for s in SHRINKS), key=error)
        best = min(((best[0], s) for s in SHRINKS), key=error)
    return seen.low * best[0], seen.high * best[1]


def entropy(seen: Histogram, levels: int) -> tuple[float, float]:
    """The range with the least Kullback-Leibler divergence.

    Migacz, "8-bit inference with TensorRT", 2017: values beyond a threshold are clipped to it,
    others spread evenly over the bins of a level.  Zeros, which are exact, are excluded.
    """
    half = BINS // 2
    signed = seen.low < 0
    counts = seen.counts.copy()
    counts[half] = min(counts[half], counts[half + 1])
    count = counts if signed else counts[half:]
    middle = half if signed else 0
    widths = np.unique(np.geomspace(levels // 2 if signed else levels, half, 64).astype(int))
    scored = [(_divergence(count, middle, int(w), levels), w) for w in widths]
    _, width = min(scored)
    threshold = width * seen.limit / half
    return max(seen.low, -threshold), min(seen.high, threshold)


def _divergence(counts: NDArray[np.int64], middle: int, width: int, levels: int) -> float:
    """Between values clipped ``width`` bins from the middle, and those quantised to ``levels``."""
    first = max(middle - width, 0)
    inside = counts[first : middle + width].astype(np.float64)
    cut = inside.copy()
    cut[0] += counts[:first].sum()
    cut[-1] += counts[middle + width :].sum()
    starts = np.unique((np.arange(levels) * len(inside)) // levels)
    sums = np.add.reduceat(inside, starts)
    filled = np.add.reduceat((inside > 0).astype(np.float64), starts)
    lengths = np.diff([*starts, len(inside)])
    even = np.repeat(sums / np.maximum(filled, 1), lengths) * (inside > 0)
    p, q = cut / cut.sum(), even / max(even.sum(), 1)
    known = (p > 0) & (q > 0)
    lost = p[(p > 0) & (q <= 0)].sum()
    return float((p[known] * np.log(p[known] / q[known])).sum()) + 10 * float(lost)
