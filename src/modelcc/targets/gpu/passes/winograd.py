"""Winograd convolution by groups of threads: 3×3 windows of stride 1 by fewer multiplications.

Before and after, for tiles of 4 × 4 outputs and images with channels last::

    %y = [n, oh, ow, co] sum[ci, kh, kw] %x[n, oh + kh - 1, ow + kw - 1, ci] * %w[co, ci, kh, kw]
    %z = [n, oh, ow, co] max(%y[n, oh, ow, co] + %r[n, oh, ow, co], 0.0)

    %v[6*a + b, n, th, tw, ci] = linear[Bᵀ] of rows and columns of %x[n, 4*th - 1 …, 4*tw - 1 …, ci]
    %m[p, n, th, tw, co] = sum[ci] %v[p, n, th, tw, ci] * %u[p, ci, co]
    %z[n, 4*th + i, 4*tw + j, co] = max(linear[Aᵀ] of rows and columns of %m + %r, 0.0)

Three launches: a thread of the first and of the last one has a tile of one channel, or of a few
neighbouring ones, in registers; between them is a matrix product for each of the elements of a
tile.  %u, which is ``G w Gᵀ``, is computed at compile time.  With channels second, %v and %m are
``[p, c, n, th, tw]``, and neighbours are tiles.

Errors are those of the same algorithm on processors: below 1e-5 of the largest output for tiles of
4 × 4, and 2e-6 for tiles of 2 × 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.compute import Element, guard
from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Sym, loop_range
from modelcc.ir.tensor import Axis, Condition, Guard, Kernel, Read, TensorProgram
from modelcc.ir.types import F32, TensorType
from modelcc.passes.tensor.winograd_filter import TransformedFilter
from modelcc.passes.tensor.winograd_match import Convolution, match_convolution
from modelcc.passes.tensor.winograd_stages import (
    ACROSS,
    CHANNEL,
    POINT,
    WinogradStages,
    with_winograd,
)
from modelcc.passes.tensor.winograd_tiles import COLUMN, IMAGE, ROW, TileRegion, Tiles
from modelcc.schedule.nest import normal_form
from modelcc.targets.gpu.evaluation import not_implied
from modelcc.targets.gpu.passes.winograd_cost import GroupWinogradCost

SIZES = (4, 2)
"""Outputs along a side of a tile, those that save most first."""


@dataclass(frozen=True)
class GroupWinograd:
    """Rewrites fused convolutions by constants that ``cost`` expects to become faster."""

    cost: GroupWinogradCost

    def __call__(self, program: TensorProgram) -> TensorProgram:
        estimate = self.cost.of(program)

        def find(kernel: Kernel) -> WinogradStages | None:
            ways = [one for m in SIZES if (one := planes_of(kernel, program, m)) is not None]
            return estimate.best(kernel, ways) if ways else None

        return with_winograd(program, find)


def planes_of(kernel: Kernel, program: TensorProgram, m: int) -> PlaneStages | None:
    """The stages of a convolution by tiles of ``m`` × ``m`` outputs; None unless ``kernel`` is one
    by a constant, of images of constant size, with the same layout of channels before and after."""
    found = match_convolution(kernel, program)
    if found is None or not found.constant:
        return None
    shape = program.types[found.x].shape
    rows, columns = (shape[place] for place in found.places[2:])
    n, co, oh, ow = (Sym(a.name) for a in found.axes)
    order = (n, oh, ow, co) if _are_last(found) else (n, co, oh, ow)
    if not isinstance(rows, int) or not isinstance(columns, int) or found.product.write != order:
        return None
    _, height, width = found.extents
    made = TransformedFilter(program.constants[found.w.tensor], m, outputs_last=True)
    tiles = Tiles(m, found.images, height, width)
    return PlaneStages(found, tiles, made, (rows, columns))


def _are_last(found: Convolution) -> bool:
    """Whether channels are innermost."""
    return found.places[1] == 3


@dataclass(frozen=True)
class PlaneStages(WinogradStages):
    """For each element of a tile, a matrix of channels by tiles of all images, whose size
    is ``image`` (rows, columns)."""

    made: TransformedFilter
    image: tuple[int, int]

    @property
    def filters(self) -> Constant | None:
        return self.made

    @property
    def filter_type(self) -> TensorType:
        return TensorType((self.points, self.inputs, self.outputs), F32)

    def filter_place(self, point: Index, output: Index, channel: Index) -> tuple[Index, ...]:
        return (point, channel, output)

    @property
    def _tiles(self) -> tuple[Index, Index, Index]:
        return (self.tiles.images, self.tiles.rows, self.tiles.columns)

    def stored(self, channels: int) -> TensorType:
        """``[points, images, rows, columns, channels]``, or channels after the points."""
        return TensorType(self._ordered(self.points, channels, self._tiles), F32)

    def _ordered(
        self, point: Index, channel: Index, tile: tuple[Index, Index, Index]
    ) -> tuple[Index, ...]:
        last = _are_last(self.convolution)
        return (point, *tile, channel) if last else (point, channel, *tile)

    def place(self, point: Index, part: TileRegion) -> tuple[Index, ...]:
        tile = (Sym(IMAGE), Sym(ROW) + part.rows.start, Sym(COLUMN) + part.columns.start)
        return self._ordered(point, Sym(CHANNEL), tile)

    @property
    def product_axes(self) -> tuple[Axis, ...]:
        extents = self._ordered(self.points, self.outputs, self._tiles)
        names = self._ordered(Sym(POINT), Sym(CHANNEL), (Sym(IMAGE), Sym(ROW), Sym(COLUMN)))
        return tuple(Axis(str(name), e) for name, e in zip(names, extents, strict=True))

    def product_place(self, channel: Index) -> tuple[Index, ...]:
        return self._ordered(Sym(POINT), channel, (Sym(IMAGE), Sym(ROW), Sym(COLUMN)))

    def axes(self, channels: int, part: TileRegion) -> tuple[Axis, ...]:
        images, channel = Axis(IMAGE, self.tiles.images), Axis(CHANNEL, channels)
        tile = Axis(ROW, part.rows.count), Axis(COLUMN, part.columns.count)
        last = _are_last(self.convolution)
        return (images, *tile, channel) if last else (images, channel, *tile)

    def element(self, part: TileRegion, row: Index, column: Index) -> Element:
        """Under the window's conditions, and within the image, which tiles may exceed."""
        found = self.convolution
        first, left = self.tiles.corner(part)
        pixel = found.pixel(Sym(IMAGE), Sym(CHANNEL), first + row, left + column)
        given = pixel.conditions if isinstance(pixel, Guard) else ()
        read = pixel.inside if isinstance(pixel, Guard) else pixel
        assert isinstance(read, Read)
        places = zip((read.indices[n] for n in found.places[2:]), self.image, strict=True)
        bounds = (c for place, size in places for c in _within(place, size))
        extents = {ROW: part.rows.count, COLUMN: part.columns.count, ACROSS: self.tiles.m + 2}
        ranges = {name: loop_range(extent) for name, extent in extents.items()}
        conditions = not_implied([n for c in (*given, *bounds) for n in normal_form(c)], ranges)
        return guard(tuple(dict.fromkeys(conditions)), Element(read), 0.0)


def _within(place: Index, size: int) -> tuple[Condition, Condition]:
    return Condition(place, ">=", 0), Condition(place, "<", size)
