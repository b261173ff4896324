"""Depthwise convolutions: four channels of a pixel at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from modelcc.ir.argument import Argument
from modelcc.ir.index import (
    Index,
    Sym,
    ceildiv,
    coefficient,
    floordiv,
    maximum,
    minimum,
    mod,
    substitute,
    symbols,
)
from modelcc.ir.loop import BindIndex, Buffer, For, Function, IndexOf, Parameter, RoutineCall, Stmt
from modelcc.ir.types import I16, I64, U8, Layout, Part, TensorType
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.nest import LoopVar
from modelcc.targets.isa.arm_dsp import DEPTHWISE_4, DEPTHWISE_REST
from modelcc.targets.isa.arm_dsp_halves import DEPTHWISE_4_U8
from modelcc.targets.mcu.blocks import WORD, SharedRows, SumBlock, routine, shared_rows
from modelcc.targets.mcu.pixels import backwards
from modelcc.targets.mcu.products import Product, number_in
from modelcc.targets.mcu.some_rows import SomeRows

CHANNELS = 4

BY_FOURS = Layout((Part(0, CHANNELS), Part(1), Part(0, 1, CHANNELS)), ((0, 0),) * 2)
"""Weights of four channels interleaved; the last group is padded."""

HALVES_BY_FOURS = Layout((Part(0, CHANNELS), Part(1), Part(0, 1, 2), Part(0, 2, 2)), ((0, 0),) * 2)
"""The same for halves, with the second and the third of each four swapped."""


def fits(product: Product) -> bool:
    """Whether channels are contiguous, four or more, and every window has some rows and columns
    inside the image."""
    operand, row = product.operand, product.row.name
    side = coefficient(operand.offset, row) == 1 and product.rows >= CHANNELS
    even = all(product.step(n.store) for n in product.nests if n.output in product.stored)
    apart = not any(row in symbols(c.left) for c in operand.conditions)
    numbers = all(isinstance(coefficient(operand.offset, v.name), int) for v in product.reduce)
    few = 0 < len(product.reduce) <= 2
    unsigned = (operand.dtype, product.weight) == (U8, I16) and product.rows % CHANNELS == 0
    known = product.of_bytes or unsigned
    windows = product.shared and known and operand.fades and few and _reaches(product)
    return windows and side and even and apart and numbers


def _reaches(product: Product) -> bool:
    """Whether each condition concerns a single axis of taps, some of which satisfy it at any
    pixel."""
    taps, pixels = (
        {v.name: number_in(v.extent) for v in vs} for vs in (product.reduce, product.pixels)
    )
    spans: dict[str, list[range]] = {}
    for c in product.operand.conditions:
        own = [name for name in symbols(c.left) if name in taps]
        if len(own) != 1 or symbols(c.left) - taps.keys() - pixels.keys():
            return False
        spans.setdefault(own[0], [])
    return all(_always(product, name, taps[name], pixels) for name in spans)


def _always(product: Product, tap: str, count: int, pixels: Mapping[str, int]) -> bool:
    conditions = [c for c in product.operand.conditions if tap in symbols(c.left)]
    others = {name for c in conditions for name in symbols(c.left)} - {tap}
    if len(others) > 1:
        return False
    for place in range(pixels[next(iter(others))] if others else 1):
        point = dict.fromkeys(others, place)
        found = (
            all(number_in(substitute(c.left, {**point, tap: t})) >= 0 for c in conditions)
            for t in range(count)
        )
        if not any(found):
            return False
    return True


class _Span(NamedTuple):
    """A run of taps ``first`` … ``last - 1`` of a window, of ``extent`` in all, with strides of
    ``step`` bytes of the image and ``place`` weights."""

    first: Index
    last: Index
    extent: int
    step: int
    place: int

    @property
    def count(self) -> Index:
        """Number of taps."""
        return self.last - self.first


@dataclass(frozen=True)
class Depthwise:
    """Statements of a product that :func:`fits`: windows are clipped to the image."""

    product: Product
    names: FreshNames
    some: SomeRows | None = None

    def layouts(self, types: Mapping[str, TensorType]) -> dict[str, Layout]:
        """Layouts of constants."""
        return {self.product.weights: BY_FOURS if self.product.of_bytes else HALVES_BY_FOURS}

    def statements(self) -> list[Stmt]:
        """Pixel by pixel, from the last one to the first.

        The epilogue runs from the first to the last pixel, so that in a chain of both the extra
        memory of results beside operands does not add up.
        """
        product = self.product
        bound: list[Stmt] = []
        rows, columns = (self._span(v, bound) for v in self._window)
        first = {product.row.name: 0, **{v.name: 0 for v in product.reduce}}
        start = substitute(product.operand.offset, first)
        start = start + rows.first * rows.step + columns.first * columns.step
        place = CHANNELS * (rows.first * rows.place + columns.first * columns.place)
        sizes = _Sizes(
            product.rows, rows.count, columns.count, rows.place, product.steps, rows.step,
            columns.step, product.operand.zero + (128 if product.of_bytes else 0),
        )  # fmt: skip
        x, weights = Argument(product.operand.tensor, start), Argument(product.weights, place)
        body: Sequence[Stmt] = [*bound, *self._channels(x, weights, sizes)]
        return backwards(product, body, self.some, self.names)

    @property
    def _window(self) -> tuple[LoopVar, LoopVar]:
        """Rows and columns of a window."""
        place = self.product.place
        found = sorted(self.product.reduce, key=lambda v: -number_in(coefficient(place, v.name)))
        return (LoopVar("row1", 1, "row1"), found[0]) if len(found) == 1 else (found[0], found[1])

    def _span(self, v: LoopVar, bound: list[Stmt]) -> _Span:
        """The taps along ``v`` that are inside; statements that compute its ends are added to
        ``bound``."""
        product, count = self.product, number_in(v.extent)
        step, place = (
            number_in(coefficient(i, v.name)) for i in (product.operand.offset, product.place)
        )
        first: Index = 0
        last: Index = count
        for c in product.operand.conditions:
            factor, left = number_in(coefficient(c.left, v.name)), substitute(c.left, {v.name: 0})
            if factor > 0:
                first = maximum(first, ceildiv(-left, factor))
            elif factor < 0:
                last = minimum(last, floordiv(left, -factor) + 1)
        ends: list[Index] = []
        for stem, end in (("first", first), ("last", last)):
            name = self.names.fresh(stem)
            if not isinstance(end, int):
                bound.append(BindIndex(name, IndexOf(end, I64)))
            ends.append(end if isinstance(end, int) else Sym(name))
        return _Span(ends[0], ends[1], count, step, place or count)

    def _channels(self, x: Argument, weights: Argument, sizes: _Sizes) -> Sequence[Stmt]:
        """All channels of a pixel."""
        product, pixel = self.product, _number(self.product)
        whole = product.rows % CHANNELS == 0
        shared = shared_rows(product)
        if shared is None:
            return _blocks(product, self.names, x, weights, pixel, sizes, whole)
        given = (x, weights, *shared.arguments(product, pixel))
        return [RoutineCall(_function(shared, whole), given, (*sizes, *shared.numbers))]


class _Sizes(NamedTuple):
    """Numbers of channels, rows and columns, of weights per row and per channel; strides of rows
    and columns of the image; and its zero point, plus 128."""

    channels: Index
    rows: Index
    columns: Index
    wide: Index
    taps: Index
    down: Index
    right: Index
    zero: Index

    @property
    def window(self) -> tuple[Index, ...]:
        """Sizes of ``depthwise_4``."""
        return self.rows, self.columns, self.wide, self.down, self.right, self.zero


def _number(product: Product) -> Index:
    """The number of a pixel."""
    number: Index = 0
    for v in product.pixels:
        number = number * v.extent + Sym(v.name)
    return number


def _blocks(
    product: Product, names: FreshNames, x: Argument, weights: Argument, pixel: Index,
    sizes: _Sizes, whole: bool,
) -> list[Stmt]:  # fmt: skip
    """A loop over groups of four channels; without ``whole`` one to three remain at the end."""
    number, fours = names.fresh("c"), floordiv(sizes.channels, CHANNELS)

    def dot(block: Index, function: Function, *more: Index) -> Callable[[str], RoutineCall]:
        offset = x.offset + (sizes.channels - CHANNELS if more else CHANNELS * block)
        own = Argument(weights.buffer, weights.offset + CHANNELS * sizes.taps * block)
        given = Argument(x.buffer, offset), own
        return lambda sums: RoutineCall(
            function, (*given, Argument(sums, 0)), (*sizes.window, *more)
        )

    block = SumBlock(product, names, 1, CHANNELS, True)
    first = CHANNELS * Sym(number)
    own = DEPTHWISE_4 if product.of_bytes else DEPTHWISE_4_U8
    four = block.statements(pixel, first, dot(Sym(number), own), sizes.channels)
    body: list[Stmt] = [For(number, 0, fours, tuple(four))]
    if not whole:
        count = mod(sizes.channels, CHANNELS)
        last = dot(fours, DEPTHWISE_REST, count)
        body += block.rest(pixel, CHANNELS * fours, last, count)
    return body


def _function(shared: SharedRows, whole: bool) -> Function:
    sizes = _Sizes(*map(Sym, _Sizes._fields))
    channels, blocks = sizes.channels, ceildiv(sizes.channels, CHANNELS)
    image = sizes.down * (sizes.rows - 1) + sizes.right * (sizes.columns - 1) + channels
    window = sizes.wide * (sizes.rows - 1) + sizes.columns
    weights = CHANNELS * (sizes.taps * (blocks - 1) + window)
    parameters = [
        Parameter(Buffer("x", shared.product.operand.dtype, image, align=1)),
        Parameter(Buffer("weights", shared.product.weight, weights, align=WORD)),
        *shared.buffers(channels, 1),
    ]
    given = Argument("x", 0), Argument("weights", 0)
    body = _blocks(shared.product, FreshNames(), *given, 0, sizes, whole)
    return routine("channels_of_one", parameters, (*_Sizes._fields, *shared.sizes), body)
