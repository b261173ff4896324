"""Windows of images as operands that TMA copies as boxes: some pixels by a block of channels, with
zeros outside the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod

from modelcc.ir.index import (
    Index,
    Sym,
    ceildiv,
    coefficient,
    divides,
    floordiv,
    mod,
    substitute,
    symbols,
)
from modelcc.ir.tensor import Condition, Guard, Number, Read
from modelcc.ir.tiles import CopyTile
from modelcc.schedule.nest import LoopVar
from modelcc.targets.gpu.contraction import Contraction, KeptFactor
from modelcc.targets.gpu.evaluation import GroupKernel, Point
from modelcc.targets.gpu.sizes import count

BOUNDARY = 16
"""Alignment of a tensor's rows, in bytes."""

MOST_AXES = 5
"""Dimensions of a tensor map."""


@dataclass(frozen=True)
class ImageAxis:
    """An axis of ``size`` elements, ``stride`` apart; the read's index on it is ``at``."""

    size: Index
    stride: int
    at: Index


@dataclass(frozen=True)
class ImageOperand:
    """A tensor in ``source`` from ``offset`` on, with ``axes``.  The last axis is that of the
    innermost of ``terms``, which is padded to whole blocks by zeros.  Each of ``rows`` moves with
    stride 1 along an axis of its own, in the order of the axes."""

    source: str
    offset: Index
    axes: tuple[ImageAxis, ...]
    rows: tuple[LoopVar, ...]
    terms: tuple[LoopVar, ...]

    def box(self, size: int) -> tuple[int, ...]:
        """Rows of each variable in a tile of ``size``: powers of two that give the fewest tiles."""
        powers = [1 << n for n in range(size.bit_length())]
        boxes = (b for b in product(powers, repeat=len(self.rows)) if prod(b) == size)
        return min(boxes, key=lambda box: (self._count(box), box))

    def count(self, size: int) -> int:
        """The number of tiles of ``size`` rows, as an estimate."""
        return self._count(self.box(size))

    def _count(self, box: tuple[int, ...]) -> int:
        return prod(-(-count((v,)) // n) for v, n in zip(self.rows, box, strict=True))

    def tiles(self, size: int) -> tuple[Index, ...]:
        """The number of such tiles along each of the rows."""
        box = self.box(size)
        return tuple(ceildiv(v.extent, n) for v, n in zip(self.rows, box, strict=True))

    def first(self, size: int, tile: Index) -> dict[str, Index]:
        """The first of the rows of tile number ``tile``."""
        found: dict[str, Index] = {}
        parts = list(zip(self.rows, self.box(size), self.tiles(size), strict=True))
        for number, (variable, each, extent) in reversed(list(enumerate(parts))):
            found[variable.name] = (mod(tile, extent) if number else tile) * each
            tile = floordiv(tile, extent)
        return found

    def within(self, size: int, row: Index) -> dict[str, Index]:
        """The offsets of row number ``row`` of a tile from its first ones."""
        found: dict[str, Index] = {}
        parts = list(zip(self.rows, self.box(size), strict=True))
        for number, (variable, each) in reversed(list(enumerate(parts))):
            found[variable.name] = mod(row, each) if number else row
            row = floordiv(row, each)
        return found

    def copies(
        self,
        to: str,
        to_offset: Index,
        first: tuple[Index, Index],
        size: int,
        depth: int,
        batch: Point,
        arrivals: tuple[str, Index],
    ) -> list[CopyTile]:
        """The copy of tile number ``first[0]`` of ``size`` rows by ``depth`` terms from term
        ``first[1]`` on."""
        tile, term = first
        point = {**batch, **self.first(size, tile), **_place(self.terms, term)}
        boxes = dict(zip((v.name for v in self.rows), self.box(size), strict=True))
        inner = self.axes[-1]

        def along(axis: ImageAxis) -> int:
            moving = (boxes[name] for name in symbols(axis.at) if name in boxes)
            return depth if axis is inner else next(moving, 1)

        sizes, strides = zip(*((a.size, a.stride) for a in self.axes), strict=True)
        at = tuple(substitute(axis.at, point) for axis in self.axes)
        box = tuple(map(along, self.axes))
        return [
            CopyTile(to, to_offset, self.source, at, self.offset, sizes, strides, box, *arrivals)
        ]


def _place(variables: Sequence[LoopVar], position: Index) -> dict[str, Index]:
    found: dict[str, Index] = {}
    for number, v in reversed(list(enumerate(variables))):
        found[v.name] = mod(position, v.extent) if number else position
        position = floordiv(position, v.extent)
    return found


def image_operand(
    kernel: GroupKernel, factor: KeptFactor, found: Contraction, depth: int
) -> ImageOperand | None:
    """``factor``, that of the rows of ``found``, as boxes of ``depth`` terms; None unless it is an
    image with aligned channels, over which windows move pixel by pixel.  Channels that are no whole
    blocks need an axis of their own, outside of which there are zeros."""
    read = factor.value.inside if isinstance(factor.value, Guard) else factor.value
    if not isinstance(read, Read) or read.tensor not in kernel.kernel.inputs:
        return None
    if isinstance(factor.value, Guard) and factor.value.outside != Number(0, read.dtype):
        return None
    conditions = factor.value.conditions if isinstance(factor.value, Guard) else ()
    variables = (*found.rows, *found.terms, *found.batch)
    axes = _axes(read, conditions, variables)
    if axes is None:
        return None
    offset = _rest(read.indices[0], axes)
    axes = _folded(_in_steps(sorted(axes, key=lambda a: -a.stride), found.rows))
    rows = _rows(axes, found.rows)
    inner, each = found.terms[-1], BOUNDARY // read.dtype.bytes
    strides = [axis.stride for axis in axes]
    whole = isinstance(inner.extent, int) and (
        inner.extent % depth == 0 or axes[-1] == ImageAxis(inner.extent, 1, Sym(inner.name))
    )
    if rows is None or not 2 <= len(axes) <= MOST_AXES or strides[-1] != 1 or not whole:
        return None
    if coefficient(axes[-1].at, inner.name) != 1 or any(v in rows for v in _moving(axes[-1], rows)):
        return None
    if any(outer % step for outer, step in pairwise((*strides[:-1], each))):
        return None
    if not divides(each, offset, kernel.dims):
        return None
    if symbols(offset) or any(not symbols(a.size) <= set(kernel.dims) for a in axes):
        return None
    if not all(isinstance(v.extent, int) for v in found.terms):
        return None
    return ImageOperand(read.tensor, offset, tuple(axes), rows, _in_blocks(found.terms, depth))


def _in_blocks(terms: Sequence[LoopVar], depth: int) -> tuple[LoopVar, ...]:
    """``terms`` with the innermost one padded to whole blocks of ``depth``."""
    *outer, inner = terms
    return (*outer, replace(inner, extent=ceildiv(inner.extent, depth) * depth))


def _in_steps(axes: Sequence[ImageAxis], rows: Sequence[LoopVar]) -> list[ImageAxis]:
    """``axes``, strided ones of rows split in two: the step, and the place in it."""
    found: list[ImageAxis] = []
    for axis in axes:
        moving = _moving(axis, rows)
        step = coefficient(axis.at, moving[0].name) if len(moving) == 1 else 1
        if not isinstance(step, int) or not isinstance(axis.size, int) or axis.size % max(step, 1):
            step = 1
        if step > 1:
            row = Sym(moving[0].name)
            further = axis.at - row * step
            outer = row + floordiv(further, step)
            found.append(ImageAxis(axis.size // step, axis.stride * step, outer))
            found.append(ImageAxis(step, axis.stride, mod(further, step)))
        else:
            found.append(axis)
    return found


def _folded(axes: list[ImageAxis]) -> list[ImageAxis]:
    """``axes``, with the last two merged if there are too many and they are contiguous."""
    if len(axes) <= MOST_AXES:
        return axes
    *outer, one, last = axes
    if one.stride != last.size or not isinstance(one.size, int):
        return axes
    return [*outer, ImageAxis(one.size * last.size, 1, one.at * last.size + last.at)]


def _moving(axis: ImageAxis, rows: Sequence[LoopVar]) -> list[LoopVar]:
    return [v for v in rows if v.name in symbols(axis.at)]


def _rest(index: Index, axes: Sequence[ImageAxis]) -> Index:
    for axis in axes:
        index = index - axis.at * axis.stride
    return index


def _rows(axes: Sequence[ImageAxis], rows: Sequence[LoopVar]) -> tuple[LoopVar, ...] | None:
    """Rows in the order of their axes, if each moves with stride 1 along one of its own."""
    moved = [_moving(axis, rows) for axis in axes]
    if any(len(own) > 1 for own in moved):
        return None
    ordered = [(axis, v) for axis, own in zip(axes, moved, strict=True) for v in own]
    if any(coefficient(axis.at, v.name) != 1 for axis, v in ordered):
        return None
    found = tuple(v for _, v in ordered)
    return found if sorted(v.name for v in found) == sorted(v.name for v in rows) else None


def _axes(
    read: Read, conditions: Sequence[Condition], variables: Sequence[LoopVar]
) -> list[ImageAxis] | None:
    """Axes with guarded borders, and one for each other variable; None if there are none."""
    (index,) = read.indices
    steps = {v.name: coefficient(index, v.name) for v in variables}
    guarded = _guarded(conditions, variables)
    if guarded is None or len(read.indices) != 1:
        return None
    axes: list[ImageAxis] = []
    left = set(steps)
    for at, size in guarded:
        own = symbols(at)
        strides = {_quotient(steps.get(name), coefficient(at, name)) for name in own}
        stride = strides.pop() if len(strides) == 1 else None
        if stride is None or not own <= left:
            return None
        left -= own
        axes.append(ImageAxis(size, stride, at))
    for variable in variables:
        step = steps[variable.name]
        if variable.name not in left or step == 0:
            continue
        if not isinstance(step, int) or step < 0:
            return None
        axes.append(ImageAxis(variable.extent, step, Sym(variable.name)))
    return axes


def _quotient(step: Index | None, by: Index | None) -> int | None:
    if not isinstance(step, int) or not isinstance(by, int) or by == 0 or step % by:
        return None
    return step // by if step // by > 0 else None


def _guarded(
    conditions: Sequence[Condition], variables: Sequence[LoopVar]
) -> list[tuple[Index, int]] | None:
    """Indices that conditions keep at least 0 and below a size, or that cannot reach it; None if
    there are other conditions."""
    if any(c.comparison != ">=" or c.right != 0 for c in conditions):
        return None
    left = [c.left for c in conditions]
    upward = [one for one in left if all(_is_positive(coefficient(one, n)) for n in symbols(one))]
    found: list[tuple[Index, int]] = []
    for one in upward:
        left.remove(one)
        spans = [(o, one + o) for o in left if isinstance(one + o, int)]
        last = _last(one, variables)
        if spans:
            other, span = spans[0]
            left.remove(other)
            last = span if isinstance(span, int) else None
        if last is None:
            return None
        found.append((one, last + 1))
    return None if left else found


def _last(place: Index, variables: Sequence[LoopVar]) -> int | None:
    """The maximum of a sum of variables."""
    for v in variables:
        place = substitute(place, {v.name: v.extent - 1})
    return place if isinstance(place, int) else None


def _is_positive(step: Index | None) -> bool:
    return isinstance(step, int) and step > 0
