"""Constants in a physical order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.constant import Constant
from modelcc.ir.mapped import release_pages
from modelcc.ir.pack import pack, reordered
from modelcc.ir.types import Array, Layout, TensorType

SLAB = 4 << 20
"""Bytes packed at a time: pages of a file are released in between, but each is read again for every
slab that has elements of it."""


class PackedConstant(Constant):
    """``source`` in the physical order of ``layout``, packed at each access.

    So a model's weights are not in memory twice.
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
        own = target.view(self.type.dtype.numpy).reshape(self._shape)
        for place, part in self._parts():
            np.copyto(own[(*place, ...)], reordered(part, self._layout))
            release_pages(part)

    def _parts(self) -> Iterator[tuple[tuple[slice, ...], Array]]:
        """Slices along the first non-trivial physical dimension, and their elements."""
        first = next((n for n, extent in enumerate(self._shape) if extent != 1), None)
        lead = None if first is None else self._layout.parts[first]
        if (
            first is None
            or lead is None
            or lead.mod is not None
            or any(self._layout.halo[lead.axis])
        ):
            yield (), self._source.data
            return
        count = self._shape[first]
        rows = max(1, SLAB * count // max(1, self.nbytes))
        for start in range(0, count, rows):
            stop = min(start + rows, count)
            part = self._source.part(lead.axis, start * lead.div, stop * lead.div)
            yield (*(slice(None),) * first, slice(start, stop)), part
