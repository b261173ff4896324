"""Depthwise convolutions by Helium: eight channels of a pixel at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.argument import Argument
from modelcc.ir.index import (
    Index,
    Sym,
    ceildiv,
    coefficient,
    floordiv,
    maximum,
    minimum,
    substitute,
    symbols,
)
from modelcc.ir.loop import Alloc, BindIndex, Buffer, For, IndexOf, RoutineCall, Stmt
from modelcc.ir.types import I32, I64, Layout, Part, TensorType
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.nest import LoopVar
from modelcc.targets.isa.arm_mve import CHANNELS, DEPTHWISE_8
from modelcc.targets.mcu.blocks import WORD
from modelcc.targets.mcu.helium import padded
from modelcc.targets.mcu.lanes import LANES, RowLoop
from modelcc.targets.mcu.pixels import backwards
from modelcc.targets.mcu.products import Product, number_in
from modelcc.targets.mcu.some_rows import SomeRows

BY_EIGHTS = Layout((Part(0, CHANNELS), Part(1), Part(0, 1, CHANNELS)), ((0, 0),) * 2)
"""Weights of eight channels interleaved."""

_SUMMED = 64
"""Channels whose sums are in memory at a time."""


def fits(product: Product) -> bool:
    """Whether channels are contiguous, and windows have rows and columns, each with its own
    border."""
    operand, row = product.operand, product.row.name
    plain = product.of_bytes and operand.fades and product.bias is not None
    if not (plain and product.shared) or len(product.reduce) > 2:
        return False
    own = {v.name for v in product.reduce}
    sides = [symbols(c.left) & own for c in operand.conditions]
    steps = [coefficient(operand.offset, v.name) for v in product.reduce]
    apart = all(len(side) == 1 for side in sides)
    apart = apart and not any(row in symbols(c.left) for c in operand.conditions)
    even = coefficient(operand.offset, row) == 1 and all(isinstance(s, int) for s in steps)
    return even and apart and all(_reaches_in(product, v) for v in product.reduce)


def _reaches_in(product: Product, v: LoopVar) -> bool:
    """Whether every window is partly inside the image along ``v``."""
    first, last = _ends(product, v)
    width = last - first
    moving = [p for p in product.pixels if p.name in symbols(width)]
    if len(moving) > 1:
        return False
    at = moving[0] if moving else LoopVar("", 1, "")
    return all(number_in(substitute(width, {at.name: n})) > 0 for n in range(number_in(at.extent)))


def _ends(product: Product, v: LoopVar) -> tuple[Index, Index]:
    """The first index along ``v`` that is inside the image, and the one after the last."""
    first: Index = 0
    last: Index = number_in(v.extent)
    for c in product.operand.conditions:
        step = number_in(coefficient(c.left, v.name))
        rest = substitute(c.left, {v.name: 0})
        if step > 0:
            first = maximum(first, ceildiv(-rest, step))
        if step < 0:
            last = minimum(last, floordiv(rest, -step) + 1)
    return first, last


@dataclass(frozen=True)
class DepthwiseByVectors:
    """Statements of a product that :func:`fits`: windows are clipped to the image."""

    product: Product
    names: FreshNames
    some: SomeRows | None = None

    def layouts(self, types: Mapping[str, TensorType]) -> dict[str, Layout]:
        """Layouts of constants."""
        product = self.product
        assert product.bias is not None
        return {product.weights: BY_EIGHTS, **padded(product.bias.tensor, types, CHANNELS)}

    def statements(self) -> list[Stmt]:
        """Pixel by pixel, from the last one to the first, as :class:`~depthwise.Depthwise`."""
        product, names = self.product, self.names
        sums, some = names.fresh("sums"), min(product.rows, _SUMMED)
        pitch = -(-some // CHANNELS) * CHANNELS
        bound: list[Stmt] = []
        ends: list[tuple[Index, Index]] = []
        for v in self._window:
            first, last = _ends(product, v)
            ends.append((self._bound(first, bound), self._bound(last, bound)))
        body = [*bound, *self._channels(ends, sums, pitch)]
        memory = Alloc(Buffer(sums, I32, pitch, "local", WORD))
        return [memory, *backwards(product, body, self.some, names)]

    def _bound(self, index: Index, bound: list[Stmt]) -> Index:
        if isinstance(index, int):
            return index
        name = self.names.fresh("end")
        bound.append(BindIndex(name, IndexOf(index, I64)))
        return Sym(name)

    @property
    def _window(self) -> tuple[LoopVar, LoopVar]:
        """Rows and columns of a window."""
        place = self.product.place
        found = sorted(self.product.reduce, key=lambda v: -number_in(coefficient(place, v.name)))
        ones = [LoopVar(f"row{n}", 1, f"row{n}") for n in range(2 - len(found))]
        outer, inner = (*ones, *found)
        return outer, inner

    def _channels(self, ends: Sequence[tuple[Index, Index]], sums: str, pitch: int) -> list[Stmt]:
        """A loop over blocks of channels."""
        channels, row = self.product.rows, self.names.fresh("c")
        if channels <= pitch:
            return self._some(ends, sums, 0, channels)
        last = channels - channels % pitch
        body = self._some(ends, sums, Sym(row), pitch)
        found: list[Stmt] = [For(row, 0, last, tuple(body), pitch)]
        rest = channels - last
        return found + (self._some(ends, sums, last, rest) if rest else [])

    def _some(
        self, ends: Sequence[tuple[Index, Index]], sums: str, first: Index, channels: int
    ) -> list[Stmt]:
        """``channels`` channels from the ``first`` on."""
        product, (rows, columns) = self.product, self._window
        (top, bottom), (left, right) = ends
        offset, width = product.operand.offset, number_in(columns.extent)
        begin = {rows.name: top, columns.name: left, product.row.name: first}
        x = Argument(product.operand.tensor, substitute(offset, begin))
        place = product.steps * first + CHANNELS * (width * top + left)
        assert product.bias is not None
        given = (
            x, Argument(product.weights, place), Argument(product.bias.tensor, first),
            Argument(sums, 0),
        )  # fmt: skip
        steps = [number_in(coefficient(offset, v.name)) for v in (rows, columns)]
        zero = product.operand.zero + 128
        sizes = (channels, bottom - top, right - left, *steps, product.steps, width, zero)
        whole = channels % LANES == 0
        count = channels // LANES if whole else channels
        point = {v.name: Sym(v.name) for v in product.pixels}
        loop = RowLoop(product, [point], first, count, whole, sums, 0)
        return [RoutineCall(DEPTHWISE_8, given, sizes), loop.statement(self.names)]
