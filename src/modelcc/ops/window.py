"""Sliding windows over spatial axes: extents, positions and NumPy views for conv and pooling.

Along one axis the window of output ``o`` reads ``o*stride + k*dilation - before`` for ``k`` in
``0 … kernel-1``.  Pads are symbolic and may be negative (cropping).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as cartesian

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, ceildiv, floordiv, maximum, minimum
from modelcc.ir.op import require
from modelcc.ir.tensor import Condition
from modelcc.ir.types import Array


@dataclass(frozen=True)
class Window:
    """Geometry of a sliding window, one entry per spatial axis."""

    kernel: tuple[Index, ...]
    strides: tuple[Index, ...]
    before: tuple[Index, ...]
    after: tuple[Index, ...]
    dilations: tuple[Index, ...]
    ceil_mode: bool = False

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def reach(self, axis: int) -> Index:
        """Distance between the first and one past the last element of a window."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def extents(self, sizes: Sequence[Index]) -> tuple[Index, ...]:
        """Number of window positions per axis; :class:`ModelError` where none fits.

        With ``ceil_mode`` a last, partial window counts if it starts before the right padding,
        also where it is the only one, which as in PyTorch is beyond by less than its stride.
        """
        return tuple(self._extent(a, size) for a, size in enumerate(sizes))

    def _extent(self, axis: int, size: Index) -> Index:
        stride, before = self.strides[axis], self.before[axis]
        room = size + before + self.after[axis] - self.reach(axis)
        single = self.ceil_mode and _at_most(-room - stride, -1)
        if isinstance(room, int) and room < 0 and not single:
            raise ModelError(
                f"a window of {self.reach(axis)} does not fit into spatial axis {axis} of extent "
                f"{size} padded by {before} and {self.after[axis]}",
                hint="enlarge the input or the padding, or shrink kernel or dilation",
            )
        if not self.ceil_mode:
            return floordiv(room, stride) + 1
        return minimum(ceildiv(room, stride) + 1, ceildiv(size + before, stride))

    def fitted_after(self, sizes: Sequence[Index], outputs: Sequence[Index]) -> tuple[Index, ...]:
        """Trailing pads with which the last of ``outputs`` windows ends flush with the padding."""
        return tuple(
            (o - 1) * self.strides[a] + self.reach(a) - self.before[a] - size
            for a, (size, o) in enumerate(zip(sizes, outputs, strict=True))
        )

    def position(self, axis: int, output: Index, tap: Index) -> Index:
        """Input index read by ``tap`` of the window of ``output``."""
        return output * self.strides[axis] + tap * self.dilations[axis] - self.before[axis]

    def places(self, outputs: Sequence[Index], taps: Sequence[Index]) -> tuple[Index, ...]:
        """Input indices read by ``taps`` of the window of ``outputs``, along all axes."""
        pairs = enumerate(zip(outputs, taps, strict=True))
        return tuple(self.position(axis, output, tap) for axis, (output, tap) in pairs)

    def conditions(
        self, positions: Sequence[Index], sizes: Sequence[Index]
    ) -> tuple[Condition, ...]:
        """What must hold for ``positions`` to lie inside; axes that never leave add nothing."""
        result: list[Condition] = []
        for axis, (at, size) in enumerate(zip(positions, sizes, strict=True)):
            if not _at_most(self.before[axis], 0):
                result.append(Condition(0, "<=", at))
            if not self._ends_before(axis, size, size):
                result.append(Condition(at, "<", size))
        return tuple(result)

    def _ends_before(self, axis: int, size: Index, high: Index) -> bool:
        """Whether no window certainly reads an index of ``high`` or more."""
        last = self.position(axis, self._extent(axis, size) - 1, self.kernel[axis] - 1)
        padded = size + self.after[axis]
        return _at_most(last - high, -1) or (not self.ceil_mode and _at_most(padded - high, 0))

    def count(self, axis: int, output: Index, size: Index, padding: bool) -> Index:
        """Taps of a window inside ``size``, with its ``padding`` if wanted; at least 1.

        Those beyond the padding, which ``ceil_mode`` makes, are never counted, as in PyTorch.
        """
        kernel, before, step = self.kernel[axis], self.before[axis], self.dilations[axis]
        low, high = (-before, size + self.after[axis]) if padding else (0, size)
        start = self.position(axis, output, 0)
        first = 0 if _at_most(low + before, 0) else maximum(0, ceildiv(low - start, step))
        whole = self._ends_before(axis, size, high)
        end = kernel if whole else minimum(kernel, ceildiv(high - start, step))
        count = end - first
        return count if count == kernel else maximum(1, count)


