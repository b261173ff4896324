"""Data movement: reshaping, permuting, repeating, slicing, concatenating."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, product
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.gather import Gather
from modelcc.ops.padding import Mode, Pad
from modelcc.ops.shape import Concat, Slice, Tile, Transpose, Trilu
from modelcc.tensor.axes import Axes, axes_of, axis_of, extents_of, filled_in
from modelcc.tensor.elementwise import TensorElementwise
from modelcc.tensor.lazy import FREE, callers_line


class TensorShapes(TensorElementwise):
    """Operations that move elements and compute none."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """The elements in row-major order in another shape; one extent may be -1."""
        given = shape[0] if len(shape) == 1 else shape
        new = filled_in(extents_of(given), self.type.shape)
        if new == self.type.shape:
            return self
        if self.held is not None and self.phase == FREE and product(new) == self.held.size:
            return self.of_array(self.held.reshape([e for e in new if isinstance(e, int)]))
        return self.result(Reshape(new), self)

    @property
    def size(self) -> Index:
        """The number of elements."""
        return product(self.type.shape)

    def ravel(self) -> Self:
        """All elements on one axis."""
        return self.reshape((product(self.type.shape),))

    def flatten(self, start: int = 0, end: int = -1) -> Self:
        """The axes from ``start`` to ``end`` as one."""
        if not self.ndim:
            return self.reshape((1,))
        first, last = axis_of(start, self.ndim), axis_of(end, self.ndim)
        shape = self.type.shape
        return self.reshape((*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]))

    def transpose(self, *axes: Any) -> Self:
        """Axis ``k`` of the result is axis ``axes[k]``; without any their order is reversed."""
        given: Any = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes
        order = axes_of(tuple(given), self.ndim) if given else tuple(reversed(range(self.ndim)))
        if order == tuple(range(self.ndim)):
            return self
        return self.result(Transpose(order), self)

    @property
    def T(self) -> Self:  # noqa: N802
        """With its axes in reversed order."""
        return self.transpose()

    @property
    def mT(self) -> Self:  # noqa: N802
        """With the last two axes exchanged."""
        return self.swapaxes(-1, -2)

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """With two axes exchanged."""
        a, b = axis_of(axis1, self.ndim), axis_of(axis2, self.ndim)
        order = list(range(self.ndim))
        order[a], order[b] = b, a
        return self.transpose(order)

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """With the axes ``source`` moved to ``destination``, the others in order."""
        old, new = axes_of(source, self.ndim), axes_of(destination, self.ndim)
        if len(old) != len(new):
            raise ModelError(f"{len(old)} axes do not go to {len(new)} places", callers_line())
        places = dict(zip(new, old, strict=True))
        others = iter([a for a in range(self.ndim) if a not in old])
        return self.transpose([places[k] if k in places else next(others)
                               for k in range(self.ndim)])  # fmt: skip

    def squeeze(self, axis: Axes = None) -> Self:
        """Without the axes ``axis``, None for all of extent 1."""
        shape = self.type.shape
        chosen = [a for a, e in enumerate(shape) if e == 1] if axis is None else axis
        gone = axes_of(chosen, self.ndim)
        for a in gone:
            if isinstance(shape[a], int) and shape[a] != 1:
                raise ModelError(f"axis {a} of {self.type} has {shape[a]} elements, not 1",
                                 callers_line(), "squeeze an axis of extent 1")  # fmt: skip
        return self.reshape(tuple(e for a, e in enumerate(shape) if a not in gone))

    def expand_dims(self, axis: int | Sequence[int]) -> Self:
        """With new axes of extent 1 at positions ``axis`` of the result."""
        count = 1 if hasattr(axis, "__index__") else len(axis)  # pyright: ignore
        new = axes_of(axis, self.ndim + count)
        old = iter(self.type.shape)
        return self.reshape(tuple(1 if a in new else next(old) for a in range(self.ndim + count)))

    def broadcast_to(self, shape: Index | Sequence[Index]) -> Self:
        """Broadcast to ``shape``."""
        wanted = extents_of(shape)
        return self if wanted == self.type.shape else self.result(Expand(wanted), self)

    def tile(self, *reps: Any) -> Self:
        """The whole repeated ``reps`` times along each of the last axes."""
        counts = list(extents_of(reps[0] if len(reps) == 1 else reps))
        rank = max(len(counts), self.ndim)
        wide = self.reshape((*(1,) * (rank - self.ndim), *self.type.shape))
        return wide.result(Tile((*(1,) * (rank - len(counts)), *counts)), wide)

    def repeat(self, repeats: Any, axis: int | None = None) -> Self:
        """Each element repeated ``repeats`` times, along ``axis`` or of the flattened tensor."""
        if axis is None:
            return self.ravel().repeat(repeats, 0)
        a, shape = axis_of(axis, self.ndim), self.type.shape
        if not hasattr(repeats, "__index__"):
            return self._repeated_each([int(n) for n in repeats], a)
        wide = self.reshape((*shape[: a + 1], 1, *shape[a + 1 :]))
        wide = wide.broadcast_to((*shape[: a + 1], repeats.__index__(), *shape[a + 1 :]))
        return wide.reshape((*shape[:a], shape[a] * repeats.__index__(), *shape[a + 1 :]))

    def _repeated_each(self, counts: Sequence[int], axis: int) -> Self:
        if self.type.shape[axis] not in (len(counts), 1):
            raise ModelError(f"{len(counts)} counts for axis {axis} of {self.type}",
                             callers_line(), "give one count, or one for each element")  # fmt: skip
        one = self.type.shape[axis] == 1
        places = [0 if one else i for i, n in enumerate(counts) for _ in range(n)]
        return self.result(Gather(axis), self, self.of_array(np.array(places, np.int64)))

    def _cut(self, axis: int, start: Index, count: Index, step: int = 1) -> Self:
        """``count`` elements along ``axis`` from ``start`` on."""
        shape = self.type.shape
        starts = tuple(start if a == axis else 0 for a in range(self.ndim))
        counts = tuple(count if a == axis else e for a, e in enumerate(shape))
        steps = tuple(step if a == axis else 1 for a in range(self.ndim))
        return self.result(Slice(starts, counts, steps), self)

    def split(self, indices_or_sections: int | Sequence[Index], axis: int = 0) -> list[Self]:
        """Equal parts, or parts that begin at indices, along ``axis``."""
        a = axis_of(axis, self.ndim)
        extent = self.type.shape[a]
        if isinstance(indices_or_sections, int):
            sections = indices_or_sections
            if isinstance(extent, int) and (sections < 1 or extent % sections):
                raise ModelError(f"axis {axis} of {self.type} has no {sections} equal parts",
                                 callers_line(), "give the indices where parts begin")  # fmt: skip
            size = extent // sections
            return [self._cut(a, size * k, size) for k in range(sections)]
        cuts = [0, *indices_or_sections, extent]
        if isinstance(extent, int):
            cuts = [range(extent)[c:].start if isinstance(c, int) else c for c in cuts]
        return [self._cut(a, low, _length(low, high))
                for low, high in pairwise(cuts)]  # fmt: skip

    def concatenated(self, others: Sequence[Any], axis: int = 0) -> Self:
        """This and ``others`` concatenated along ``axis``, in their common type."""
        first, *rest = self.all_alike(others)
        return first.joined(rest, axis_of(axis, self.ndim))

    def joined(self, others: Sequence[Self], axis: int) -> Self:
        """This and ``others`` of the same type concatenated along ``axis``."""
        return self.result(Concat(axis), self, *others)

    def all_alike(self, others: Sequence[Any]) -> list[Self]:
        """This and ``others`` in their common type."""
        parts = [self, *map(self.lifted, others)]
        for part in parts[1:]:
            parts[0], _ = parts[0].alike(part)
        return [part.alike(parts[0])[0] for part in parts]

    def pad(self, pad_width: Any, mode: Mode = "constant", constant_values: Any = 0) -> Self:
        """Padded with these numbers of elements: a number, a pair, or a pair for each axis."""
        pairs = [_pair(p) for p in _by_axis(pad_width, self.ndim)]
        before, after = (tuple(p[k] for p in pairs) for k in (0, 1))
        value = constant_values if mode == "constant" else 0
        return self.result(Pad(before, after, mode, value), self)

    def flip(self, axis: Axes = None) -> Self:
        """In reversed order along ``axis``."""
        axes = axes_of(axis, self.ndim)
        shape = self.type.shape
        starts = tuple(e - 1 if a in axes and e != 0 else 0 for a, e in enumerate(shape))
        steps = tuple(-1 if a in axes else 1 for a in range(self.ndim))
        return self.result(Slice(starts, shape, steps), self) if axes else self

    def roll(self, shift: int | Sequence[int], axis: Axes = None) -> Self:
        """Rotated by ``shift`` along ``axis``, cyclically."""
        if axis is None:
            return self.ravel().roll(shift, 0).reshape(self.type.shape)
        axes: list[int] = [axis] if isinstance(axis, int) else list(axis)
        shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
        result = self
        for by, a in zip(shifts, axes, strict=True):
            result = result._rolled(by, axis_of(a, self.ndim))
        return result

    def _rolled(self, shift: int, axis: int) -> Self:
        extent = self.type.shape[axis]
        if extent == 0 or shift == 0:
            return self
        by = (-shift) % extent
        ends = self._cut(axis, by, extent - by), self._cut(axis, 0, by)
        return self.result(Concat(axis), *ends)

    def triu(self, k: int = 0) -> Self:
        """The upper triangle of each matrix, 0 below diagonal ``k``."""
        return self.result(Trilu(True, k), self)

    def tril(self, k: int = 0) -> Self:
        """The lower triangle of each matrix, 0 above diagonal ``k``."""
        return self.result(Trilu(False, k), self)


def _length(low: Index, high: Index) -> Index:
    length = high - low
    return max(length, 0) if isinstance(length, int) else length


def _pair(value: Any) -> tuple[int, int]:
    pair = (value, value) if hasattr(value, "__index__") else tuple(value)
    first, last = pair * 2 if len(pair) == 1 else pair
    return first.__index__(), last.__index__()


def _by_axis(pad_width: Any, rank: int) -> list[Any]:
    """One pair or number for each axis, from what ``numpy.pad`` takes."""
    if hasattr(pad_width, "__index__"):
        return [pad_width] * rank
    rows = list(pad_width)
    if all(hasattr(row, "__index__") for row in rows):
        return [rows] * rank
    rows = rows * rank if len(rows) == 1 else rows
    if len(rows) != rank:
        raise ModelError(f"{len(rows)} pairs of widths for {rank} axes", callers_line())
    return rows
