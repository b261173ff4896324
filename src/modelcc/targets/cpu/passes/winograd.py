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
constant if ``w`` is one, else made by a kernel before.  Images of many tiles are cut into blocks of
tile rows, so that a block's %v and %m stay in cache: then all of it is one kernel with leading
block axes.  So are images whose number is not known: each is a block, or several.

Rounding errors, relative to the largest output of the layer: below 1e-5 for m = 4 and 2e-6 for
m = 2 with up to 512 channels of normally distributed values, also after a ReLU (typically 4e-6
and 1e-6; direct convolution in f32 has 2e-6).  They grow with the root of the number of channels;
the tests measure them against f64.  ``rounding.py`` bounds them for any data; the kernel that gives
the results carries that as its ``rounding``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from types import MappingProxyType
from typing import Literal

from modelcc.ir.compute import Element, Matrix, linear
from modelcc.ir.index import Index, Sym
from modelcc.ir.tensor import Apply, Axis, Item, Kernel, Read, Stage, TensorProgram
from modelcc.ir.types import F32, Layout, Part, TensorType, blocked
from modelcc.passes.tensor.added_constants import still_read
from modelcc.passes.tensor.fused_kernel import kernel_of
from modelcc.schedule.workload import program_key
from modelcc.targets.cpu.passes.epilogue import followed
from modelcc.targets.cpu.passes.rounding import winograd_rounding
from modelcc.targets.cpu.passes.winograd_cost import Choice, Shape, WinogradCost
from modelcc.targets.cpu.passes.winograd_filter import TransformedFilter
from modelcc.targets.cpu.passes.winograd_match import Convolution, match_convolution
from modelcc.targets.cpu.passes.winograd_tiles import IMAGE, TileRegion, Tiles
from modelcc.targets.cpu.passes.winograd_transforms import (
    filter_factors,
    input_factors,
    output_factors,
)

Value = Literal["g", "d", "v", "u", "m", "s"]
At = Callable[[Index, Index], Element]
"""An element of a tile by its row and column."""
CHANNEL, POINT, INPUT, TILE = "wc", "wp", "wi", "wq"
DOWN, ACROSS = "wy", "wx"
"""Axes within a tile."""
CACHE_WAY = 4096
WORDS: Mapping[str, int] = MappingProxyType({"winograd2": 2, "winograd4": 4})
"""What schedules call the algorithms, and their tiles."""


@dataclass(frozen=True)
class Winograd:
    """Rewrites fused convolutions for which ``cost`` estimates fewer cycles.

    ``block`` is that of the channels in the layouts of activations.  ``asked`` has words for
    contractions by their keys: these are computed by that algorithm if they can, be it slower.
    """

    cost: WinogradCost = field(default_factory=WinogradCost)
    block: int = 16
    asked: Mapping[str, str] = field(default_factory=dict[str, str])

    def __call__(self, program: TensorProgram) -> TensorProgram:
        items: list[Item] = []
        types = dict(program.types)
        constants = dict(program.constants)
        for item in program.items:
            rewrite = self._rewrite(item, program) if isinstance(item, Kernel) else None
            if rewrite is None:
                items.append(item)
                continue
            kernels = rewrite.kernels()
            items += kernels
            types |= rewrite.types(kernels)
            x = rewrite.convolution.x
            types[x] = rewrite.widened(types[x])
            if rewrite.convolution.constant:
                filters = program.constants[rewrite.convolution.w.tensor]
                constants[rewrite.name("u")] = TransformedFilter(filters, rewrite.tiles.m)
        kept = still_read(items, program, constants)
        changed = replace(program, types=types, constants=kept)
        return changed.with_items(tuple(items))

    def _rewrite(self, kernel: Kernel, program: TensorProgram) -> _WinogradRewrite | None:
        found = match_convolution(kernel, program, self.block)
        if found is None:
            return None
        key = program_key(kernel, program) if self.asked else ""
        word = self.asked.get(key, "")
        if word and word not in WORDS:
            return None
        choice = self.admitted(found, WORDS[word]) if word else self._expected(found)
        if choice is None:
            return None
        return _WinogradRewrite(found, _tiles(found, choice), self.block, key if word else "")

    def _expected(self, found: Convolution) -> Choice | None:
        return self.cost.choose(_shape(found), apart=not isinstance(found.images, int))

    def admitted(self, found: Convolution, m: int) -> Choice | None:
        """How to compute a convolution by tiles of ``m`` × ``m`` outputs, if it can be."""
        return self.cost.fastest(_shape(found), not isinstance(found.images, int), (m,))


def _shape(found: Convolution) -> Shape:
    outputs, height, width = found.extents
    # A number of images that is not known may be 1.
    images = found.images if isinstance(found.images, int) else 1
    return Shape(images, found.inputs, outputs, height, width, found.constant)


