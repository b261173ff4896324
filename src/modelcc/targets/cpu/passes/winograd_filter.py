"""The constant filters of a convolution as Winograd's algorithms multiply them."""

from __future__ import annotations

from modelcc.ir.constant import Constant
from modelcc.ir.types import Array
from modelcc.passes.tensor.made_constant import MadeConstant
from modelcc.targets.cpu.passes.winograd_transforms import transform_filter

SLAB = 1 << 18
"""Transformed elements made at a time, in f64."""


class TransformedFilter(MadeConstant):
    """``G w Gᵀ`` of ``source``: at most four times as large as it."""

    def __init__(self, source: Constant, m: int) -> None:
        super().__init__(source)
        self._m = m

    @property
    def shape(self) -> tuple[int, ...]:
        """``[points, outputs, inputs]``."""
        outputs, inputs = self._data.shape[:2]
        return (self._m + 2) ** 2, outputs, inputs

    def part(self, axis: int, start: int, stop: int) -> Array:
        """As of any constant; no more is made than is asked for."""
        if axis == 0:
            return super().part(axis, start, stop)
        source = Constant(self._data).part(axis - 1, start, stop)
        return TransformedFilter(Constant(source), self._m).data

    def fill(self, made: Array) -> None:
        """Compute all elements into ``made``, some outputs at a time."""
        points, outputs, inputs = made.shape
        rows = max(1, SLAB // (points * inputs))
        for start in range(0, outputs, rows):
            part = slice(start, start + rows)
            made[:, part] = transform_filter(self._m, self._data[part])
