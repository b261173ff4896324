"""Constant factors of products of narrow integers, two packed in a word."""

from __future__ import annotations

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.types import I32, Array
from modelcc.passes.tensor.made_constant import MadeConstant
from modelcc.targets.cpu.passes.words import HALF, LOW


class PairedConstant(MadeConstant):
    """``source`` with neighbours along ``axis`` packed in a word; the last may be padded by 0."""

    dtype = I32

    def __init__(self, source: Constant, axis: int) -> None:
        super().__init__(source)
        self._axis = axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The source's shape, with half of ``axis``."""
        extents = enumerate(self._data.shape)
        return tuple(-(-extent // 2) if d == self._axis else extent for d, extent in extents)

    def fill(self, made: Array) -> None:
        """Compute all words into ``made``."""
        low, high = (self._every_second(first) for first in (0, 1))
        whole = self._along(slice(high.shape[self._axis]))
        np.bitwise_and(low, LOW, out=made)
        made[whole] |= high << HALF

    def _every_second(self, first: int) -> Array:
        return self._data[self._along(slice(first, None, 2))].astype(np.int32)

    def _along(self, part: slice) -> tuple[slice, ...]:
        return (*(slice(None),) * self._axis, part)
