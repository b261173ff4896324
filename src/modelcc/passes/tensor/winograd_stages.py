"""The stages of a convolution by Winograd's algorithm, for any layout of their tensors.

For tiles of 4 × 4 outputs, of a whole image or of a part of it::

    %d = linear[Bᵀ] of columns of %x, 6 elements each
    %v = linear[Bᵀ] of rows of %d
    %m[p, …] = sum[ci] %v[p, …] * %u[p, …]
    %s = linear[Aᵀ] of columns of %m
    %y = linear[Aᵀ] of rows of %s, and the epilogue

with ``p`` the number of an element of a tile, ``d`` and ``s`` in registers, and ``%u = G w Gᵀ``, a
constant if ``w`` is one, else computed by an earlier kernel.  A target's subclass gives the layouts
of %v, %u and %m, and the order of channels and tiles in its loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from modelcc.ir.compute import Element, Matrix, linear
from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Sym
from modelcc.ir.tensor import Apply, Axis, Item, Kernel, Read, Stage, TensorProgram
from modelcc.ir.types import F32, TensorType
from modelcc.passes.tensor.added_constants import still_read
from modelcc.passes.tensor.epilogue import followed
from modelcc.passes.tensor.fused_kernel import kernel_of
from modelcc.passes.tensor.rounding import winograd_rounding
from modelcc.passes.tensor.winograd_match import Convolution
from modelcc.passes.tensor.winograd_tiles import IMAGE, TileRegion, Tiles
from modelcc.passes.tensor.winograd_transforms import (
    filter_factors,
    input_factors,
    output_factors,
)

Value = Literal["g", "d", "v", "u", "m", "s"]
At = Callable[[Index, Index], Element]
"""An element of a tile by its row and column."""
CHANNEL, POINT, INPUT = "wc", "wp", "wi"
DOWN, ACROSS = "wy", "wx"
"""Axes within a tile."""


@dataclass(frozen=True)
class WinogradStages(ABC):
    """The stages, kernels, types and names that replace one convolution."""

    convolution: Convolution
    tiles: Tiles

    @property
    @abstractmethod
    def product_axes(self) -> tuple[Axis, ...]:
        """Axes of the products, in the order of the product tensor."""

    @abstractmethod
    def product_place(self, channel: Index) -> tuple[Index, ...]:
        """The indices of an element of inputs, or of products, at the axes of the products."""

    @abstractmethod
    def place(self, point: Index, part: TileRegion) -> tuple[Index, ...]:
        """The indices of an element of a tile of ``part``, at :meth:`axes`."""

    @abstractmethod
    def filter_place(self, point: Index, output: Index, channel: Index) -> tuple[Index, ...]:
        """The indices of an element of a transformed filter."""

    @abstractmethod
    def axes(self, channels: int, part: TileRegion) -> tuple[Axis, ...]:
        """Axes over the tiles of ``part``, and channels."""

    @abstractmethod
    def element(self, part: TileRegion, row: Index, column: Index) -> Element:
        """An element of a tile of inputs, 0 beyond the image."""

    @abstractmethod
    def stored(self, channels: int) -> TensorType:
        """The type of transformed inputs, or of products."""

    @property
    @abstractmethod
    def filter_type(self) -> TensorType:
        """The type of transformed filters."""

    @property
    @abstractmethod
    def filters(self) -> Constant | None:
        """Transformed constant filters; None if they come at run time."""

    @property
    def together(self) -> bool:
        """Whether one kernel has all stages."""
        return False

    def input_type(self, x: TensorType) -> TensorType:
        """The type of the convolution's input, which was ``x``."""
        return x

    @property
    def points(self) -> int:
        """Elements of a tile of inputs."""
        return (self.tiles.m + 2) ** 2

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return self.convolution.inputs

    @property
    def outputs(self) -> int:
        """Channels of the results."""
        return self.convolution.extents[0]

    def name(self, value: Value, suffix: str = "") -> str:
        """Name of an intermediate tensor."""
        return f"{self.convolution.product.output}.{value}{suffix}"

    def kernels(self) -> list[Kernel]:
        """One kernel, or one per step, after that of filters that are not constant."""
        steps = (list(self._inputs()), [self._products()], list(self._outputs()))
        kernel = self.convolution.kernel
        before: list[Kernel] = []
        if not self.convolution.constant:
            stages, made = tuple(self._filters()), (self.name("u"),)
            before = [kernel_of("winograd_filter", stages, made, kernel.source)]
        if self.together:
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
        """``kernel``, which computes the results, with bounds of their errors."""
        rounding = winograd_rounding(self.tiles.m, self.inputs, self.convolution.constant)
        return replace(kernel, rounding=rounding)

    def types(self, kernels: Sequence[Kernel]) -> dict[str, TensorType]:
        """Types of all new tensors of ``kernels``, those in registers included."""
        found: dict[str, TensorType] = {}
        for stage in (s for kernel in kernels for s in kernel.stages):
            if stage.output not in self.convolution.kernel.outputs:
                extents = tuple(a.extent for a in stage.axes)
                found[stage.output] = TensorType(extents, stage.body.dtype)
        found[self.name("u")] = self.filter_type
        found[self.name("v")] = self.stored(self.inputs)
        found[self.name("m")] = self.stored(self.outputs)
        return found

    def _filters(self) -> Iterator[Stage]:
        """Filters that come at run time, transformed as
        :class:`~modelcc.passes.tensor.winograd_filter.TransformedFilter` does."""
        size, factors = self.tiles.m + 2, filter_factors(self.tiles.m)
        axes = (Axis(CHANNEL, self.outputs), Axis(INPUT, self.inputs))

        def element(i: Index, j: Index) -> Element:
            return Element(self.convolution.tap(Sym(CHANNEL), Sym(INPUT), i, j))

        value = yield from self._transformed("g", element, factors, factors, axes)
        where = self.filter_place(Sym(DOWN) * size + Sym(ACROSS), Sym(CHANNEL), Sym(INPUT))
        own = (Axis(DOWN, size), Axis(ACROSS, size))
        yield Stage(self.name("u"), (*axes, *own), where, value(Sym(DOWN), Sym(ACROSS)).scalar)

    def _inputs(self) -> Iterator[Stage]:
        size, part = self.tiles.m + 2, self.tiles.everything
        axes, factors = self.axes(self.inputs, part), input_factors(self.tiles.m)

        def element(i: Index, j: Index) -> Element:
            return self.element(part, i, j)

        value = yield from self._transformed("d", element, factors, factors, axes)
        where = self.place(Sym(DOWN) * size + Sym(ACROSS), part)
        own = (Axis(DOWN, size), Axis(ACROSS, size))
        body = value(Sym(DOWN), Sym(ACROSS)).scalar
        yield Stage(self.name("v"), (*axes, *own), where, body)

    def _products(self) -> Stage:
        channel, summed = Sym(CHANNEL), Sym(INPUT)
        v = Read(self.name("v"), self.product_place(summed), F32)
        u = Read(self.name("u"), self.filter_place(Sym(POINT), channel, summed), F32)
        where, over = self.product_place(channel), (Axis(INPUT, self.inputs),)
        body = Apply("mul", (v, u), F32)
        return Stage(self.name("m"), self.product_axes, where, body, over, "sum")

    def _outputs(self) -> Iterator[Stage]:
        for number, part in enumerate(self.tiles.parts()):
            yield from self._output_part(part, str(number))

    def _output_part(self, part: TileRegion, prefix: str) -> Iterator[Stage]:
        m, size = self.tiles.m, self.tiles.m + 2
        axes = self.axes(self.outputs, part)

        def element(a: Index, b: Index) -> Element:
            return Element(Read(self.name("m"), self.place(a * size + b, part), F32))

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
        """Elements of the convolution and its epilogue."""
        row, column = self.tiles.corner(part)
        n, co, oh, ow = (a.name for a in self.convolution.axes)
        down, across = Sym(DOWN), Sym(ACROSS)
        at = {n: Sym(IMAGE), co: Sym(CHANNEL), oh: row + down, ow: column + across}
        axes = (*axes, Axis(DOWN, part.rows.outputs), Axis(ACROSS, part.columns.outputs))
        chain = (self.convolution.product, *self.convolution.epilogue)
        stored = self.convolution.kernel.outputs
        yield from followed(chain, value(down, across).scalar, axes, at, prefix, stored)


def with_winograd(
    program: TensorProgram, find: Callable[[Kernel], WinogradStages | None]
) -> TensorProgram:
    """``program`` with the stages that ``find`` gives in place of kernels."""
    items: list[Item] = []
    types = dict(program.types)
    constants = dict(program.constants)
    for item in program.items:
        found = find(item) if isinstance(item, Kernel) else None
        if found is None:
            items.append(item)
            continue
        kernels = found.kernels()
        items += kernels
        types |= found.types(kernels)
        x = found.convolution.x
        types[x] = found.input_type(types[x])
        if (filters := found.filters) is not None:
            constants[found.name("u")] = filters
    kept = still_read(items, program, constants)
    changed = replace(program, types=types, constants=kept)
    return changed.with_items(tuple(items))
