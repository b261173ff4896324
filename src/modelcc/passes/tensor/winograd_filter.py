"""The constant filters of a convolution, transformed by Winograd's algorithm."""

from __future__ import annotations

from modelcc.ir.constant import Constant
from modelcc.ir.types import Array
from modelcc.passes.tensor.made_constant import MadeConstant
from modelcc.passes.tensor.winograd_transforms import exact_filter

SLAB = 1 << 16
"""Transformed elements computed at a time, in f64: larger buffers are fetched from the system each
time, which took four times as long."""


class TransformedFilter(MadeConstant):
    """``G w Gᵀ`` of ``source``, ``[outputs, inputs, 3, 3]``: at most four times as large as it;
    ``[points, outputs, inputs]``, or with ``outputs_last``."""

    def __init__(self, source: Constant, m: int, outputs_last: bool = False) -> None:
        super().__init__(source)
        self._m, self._last = m, outputs_last

    @property
    def shape(self) -> tuple[int, ...]:
        """``[points, outputs, inputs]``, or inputs before outputs."""
        outputs, inputs = self._data.shape[:2]
        return (self._m + 2) ** 2, *((inputs, outputs) if self._last else (outputs, inputs))

    def part(self, axis: int, start: int, stop: int) -> Array:
        """As of any constant; only the part is computed."""
        if axis == 0:
            return super().part(axis, start, stop)
        source = Constant(self._data).part(2 - axis if self._last else axis - 1, start, stop)
        return TransformedFilter(Constant(source), self._m, self._last).data

    def fill(self, made: Array) -> None:
        """Compute all elements into ``made``, some outputs at a time."""
        made = made.swapaxes(1, 2) if self._last else made
        points, outputs, inputs = made.shape
        rows = max(1, SLAB // (points * inputs))
        for start in range(0, outputs, rows):
            part = slice(start, start + rows)
            made[:, part] = exact_filter(self._m, self._data[part])
