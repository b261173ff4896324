"""Constants in a physical order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.graph import Constant
from modelcc.ir.mapped import release_pages
from modelcc.ir.pack import pack, reordered
from modelcc.ir.types import Array, Layout, TensorType

SLAB = 64 << 20
"""Bytes packed at a time: pages of a file are given back in between, but each is read again for
every slab that has elements of it."""


class PackedConstant(Constant):
    """``source`` in the physical order of ``layout``, made anew whenever it is asked for.

    So the weights of a model need not be in memory twice.
    """

    def __init__(self, source: Constant, layout: Layout) -> None:
        self._source = source
        self._layout = layout
        logical = np.broadcast_to(np.int8(0), source.type.static_shape())
        self._shape = reordered(logical, layout).shape

    @property
    def data(self) -> Array:
        """The elements, with one dimension per part of the layout."""
        return pack(self._source.data, self._layout)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, padding included."""
        return int(np.prod(self._shape)) * self.type.dtype.numpy.itemsize

    @property
    def type(self) -> TensorType:
        """Element type and the extents of the layout's parts."""
        return TensorType(tuple(int(n) for n in self._shape), self._source.type.dtype)

    def write(self, target: NDArray[np.uint8]) -> None:
        """Copy the elements' bytes, in physical order, to ``target``."""
        data = self._source.data
        own = np.atleast_1d(target.view(data.dtype).reshape(self._shape))
        source = np.atleast_1d(reordered(data, self._layout))
        rows = max(1, SLAB * len(own) // max(1, self.nbytes))
        for start in range(0, len(own), rows):
            np.copyto(own[start : start + rows], source[start : start + rows])
            release_pages(data)
