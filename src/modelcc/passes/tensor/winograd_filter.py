"""The constant filters of a convolution as Winograd's algorithms multiply them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.graph import Constant
from modelcc.ir.mapped import release_pages
from modelcc.ir.types import F32, Array, TensorType
from modelcc.passes.tensor.winograd_transforms import transform_filter

SLAB = 4 << 20
"""Transformed elements made at a time, in f64."""


class TransformedFilter(Constant):
    """``G w Gᵀ`` of ``source``, made anew whenever it is asked for: four times as large as it."""

    def __init__(self, source: Constant, m: int) -> None:
        super().__init__(source.data)
        self._m = m

    @property
    def data(self) -> Array:
        """The elements."""
        made = np.empty(self.type.static_shape(), np.float32)
        self._fill(made)
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.type.static_shape())) * F32.bytes

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        outputs, inputs = self._data.shape[:2]
        return TensorType(((self._m + 2) ** 2, outputs, inputs), F32)

    def write(self, target: NDArray[np.uint8]) -> None:
        """Copy the elements' bytes, in row-major order, to ``target``."""
        self._fill(target.view(np.float32).reshape(self.type.static_shape()))

    def _fill(self, made: Array) -> None:
        points, outputs, inputs = made.shape
        rows = max(1, SLAB // (points * inputs))
        for start in range(0, outputs, rows):
            part = slice(start, start + rows)
            made[:, part] = transform_filter(self._m, self._data[part])
        release_pages(self._data)
