"""Moving arrays between logical (row-major) and physical order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelcc.ir.types import Array, Layout


def _splits(layout: Layout, axis: int, extent: int) -> list[tuple[int, int]]:
    """(part position, extent) of the parts of ``axis``, most significant first."""
    parts = [(p.div, n, p.mod) for n, p in enumerate(layout.parts) if p.axis == axis]
    before, after = layout.halo[axis]
    ordered = sorted(parts, reverse=True)
    result: list[tuple[int, int]] = []
    for div, position, mod in ordered:
        size = mod if mod is not None else -(-(extent + before + after) // div)
        result.append((position, size))
    return result


def pack(array: Array, layout: Layout) -> Array:
    """``array`` in the physical order of ``layout``; padding and border are zero.

    The result has one dimension per part of the layout.
    """
    # ascontiguousarray would give a scalar one dimension.
    return reordered(array, layout).copy()


def reordered(array: Array, layout: Layout) -> Array:
    """As :func:`pack`, but a view of ``array`` where possible."""
    splits = [_splits(layout, axis, extent) for axis, extent in enumerate(array.shape)]
    sizes = [int(np.prod([s for _, s in split])) for split in splits]
    margins = [
        (before, size - extent - before)
        for (before, _), size, extent in zip(layout.halo, sizes, array.shape, strict=True)
    ]
    padded = np.pad(array, margins) if any(b or a for b, a in margins) else array
    flat = [part for split in splits for part in split]
    digits = padded.reshape([size for _, size in flat])
    order = [position for position, _ in flat]
    return digits.transpose(np.argsort(order))


def unpack(physical: Array, layout: Layout, shape: Sequence[int]) -> Array:
    """Inverse of :func:`pack` for a logical ``shape``."""
    splits = [_splits(layout, axis, extent) for axis, extent in enumerate(shape)]
    flat = [part for split in splits for part in split]
    digits = physical.reshape([p for _, p in sorted(flat)])
    padded = digits.transpose([position for position, _ in flat])
    whole = padded.reshape([int(np.prod([s for _, s in split])) for split in splits])
    cut = tuple(
        slice(before, before + extent)
        for (before, _), extent in zip(layout.halo, shape, strict=True)
    )
    return whole[cut].copy()
