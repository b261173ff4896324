"""Winograd convolution: 3×3 windows of stride 1 by fewer multiplications.

Before and after, for tiles of 4 × 4 outputs (an image of 14 × 14 tiles)::

    %y = [n, co, oh, ow] sum[ci, kh, kw] %x[n, ci, oh + kh - 1, ow + kw - 1] * %w[co, ci, kh, kw]
    %z = [n, co, oh, ow] max(%y[n, co, oh, ow], 0.0)

    %d = [ci, th, tw, j < 6, a < 6] linear[Bᵀ][a](%x[n, ci, 4*th - 1, 4*tw + j - 1], …)
    %v[6*a + b, ci, t] = [ci, th, tw, a < 6, b < 6] linear[Bᵀ][b](%d[ci, th, tw, 0, a], …)
    %m = [p, co, t] sum[ci] %v[p, ci, t] * %u[p, co, ci]
    %s = [co, th, tw, b < 6, i < 4] linear[Aᵀ][i](%m[b, co, t], %m[b + 6, co, t], …)
    %z[n, co, 4*th + i, 4*tw + j] = max(linear[Aᵀ][j](%s[co, th, tw, 0, i], …), 0.0)

with ``t`` the number of a tile of an image, ``d`` and ``s`` in registers, and ``%u = G w Gᵀ``, a
constant if ``w`` is one, else computed by a preceding kernel.  Images of many tiles are split into
blocks of tile rows, so that a block's %v and %m stay in cache: then all stages are one kernel with
leading block axes.  So are images of symbolic number: each is a block, or several.

Rounding errors, relative to the largest output of the layer: below 1e-5 for m = 4 and 2e-6 for m =
2 with up to 512 channels of normally distributed values, also after a ReLU (typically 4e-6 and
1e-6; direct convolution in f32 has 2e-6).  They grow with the root of the number of channels; the
tests measure them against f64.  ``rounding.py`` bounds them for any data; the kernel of the results
carries that as its ``rounding``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from types import MappingProxyType

from modelcc.ir.compute import Element
from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Sym
from modelcc.ir.tensor import Axis, Kernel, Read, TensorProgram
from modelcc.ir.types import F32, Layout, Part, TensorType, blocked
from modelcc.passes.tensor.winograd_filter import TransformedFilter
from modelcc.passes.tensor.winograd_match import Convolution, match_convolution
from modelcc.passes.tensor.winograd_stages import CHANNEL, POINT, WinogradStages, with_winograd
from modelcc.passes.tensor.winograd_tiles import IMAGE, TileRegion, Tiles
from modelcc.schedule.workload import program_key
from modelcc.targets.cpu.passes.winograd_cost import Choice, Shape, WinogradCost

TILE = "wq"
CACHE_WAY = 4096
WORDS: Mapping[str, int] = MappingProxyType({"winograd2": 2, "winograd4": 4})
"""Names of the algorithms in schedules, and their tile sizes."""


@dataclass(frozen=True)
class Winograd:
    """Rewrites fused convolutions for which ``cost`` estimates fewer cycles.

    ``block`` is that of the channels in the layouts of activations.  ``asked`` has words for
    contractions by their keys: these use that algorithm if they can, even if it is slower.
    """

    cost: WinogradCost = field(default_factory=WinogradCost)
    block: int = 16
    asked: Mapping[str, str] = field(default_factory=dict[str, str])

    def __call__(self, program: TensorProgram) -> TensorProgram:
        return with_winograd(program, lambda kernel: self._rewrite(kernel, program))

    def matched(self, kernel: Kernel, program: TensorProgram) -> Convolution | None:
        """The convolution that ``kernel`` starts with, if blocks of channels are innermost in its
        input: then a halo is available."""
        found = match_convolution(kernel, program)
        if found is None or found.places != (0, 1, 2, 3):
            return None
        product, block = found.product, self.block
        plain = product.write == tuple(Sym(a.name) for a in found.axes) == _names(product.axes)
        whole = found.extents[0] % block == found.inputs % block == 0
        return found if plain and whole and _blocked(program.types[found.x], block) else None

    def _rewrite(self, kernel: Kernel, program: TensorProgram) -> _BlockedStages | None:
        found = self.matched(kernel, program)
        if found is None:
            return None
        key = program_key(kernel, program) if self.asked else ""
        word = self.asked.get(key, "")
        if word and word not in WORDS:
            return None
        choice = self.admitted(found, WORDS[word]) if word else self._expected(found)
        if choice is None:
            return None
        tiles, filters = _tiles(found, choice), None
        if found.constant:
            filters = TransformedFilter(program.constants[found.w.tensor], tiles.m)
        return _BlockedStages(found, tiles, self.block, filters, key if word else "")

    def _expected(self, found: Convolution) -> Choice | None:
        return self.cost.choose(_shape(found), apart=not isinstance(found.images, int))

    def admitted(self, found: Convolution, m: int) -> Choice | None:
        """How to compute a convolution by tiles of ``m`` × ``m`` outputs, if possible."""
        return self.cost.fastest(_shape(found), not isinstance(found.images, int), (m,))


def _names(axes: Sequence[Axis]) -> tuple[Sym, ...]:
    return tuple(Sym(a.name) for a in axes)


def _shape(found: Convolution) -> Shape:
    outputs, height, width = found.extents
    # A symbolic number of images may be 1.
    images = found.images if isinstance(found.images, int) else 1
    return Shape(images, found.inputs, outputs, height, width, found.constant)


def _tiles(found: Convolution, choice: Choice) -> Tiles:
    _, height, width = found.extents
    return Tiles(choice.m, found.images, height, width, choice.blocks)


def _blocked(type_: TensorType, block: int) -> bool:
    """Whether channels are blocked, innermost."""
    layout = type_.layout
    fixed = all(isinstance(extent, int) for extent in type_.shape[1:])
    return layout is not None and fixed and layout.parts == blocked(4, 1, block).parts


@dataclass(frozen=True)
class _BlockedStages(WinogradStages):
    """Channels in blocks of ``block``, images with halos, and tiles in cache."""

    block: int
    made: TransformedFilter | None
    asked: str = ""

    @property
    def together(self) -> bool:
        """Whether blocks of tiles stay in cache."""
        return self.tiles.apart

    @property
    def filters(self) -> Constant | None:
        return self.made

    def kernels(self) -> list[Kernel]:
        """All kernels; the last one computes the result."""
        *before, last = super().kernels()
        return [*before, replace(last, asked=self.asked)]

    def input_type(self, x: TensorType) -> TensorType:
        """The input's type with a halo that covers all tiles."""
        layout = x.physical
        halo = list(layout.halo)
        reached = (self.tiles.rows, self.tiles.columns)
        for dim, tiles, pad in zip((2, 3), reached, self.convolution.pads, strict=True):
            extent = x.shape[dim]
            past = tiles * self.tiles.m + 2 - pad - extent
            before, after = halo[dim]
            wanted = past if isinstance(past, int) else 0
            halo[dim] = (max(before, pad), max(after, wanted))
        return x.with_layout(Layout(layout.parts, tuple(halo)))

    @property
    def filter_type(self) -> TensorType:
        """Blocks of outputs innermost, unless constants are packed later, with padding so that
        planes do not map to the same cache sets."""
        plain = TensorType((self.points, self.outputs, self.inputs), F32)
        if self.convolution.constant:
            return plain
        parts = (Part(0), Part(1, self.block), Part(2), Part(1, 1, self.block))
        return plain.with_layout(Layout(parts, ((0, 0), (0, self.block), (0, 0))))

    def stored(self, channels: int) -> TensorType:
        """``[blocks, points, channels, tiles]`` with channel blocks innermost.

        The points of a tile are written together: padding of channels and tiles keeps them from
        mapping to the same cache sets.
        """
        outer = tuple(a.extent for a in self.tiles.outer)
        together = self.block * F32.bytes
        spare_channels, spare_tiles = _spare(channels // self.block, self.tiles.count, together)
        shape = (*outer, self.points, channels, self.tiles.count)
        plain = blocked(len(shape), len(outer) + 1, self.block)
        spare = ((0, spare_channels * self.block), (0, spare_tiles))
        return TensorType(shape, F32, Layout(plain.parts, (*plain.halo[:-2], *spare)))

    def _at(self, point: Index, channel: Index, tile: Index) -> tuple[Index, ...]:
        return (*_names(self.tiles.outer), point, channel, tile)

    def place(self, point: Index, part: TileRegion) -> tuple[Index, ...]:
        return self._at(point, Sym(CHANNEL), self.tiles.number(part))

    @property
    def product_axes(self) -> tuple[Axis, ...]:
        points, tiles = Axis(POINT, self.points), Axis(TILE, self.tiles.count)
        return (*self.tiles.outer, points, Axis(CHANNEL, self.outputs), tiles)

    def product_place(self, channel: Index) -> tuple[Index, ...]:
        return self._at(Sym(POINT), channel, Sym(TILE))

    def filter_place(self, point: Index, output: Index, channel: Index) -> tuple[Index, ...]:
        return (point, output, channel)

    def axes(self, channels: int, part: TileRegion) -> tuple[Axis, ...]:
        return (*self.tiles.outer, Axis(CHANNEL, channels), *self.tiles.inner(part))

    def element(self, part: TileRegion, row: Index, column: Index) -> Element:
        """The element itself: the input has a halo."""
        first, left = self.tiles.corner(part)
        up, before = self.convolution.pads
        place = (Sym(IMAGE), Sym(CHANNEL), first + (row - up), left + (column - before))
        return Element(Read(self.convolution.x, place, F32))


def _spare(channel_blocks: int, tiles: int, together: int) -> tuple[int, int]:
    """Channel blocks, of ``together`` bytes, and tiles to add so that planes start at 8 or more
    offsets in a cache way."""
    options = sorted(((b, t) for b in (0, 1) for t in (0, 1)), key=lambda o: (sum(o), o))
    sizes = [(channel_blocks + b) * (tiles + t) * together for b, t in options]
    return min(zip(sizes, options, strict=True), key=lambda o: gcd(o[0], CACHE_WAY) > 512)[1]
