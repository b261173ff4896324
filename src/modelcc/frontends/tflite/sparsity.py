"""Densification of sparse constants: each dimension is dense, or has the indices of its elements.

After TACO's format: Kjolstad et al., "The tensor algebra compiler", 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.types import Array

MOST_ELEMENTS = 1 << 30
"""Limit on a densified constant."""


@dataclass(frozen=True)
class DimensionFormat:
    """A dimension: ``size`` dense elements, or those at ``indices``, of which ``segments[n]`` to
    ``segments[n + 1]`` belong to element n of the outer dimensions (CSR)."""

    size: int | None
    segments: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()

    def children(self, parents: Array) -> tuple[Array, Array]:
        """Numbers and indices of the elements that belong to each of ``parents``, with the parents'
        positions repeated accordingly."""
        if self.size is not None:
            places = np.tile(np.arange(self.size), parents.size)
            numbers = np.repeat(parents * self.size, self.size) + places
            return numbers, places
        starts = np.asarray(self.segments, np.int64)
        counts = starts[parents + 1] - starts[parents]
        if (counts < 0).any():
            raise ValueError("segments of a sparse dimension go backwards")
        before: Array = np.cumsum(counts) - counts
        within: Array = np.arange(int(counts.sum()))
        numbers: Array = within + np.repeat(starts[parents] - before, counts)
        return numbers, np.asarray(self.indices, np.int64)[numbers]

    def repeats(self, parents: Array) -> Array | int:
        """The number of elements of each of ``parents``."""
        if self.size is not None:
            return self.size
        starts = np.asarray(self.segments, np.int64)
        return starts[parents + 1] - starts[parents]


def densified(
    values: Array,
    shape: tuple[int, ...],
    order: Sequence[int],
    blocks: Sequence[int],
    formats: Sequence[DimensionFormat],
    name: str,
) -> Array:
    """The dense constant of ``shape`` with nonzeros from ``values``.

    ``order`` are its dimensions in storage order, then those of its blocks; block n is of dimension
    ``blocks[n]``.  :class:`ValueError` if the parts are inconsistent.
    """
    rank = len(shape)
    whole = len(formats) == len(order) == rank + len(blocks)
    if not whole or sorted(order) != list(range(len(order))):
        raise ValueError(f"sparse constant {name!r} has {len(formats)} dimensions for {rank}")
    if int(np.prod(shape, dtype=object)) > MOST_ELEMENTS:
        raise ValueError(f"sparse constant {name!r} has the shape {shape}")
    numbers, columns = np.zeros(1, np.int64), list[Array]()
    for format in formats:
        counts = format.repeats(numbers)
        if int(np.sum(counts) if isinstance(counts, np.ndarray) else counts * numbers.size) > (
            values.size
        ):
            raise ValueError(f"sparse constant {name!r} has {values.size} elements, not as many")
        columns = [np.repeat(column, counts) for column in columns]
        numbers, places = format.children(numbers)
        columns.append(places)
    stored = dict(zip(order, columns, strict=True))
    sizes = dict(zip(order, formats, strict=True))
    result = np.zeros(shape, values.dtype)
    result[tuple(_place(d, stored, sizes, rank, blocks) for d in range(rank))] = values[numbers]
    return result


def _place(
    dimension: int,
    stored: dict[int, Array],
    sizes: dict[int, DimensionFormat],
    rank: int,
    blocks: Sequence[int],
) -> Array:
    """Indices along a dimension: those of its blocks, and within them."""
    place = stored[dimension]
    for n, own in enumerate(blocks):
        if own == dimension:
            size = sizes[rank + n].size
            if size is None:
                raise ValueError("a block is stored sparsely")
            place = place * size + stored[rank + n]
    return place
