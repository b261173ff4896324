"""Constants computed lazily from a model's, element by element."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.constant import Constant
from modelcc.ir.mapped import release_pages
from modelcc.ir.types import F32, Array, DType, TensorType


class MadeConstant(Constant):
    """Elements computed from ``source`` at each access: they are not stored."""

    dtype: ClassVar[DType] = F32

    def __init__(self, source: Constant) -> None:
        super().__init__(source.data)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Extents of the result."""

    @abstractmethod
    def fill(self, made: Array) -> None:
        """Compute all elements into ``made``."""

    @property
    def data(self) -> Array:
        """The elements."""
        return self._filled(np.empty(self.shape, self.dtype.numpy))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.dtype.bytes

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return TensorType(self.shape, self.dtype)

    def write(self, target: NDArray[np.uint8]) -> None:
        """Copy the elements' bytes, in row-major order, to ``target``."""
        self._filled(target.view(self.dtype.numpy).reshape(self.shape))

    def _filled(self, made: Array) -> Array:
        self.fill(made)
        release_pages(self._data)
        return made
