"""When Strassen's algorithm is faster than the plain product: estimated cycles of one core."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.strassen_weights import QUADRANTS

BLOCKS = (48, 32)
"""Columns of a block.  Wider ones would exceed the L2 bandwidth while few rows are computed."""

LARGEST_BLOCK = 256
"""Rows of a block, for its sums to stay in cache."""

HIDDEN = 0.45
"""Reads from beyond the L1 cache are free up to this fraction of the arithmetic, behind which they
are prefetched."""

LOAD = 1.3
"""Slowdown of arithmetic by concurrent loads, per cycle of their own."""

SUMMED = 3
"""Of the seven products, those whose constant is the sum of two loaded ones."""

OPERANDS = 7
"""Quarters of the run-time operand, and sums of them, that the products read."""


@dataclass(frozen=True)
class Split:
    """``half`` of the halved rows in ``half / inner`` blocks, columns in blocks of ``columns``.

    ``rest`` rows remain (of a single block only).
    """

    half: int
    inner: int
    rest: int
    columns: int


@dataclass(frozen=True)
class StrassenCost:
    """Cycles of ``machine`` from operation counts and bytes moved.

    Fractions of peak arithmetic, and the cost of sums, were measured on Zen 5, where all reads are
    hidden.  ``margin``: required ratio of estimated times.
    """

    machine: CpuModel = field(default_factory=CpuModel)
    margin: float = 1.04

    def choose(self, halved: int, others: int, n: int, k: int) -> Split | None:
        """How to split ``halved`` × ``others`` rows; None if the plain product is faster."""
        split = self.split(halved, others, n, k)
        faster = self.direct(halved * others, n, k) / self.margin
        fits = split is not None and self.strassen(split, others, n, k) < faster
        return split if fits else None

    def split(self, halved: int, others: int, n: int, k: int) -> Split | None:
        """How to split ``halved`` × ``others`` rows, if possible."""
        columns = next((b for b in BLOCKS if n % (2 * b) == 0), None)
        half = halved // 2
        if columns is None or k % 32 or half * others < 2 * self._lanes:
            return None
        inner = max((d for d in range(1, half + 1) if _fits(d, half, others)), default=None)
        if inner is None or (halved % 2 and inner != half):
            return None
        return Split(half, inner, halved % 2, columns)

    def direct(self, rows: int, n: int, k: int) -> float:
        """Cycles of the plain product."""
        waiting = self._waiting(k, (min(rows, LARGEST_BLOCK) + BLOCKS[0]) * k * 4)
        return rows * n * k / (self._rate * 0.97) * waiting

    def strassen(self, split: Split, others: int, n: int, k: int) -> float:
        """Cycles of seven products of half the size, of sums and of remaining rows."""
        rows = split.half * others
        block = (split.inner * others * OPERANDS + split.columns * QUADRANTS) * (k / 2) * 4
        plain, summed = (self._waiting(k / 2, block, streams) for streams in (1, 2))
        products = rows * (n / 2) * (k / 2) / (self._rate * 0.95)
        products *= (7 - SUMMED) * plain + SUMMED * summed
        sums = rows * (k / 2) / self._lanes * 14
        results = rows * (n / 2) / self._lanes * 14
        # A few rows cannot hide the latency of multiply-adds.
        rest = split.rest * max(others / self.machine.fmas, 1.3) * n * k / self._lanes
        return products + sums + results + rest

    @property
    def _lanes(self) -> int:
        return self.machine.lanes(32)

    @property
    def _rate(self) -> float:
        return self.machine.multiply_adds(32)

    def _waiting(self, k: float, operand: float, streams: int = 1) -> float:
        """Time of a product over ``k`` relative to its arithmetic.

        Its run-time operand and a block of its constant take ``operand`` bytes; the constant is the
        sum of ``streams``.
        """
        rows, vectors = self._tile(streams)
        row = vectors * self.machine.vector_bits // 8 * streams
        arithmetic = rows * vectors * self._lanes / self._rate
        reading = self._reading(row, row * k) + self._reading(rows * 4, operand)
        loading = LOAD * (rows + vectors * streams) / self.machine.loads
        # Without fused multiply-add, additions of constants are additional instructions.
        adding = 1.0 if self.machine.fused else (rows + streams - 1) / rows
        return max(adding, loading / arithmetic) + max(0.0, reading / arithmetic - HIDDEN)

    def _reading(self, piece: float, whole: float) -> float:
        """Cycles to read ``piece`` of ``whole`` bytes that are read repeatedly."""
        near = whole * 2 <= self.machine.l1_bytes
        return 0.0 if near else piece / self.machine.bandwidth(whole)

    def _tile(self, streams: int) -> tuple[int, int]:
        """Rows and vectors of accumulators that fit registers beside vectors of the constants."""
        registers = self.machine.vector_registers - 1
        tiles = ((registers // vectors - streams, vectors) for vectors in (2, 3))
        return max(tiles, key=lambda tile: tile[0] * tile[1])


def _fits(inner: int, half: int, others: int) -> bool:
    return half % inner == 0 and inner * others <= LARGEST_BLOCK