def _tiles(found: Convolution, choice: Choice) -> Tiles:
    _, height, width = found.extents
    return Tiles(choice.m, found.images, height, width, choice.blocks)


@dataclass(frozen=True)
class _WinogradRewrite:
    """The kernels, types and names that replace one convolution."""

    convolution: Convolution
    tiles: Tiles
    block: int
    asked: str = ""

    def name(self, value: Value, suffix: str = "") -> str:
        """Name of an intermediate tensor."""
        return f"{self.convolution.product.output}.{value}{suffix}"

    def kernels(self) -> list[Kernel]:
        """One kernel for blocks, else one per step, after that of filters that are not constant."""
        steps = (list(self._inputs()), [self._products()], list(self._outputs()))
        kernel = self.convolution.kernel
        before: list[Kernel] = []
        if not self.convolution.constant:
            stages, made = tuple(self._filters()), (self.name("u"),)
            before = [kernel_of("winograd_filter", stages, made, kernel.source)]
        if self.tiles.apart:
            stages = tuple(s for step in steps for s in step)
            whole = kernel_of(f"{kernel.name}_winograd", stages, kernel.outputs, kernel.source)
            return [*before, self._rounding(whole)]
        stored = ((self.name("v"),), (self.name("m"),), kernel.outputs)
        names = ("winograd_input", "winograd_product", f"{kernel.name}_winograd")
        found = [
            kernel_of(name, tuple(step), outputs, kernel.source)
            for name, step, outputs in zip(names, steps, stored, strict=True)
        ]
        return [*before, *found[:-1], self._rounding(found[-1])]

    def _rounding(self, kernel: Kernel) -> Kernel:
        """``kernel``, which gives the results, with what is known of their errors."""
        rounding = winograd_rounding(self.tiles.m, self._inner_c, self.convolution.constant)
        return replace(kernel, rounding=rounding, asked=self.asked)

    def types(self, kernels: Sequence[Kernel]) -> dict[str, TensorType]:
        """Types of all new tensors of ``kernels``, those in registers included."""
        found: dict[str, TensorType] = {}
        for stage in (s for kernel in kernels for s in kernel.stages):
            if stage.output not in self.convolution.kernel.outputs:
                extents = tuple(a.extent for a in stage.axes)
                found[stage.output] = TensorType(extents, stage.body.dtype)
        found[self.name("u")] = self._filter_type
        found[self.name("v")] = self._stored(self._inner_c)
        found[self.name("m")] = self._stored(self._outer_c)
        return found

    def widened(self, x: TensorType) -> TensorType:
        """The input's type with a border for whatever the tiles reach."""
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
    def _filter_type(self) -> TensorType:
        """Blocks of outputs innermost, unless constants are packed later, with room for planes
        not to fall on the same cache sets."""
        plain = TensorType((self._points, self._outer_c, self._inner_c), F32)
        if self.convolution.constant:
            return plain
        parts = (Part(0), Part(1, self.block), Part(2), Part(1, 1, self.block))
        return plain.with_layout(Layout(parts, ((0, 0), (0, self.block), (0, 0))))

    @property
    def _points(self) -> int:
        return (self.tiles.m + 2) ** 2

    @property
    def _inner_c(self) -> int:
        return self.convolution.inputs

    @property
    def _outer_c(self) -> int:
        return self.convolution.extents[0]

    def _stored(self, channels: int) -> TensorType:
        """``[blocks, points, channels, tiles]`` with channel blocks innermost.

        The points of a tile are written together: spare channels and tiles keep them from
        falling on the same cache sets.
        """
        outer = tuple(a.extent for a in self.tiles.outer)
        together = self.block * F32.bytes
        spare_channels, spare_tiles = _spare(channels // self.block, self.tiles.count, together)
        shape = (*outer, self._points, channels, self.tiles.count)
        plain = blocked(len(shape), len(outer) + 1, self.block)
        spare = ((0, spare_channels * self.block), (0, spare_tiles))
        return TensorType(shape, F32, Layout(plain.parts, (*plain.halo[:-2], *spare)))

    def _at(self, point: Index, channel: Index, tile: Index) -> tuple[Index, ...]:
        return (*(Sym(a.name) for a in self.tiles.outer), point, channel, tile)

    def _axes(self, channels: int, part: TileRegion) -> tuple[Axis, ...]:
        return (*self.tiles.outer, Axis(CHANNEL, channels), *self.tiles.inner(part))

    def _filters(self) -> Iterator[Stage]:
        """Those that come at run time, transformed as :class:`TransformedFilter` does."""
        size, factors = self.tiles.m + 2, filter_factors(self.tiles.m)
        axes = (Axis(CHANNEL, self._outer_c), Axis(INPUT, self._inner_c))

        def element(i: Index, j: Index) -> Element:
            return Element(self.convolution.tap(Sym(CHANNEL), Sym(INPUT), i, j))

        value = yield from self._transformed("g", element, factors, factors, axes)
        where = (Sym(DOWN) * size + Sym(ACROSS), Sym(CHANNEL), Sym(INPUT))
        own = (Axis(DOWN, size), Axis(ACROSS, size))
        yield Stage(self.name("u"), (*axes, *own), where, value(Sym(DOWN), Sym(ACROSS)).scalar)

    def _inputs(self) -> Iterator[Stage]:
        size, part = self.tiles.m + 2, self.tiles.everything
        axes = self._axes(self._inner_c, part)
        row, column = self.tiles.corner(part)
        up, left = self.convolution.pads

        def element(i: Index, j: Index) -> Element:
            place = (Sym(IMAGE), Sym(CHANNEL), row + (i - up), column + (j - left))
            return Element(Read(self.convolution.x, place, F32))

        factors = input_factors(self.tiles.m)
        value = yield from self._transformed("d", element, factors, factors, axes)
        where = self._at(Sym(DOWN) * size + Sym(ACROSS), Sym(CHANNEL), self.tiles.number(part))
        own = (Axis(DOWN, size), Axis(ACROSS, size))
        body = value(Sym(DOWN), Sym(ACROSS)).scalar
        yield Stage(self.name("v"), (*axes, *own), where, body)

    def _products(self) -> Stage:
        points, tiles = Axis(POINT, self._points), Axis(TILE, self.tiles.count)
        axes = (*self.tiles.outer, points, Axis(CHANNEL, self._outer_c), tiles)
        point, channel, tile, summed = Sym(POINT), Sym(CHANNEL), Sym(TILE), Sym(INPUT)
        v = Read(self.name("v"), self._at(point, summed, tile), F32)
        u = Read(self.name("u"), (point, channel, summed), F32)
        where = self._at(point, channel, tile)
        over = (Axis(INPUT, self._inner_c),)
        return Stage(self.name("m"), axes, where, Apply("mul", (v, u), F32), over, "sum")

    def _outputs(self) -> Iterator[Stage]:
        for number, part in enumerate(self.tiles.parts()):
            yield from self._output_part(part, str(number))

    def _output_part(self, part: TileRegion, prefix: str) -> Iterator[Stage]:
        m, size = self.tiles.m, self.tiles.m + 2
        axes, tile = self._axes(self._outer_c, part), self.tiles.number(part)

        def element(a: Index, b: Index) -> Element:
            place = self._at(a * size + b, Sym(CHANNEL), tile)
            return Element(Read(self.name("m"), place, F32))

        down, across = (output_factors(m, s.outputs) for s in (part.rows, part.columns))
        value = yield from self._transformed("s", element, down, across, axes, prefix)
        yield from self._epilogue(part, axes, value, prefix)

    def _transformed(
        self,
        value: Value,
        element: At,
        down: Sequence[Matrix],
        across: Sequence[Matrix],
        axes: tuple[Axis, ...],
        prefix: str = "",
    ) -> Generator[Stage, None, At]:
        """The stage that transforms columns of a tile: elements with rows transformed, too."""
        size, name = len(down[0][0]), self.name(value, prefix)
        axes = (*axes, Axis(ACROSS, size), Axis(DOWN, len(down[-1])))
        where = tuple(Sym(axis.name) for axis in axes)
        column = [element(i, Sym(ACROSS)) for i in range(size)]
        yield Stage(name, axes, where, linear(down, Sym(DOWN), column).scalar)

        def result(a: Index, b: Index) -> Element:
            row = [Element(Read(name, (*where[:-2], j, a), F32)) for j in range(size)]
            return linear(across, b, row)

        return result

    def _epilogue(
        self, part: TileRegion, axes: tuple[Axis, ...], value: At, prefix: str
    ) -> Iterator[Stage]:
        """Elements of the convolution and what its epilogue makes of them."""
        row, column = self.tiles.corner(part)
        n, co, oh, ow = (a.name for a in self.convolution.axes)
        down, across = Sym(DOWN), Sym(ACROSS)
        at = {n: Sym(IMAGE), co: Sym(CHANNEL), oh: row + down, ow: column + across}
        axes = (*axes, Axis(DOWN, part.rows.outputs), Axis(ACROSS, part.columns.outputs))
        chain = (self.convolution.product, *self.convolution.epilogue)
        stored = self.convolution.kernel.outputs
        yield from followed(chain, value(down, across).scalar, axes, at, prefix, stored)


def _spare(channel_blocks: int, tiles: int, together: int) -> tuple[int, int]:
    """Channel blocks, of ``together`` bytes, and tiles to add so that planes start at 8 or more
    places in a cache way."""
    options = sorted(((b, t) for b in (0, 1) for t in (0, 1)), key=lambda o: (sum(o), o))
    sizes = [(channel_blocks + b) * (tiles + t) * together for b, t in options]
    return min(zip(sizes, options, strict=True), key=lambda o: gcd(o[0], CACHE_WAY) > 512)[1]
