"""Streaming histograms of a tensor's values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.types import Array

BINS = 4096
"""Bins of a histogram; at least half of them are in the observed range."""


@dataclass
class Histogram:
    """Minimum, maximum and counts of values in bins from ``-limit`` to ``limit``, a power of two.

    A value out of range doubles the limit, merging pairs of bins, so that one pass is enough.
    """

    low: float = 0.0
    high: float = 0.0
    limit: float = 0.0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, values: Array) -> None:
        """Counts ``values``, which are finite; the range includes 0."""
        if not values.size:
            return
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        self._reach(max(-self.low, self.high))
        if self.limit:
            place = values.reshape(-1).astype(np.float32) * np.float32(BINS / 2 / self.limit)
            bins = np.minimum((place + np.float32(BINS / 2)).astype(np.int64), BINS - 1)
            self.counts += np.bincount(bins, minlength=BINS)

    def merged(self, other: Histogram) -> Histogram:
        """The union of both histograms."""
        limit = max(self.limit, other.limit)
        parts = [_widened(h.counts, h.limit, limit) for h in (self, other)]
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Histogram(low, high, limit, parts[0] + parts[1])

    def _reach(self, most: float) -> None:
        if most <= self.limit:
            return
        limit = float(2.0 ** np.ceil(np.log2(max(most, 1e-30))))
        self.counts = _widened(self.counts, self.limit, limit)
        self.limit = limit

    @property
    def centres(self) -> NDArray[np.float64]:
        """The middle of each bin."""
        return (np.arange(BINS, dtype=np.float64) + 0.5) * (2 * self.limit / BINS) - self.limit


def _widened(counts: NDArray[np.int64], limit: float, to: float) -> NDArray[np.int64]:
    if not limit:
        return np.zeros(BINS, np.int64)
    for _ in range(round(np.log2(to / limit))):
        merged = counts.reshape(-1, 2).sum(1)
        counts = np.zeros(BINS, np.int64)
        counts[BINS // 4 : BINS // 4 + BINS // 2] = merged
    return counts
