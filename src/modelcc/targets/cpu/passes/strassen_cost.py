"""When Strassen's algorithm is faster than the plain product: estimated cycles of one core."""

from __future__ import annotations

from dataclasses import dataclass

BLOCKS = (48, 32)
"""Columns of a block.  Wider ones would read more than L2 gives while few rows are computed."""

LARGEST_BLOCK = 256
"""Rows of a block, for its sums to stay in cache."""


@dataclass(frozen=True)
class Split:
    """``half`` of the halved rows in ``half / inner`` blocks, columns in blocks of ``columns``.

    ``rest`` rows are left over (of a single block only).
    """

    half: int
    inner: int
    rest: int
    columns: int


@dataclass(frozen=True)
class StrassenCost:
    """Cycles from operation counts and bytes moved; what is moved was measured on Zen 5.

    ``lanes`` f32 per vector, ``fmas`` per cycle.  ``margin``: how many times faster it must look.
    """

    lanes: int = 16
    fmas: int = 2
    margin: float = 1.04

    def choose(self, halved: int, others: int, n: int, k: int) -> Split | None:
        """How to split ``halved`` × ``others`` rows; None if the plain product is faster."""
        columns = next((b for b in BLOCKS if n % (2 * b) == 0), None)
        half = halved // 2
        if columns is None or k % 32 or half * others < 2 * self.lanes:
            return None
        inner = max((d for d in range(1, half + 1) if _fits(d, half, others)), default=None)
        if inner is None or (halved % 2 and inner != half):
            return None
        split = Split(half, inner, halved % 2, columns)
        faster = self.direct(halved * others, n, k) / self.margin
        return split if self.strassen(split, others, n, k) < faster else None

    def direct(self, rows: int, n: int, k: int) -> float:
        """Cycles of the plain product."""
        return rows * n * k / (self.lanes * self.fmas * 0.97)

    def strassen(self, split: Split, others: int, n: int, k: int) -> float:
        """Cycles of seven products of half the size, of sums and of rows left over."""
        rows = split.half * others
        products = 7 * rows * (n / 2) * (k / 2) / (self.lanes * self.fmas * 0.95)
        sums = rows * (k / 2) / self.lanes * 14
        results = rows * (n / 2) / self.lanes * 14
        # A few rows cannot hide the latency of multiply-adds.
        rest = split.rest * max(others / self.fmas, 1.3) * n * k / self.lanes
        return products + sums + results + rest


def _fits(inner: int, half: int, others: int) -> bool:
    return half % inner == 0 and inner * others <= LARGEST_BLOCK