def _at_most(value: Index, bound: int) -> bool:
    return isinstance(value, int) and value <= bound


def numbers(values: Sequence[Index], what: str) -> tuple[int, ...]:
    """``values`` as plain ints; :class:`ModelError` naming ``what`` if one is symbolic."""
    if not all(isinstance(v, int) for v in values):
        text = ", ".join(map(str, values))
        raise ModelError(f"{what} must be numbers here, not ({text})")
    return tuple(v for v in values if isinstance(v, int))


def require_rank(window: Window, spatial: int) -> None:
    """Every attribute of ``window`` has one entry per spatial axis and sensible values."""
    for name in ("kernel", "strides", "before", "after", "dilations"):
        given = len(getattr(window, name))
        require(
            given == spatial,
            f"{given} values of {name} for an input with {spatial} spatial axes",
            "give one value per spatial axis (the axes after batch and channels)",
        )
    for name in ("kernel", "strides", "dilations"):
        require(
            not any(_at_most(v, 0) for v in getattr(window, name)),
            f"{name} must be at least 1, not {getattr(window, name)}",
        )


def pad_spatial(x: Array, before: Sequence[int], after: Sequence[int], value: float) -> Array:
    """``x`` with constant borders on its last axes; negative amounts crop."""
    lead = x.ndim - len(before)
    widths = [(0, 0)] * lead + [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    padded = np.pad(x, widths, constant_values=value) if any(map(any, widths)) else x
    crop = [slice(None)] * lead
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        crop.append(slice(max(-b, 0), padded.shape[lead + axis] - max(-a, 0)))
    return padded[tuple(crop)]


def windows(x: Array, window: Window, value: float = 0) -> Array:
    """View ``[..., *outputs, *kernel]`` of every window over the last axes of ``x [..., *S]``."""
    sizes = x.shape[x.ndim - window.rank :]
    outputs = numbers(window.extents(sizes), "output extents")
    kernel, strides = numbers(window.kernel, "kernel"), numbers(window.strides, "strides")
    dilations, before = numbers(window.dilations, "dilations"), numbers(window.before, "pads")
    after = numbers(window.fitted_after(sizes, outputs), "pads")
    padded = pad_spatial(x, before, after, value)
    steps = padded.strides[x.ndim - window.rank :]
    return np.lib.stride_tricks.as_strided(
        padded,
        (*padded.shape[: x.ndim - window.rank], *outputs, *kernel),
        (
            *padded.strides[: x.ndim - window.rank],
            *(a * b for a, b in zip(steps, strides, strict=True)),
            *(a * b for a, b in zip(steps, dilations, strict=True)),
        ),
        writeable=False,
    )


def row_major(place: Sequence[Index], extents: Sequence[Index]) -> Index:
    """The number of the element at ``place`` of a tensor of these extents."""
    result: Index = 0
    for i, extent in zip(place, extents, strict=True):
        result = result * extent + i
    return result


def taps(x: Array, window: Window, value: float = 0) -> list[tuple[tuple[int, ...], Array]]:
    """Every kernel position with the view ``[..., *outputs]`` of the elements it reads."""
    view = windows(x, window, value)
    lead = view.ndim - window.rank
    kernel = view.shape[lead:]
    return [
        (tap, view[(slice(None),) * lead + tap]) for tap in cartesian(*(range(k) for k in kernel))
    ]
