"""Constants that a pass makes of a model's, element by element, when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from math import prod

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.graph import Constant
from modelcc.ir.mapped import release_pages
from modelcc.ir.types import F32, Array, TensorType


class MadeConstant(Constant):
    """f32 elements made of ``source`` anew whenever they are asked for: they are kept nowhere."""

    def __init__(self, source: Constant) -> None:
        super().__init__(source.data)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Extents of what is made."""

    @abstractmethod
    def fill(self, made: Array) -> None:
        """Compute all elements into ``made``."""

    @property
    def data(self) -> Array:
        """The elements."""
        return self._filled(np.empty(self.shape, np.float32))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * F32.bytes

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return TensorType(self.shape, F32)

    def write(self, target: NDArray[np.uint8]) -> None:
        """Copy the elements' bytes, in row-major order, to ``target``."""
        self._filled(target.view(np.float32).reshape(self.shape))

    def _filled(self, made: Array) -> Array:
        self.fill(made)
        release_pages(self._data)
        return made
