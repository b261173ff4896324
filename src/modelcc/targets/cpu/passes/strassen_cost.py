"""When Strassen's algorithm is faster than the plain product: estimated cycles of one core."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.strassen_weights import QUADRANTS

BLOCKS = (48, 32)
"""Columns of a block.  Wider ones would read more than L2 gives while few rows are computed."""

LARGEST_BLOCK = 256
"""Rows of a block, for its sums to stay in cache."""

HIDDEN = 0.45
"""What is read from beyond the first cache costs nothing up to this share of the arithmetic, behind
which it is prefetched."""

LOAD = 1.3
"""What loads take of the time of arithmetic that goes on beside them, per cycle of their own."""

SUMMED = 3
"""Of the seven products, those whose constant is the sum of two that are read."""

OPERANDS = 7
"""Quarters of the run-time operand, and sums of them, that the products read."""


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
    """Cycles of ``machine`` from operation counts and bytes moved.

    Shares of the arithmetic's best speed, and what sums cost, were measured on Zen 5, where
    all reading is hidden.  ``margin``: how many times faster it must look.
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
        """How to split ``halved`` × ``others`` rows, if they can be."""
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
        """Cycles of seven products of half the size, of sums and of rows left over."""
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
        """How many times longer a product over ``k`` takes than its arithmetic.

        Its run-time operand and a block of its constant take ``operand`` bytes; the constant is the
        sum of ``streams``.
        """
        rows, vectors = self._tile(streams)
        row = vectors * self.machine.vector_bits // 8 * streams
        arithmetic = rows * vectors * self._lanes / self._rate
        reading = self._reading(row, row * k) + self._reading(rows * 4, operand)
        loading = LOAD * (rows + vectors * streams) / self.machine.loads
        # Where additions have instructions of their own, those of constants are further ones.
        adding = 1.0 if self.machine.fused else (rows + streams - 1) / rows
        return max(adding, loading / arithmetic) + max(0.0, reading / arithmetic - HIDDEN)

    def _reading(self, piece: float, whole: float) -> float:
        """Cycles to read ``piece`` bytes of ``whole`` that are read again and again."""
        near = whole * 2 <= self.machine.l1_bytes
        return 0.0 if near else piece / self.machine.bandwidth(whole)

    def _tile(self, streams: int) -> tuple[int, int]:
        """Rows and vectors of the sums that registers hold beside vectors of the constants."""
        registers = self.machine.vector_registers - 1
        tiles = ((registers // vectors - streams, vectors) for vectors in (2, 3))
        return max(tiles, key=lambda tile: tile[0] * tile[1])


def _fits(inner: int, half: int, others: int) -> bool:
    return half % inner == 0 and inner * others <= LARGEST_BLOCK
