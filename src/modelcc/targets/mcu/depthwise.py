"""Convolutions of each channel by itself: four channels of a pixel at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.argument import Argument
from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, coefficient, substitute, symbols
from modelcc.ir.loop import (
    Alloc,
    BindIndex,
    Buffer,
    Const,
    For,
    Function,
    If,
    IndexOf,
    Load,
    Parameter,
    Predicate,
    RoutineCall,
    Stmt,
    Store,
)
from modelcc.ir.types import I8, I64, Layout, Part, TensorType
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.nest import LoopVar
from modelcc.targets.isa.arm_dsp import DEPTHWISE_4
from modelcc.targets.mcu.blocks import WORD, SharedRows, SumBlock, routine, shared_rows
from modelcc.targets.mcu.products import Product

CHANNELS = 4

BY_FOURS = Layout((Part(0, CHANNELS), Part(1), Part(0, 1, CHANNELS)), ((0, 0),) * 2)
"""Weights of four channels side by side."""


def fits(product: Product) -> bool:
    """Whether channels lie side by side, by fours, and windows have rows and columns."""
    operand, row = product.operand, product.row.name
    side = coefficient(operand.offset, row) == 1 and product.rows % CHANNELS == 0
    even = all(product.step(n.store) for n in product.nests if n.output in product.stored)
    apart = not any(row in symbols(c.left) for c in operand.conditions)
    numbers = all(isinstance(coefficient(operand.offset, v.name), int) for v in product.reduce)
    windows = product.shared and operand.fades and 0 < len(product.reduce) <= 2
    return windows and side and even and apart and numbers


@dataclass(frozen=True)
class Depthwise:
    """Statements of a product that :func:`fits`.

    A window that reaches beyond the image is copied, with zeros around; all others are read where
    they are.
    """

    product: Product
    names: FreshNames

    def layouts(self, types: Mapping[str, TensorType]) -> dict[str, Layout]:
        """Those of constants."""
        return {self.product.weights: BY_FOURS}

    def statements(self) -> list[Stmt]:
        """Pixel by pixel, from the last one to the first.

        What is computed of the result goes on from the first to the last pixel, so that in a chain
        of both the room that a result needs beside its operand does not add up.
        """
        product, names = self.product, self.names
        shared = shared_rows(product)
        function = None if shared is None else _function(shared)
        offset = substitute(product.operand.offset, {product.row.name: 0})
        inner = {v.name: 0 for v in product.reduce}
        steps = [_int(coefficient(offset, v.name)) for v in self._window]
        x = Argument(product.operand.tensor, substitute(offset, inner))
        inside = self._rows(shared, function, x, steps, 0, product.rows)
        body: list[Stmt] = [inside]
        made: list[Stmt] = []
        if product.operand.conditions:
            window, first = names.fresh("window"), names.fresh("first")
            some = self._copied_at_once if shared is not None else product.rows
            made = [Alloc(Buffer(window, I8, product.steps * some, "local", WORD))]
            own = [_int(self._window[1].extent) * some, some]
            rows = self._rows(shared, function, Argument(window, 0), own, Sym(first), some)
            copied = self._copied(window, Sym(first), some)
            border = For(first, 0, product.rows, (*copied, rows), some)
            body = [If(Predicate(self._whole()), (inside,), (border,))]
        for v in reversed(product.pixels):
            turn = names.fresh(v.name)
            last = BindIndex(v.name, IndexOf(v.extent - 1 - Sym(turn), I64))
            body = [For(turn, 0, v.extent, (last, *body))]
        return [*made, *body]

    @property
    def _copied_at_once(self) -> int:
        """Channels of a window that is copied: few, for memory is dear."""
        return next(n for n in (16, 12, 8, 4) if self.product.rows % n == 0)

    @property
    def _window(self) -> tuple[LoopVar, LoopVar]:
        """Rows and columns of a window."""
        found = sorted(
            self.product.reduce, key=lambda v: -_int(coefficient(self.product.place, v.name))
        )
        return (LoopVar("row1", 1, "row1"), found[0]) if len(found) == 1 else (found[0], found[1])

    def _number(self) -> Index:
        """The number of a pixel."""
        number: Index = 0
        for v in self.product.pixels:
            number = number * v.extent + Sym(v.name)
        return number

    def _whole(self) -> tuple[Condition, ...]:
        """That all of a window is inside."""
        result: list[Condition] = []
        for c in self.product.operand.conditions:
            left = c.left
            for v in self.product.reduce:
                step = _int(coefficient(left, v.name))
                last = _int(v.extent) - 1
                left = substitute(left, {v.name: 0 if step >= 0 else last})
            result.append(Condition(left, ">=", 0))
        return tuple(result)

    def _copied(self, window: str, first: Index, some: int) -> list[Stmt]:
        """Channels of every place of a window, or the zero point."""
        product, operand, i = self.product, self.product.operand, self.names.fresh("i")
        at = product.place * some + Sym(i)
        offset = substitute(operand.offset, {product.row.name: first + Sym(i)})
        inside = For(i, 0, some, (Store(window, at, Load(operand.tensor, offset, I8)),))
        outside = For(i, 0, some, (Store(window, at, Const(operand.zero, I8)),))
        body: Stmt = If(Predicate(operand.conditions), (inside,), (outside,))
        for v in reversed(product.reduce):
            body = For(v.name, 0, v.extent, (body,))
        return [body]

    def _rows(
        self, shared: SharedRows | None, function: Function | None, x: Argument, steps: list[int],
        first: Index, some: int,
    ) -> Stmt:  # fmt: skip
        """``some`` channels of a pixel from the ``first`` on."""
        product, pixel = self.product, self._number()
        rows, columns = (_int(v.extent) for v in self._window)
        down, right = steps if len(steps) == 2 else (0, *steps)
        sizes = (rows, columns, down, right, product.operand.zero + 128)
        if shared is None or function is None:
            return _fours(product, self.names, x, pixel, product.rows // CHANNELS, sizes)
        weights = Argument(product.weights, product.steps * first)
        given = (x, weights, *shared.arguments(product, pixel, first))
        return RoutineCall(function, given, (some // CHANNELS, *sizes))


def _fours(
    product: Product, names: FreshNames, x: Argument, pixel: Index, count: Index,
    sizes: tuple[Index, ...],
) -> Stmt:  # fmt: skip
    """Four channels after the other."""
    number = names.fresh("c")
    rows, columns, *_ = sizes

    def dot(sums: str) -> RoutineCall:
        own = Argument(x.buffer, x.offset + CHANNELS * Sym(number))
        weights = Argument(product.weights, CHANNELS * rows * columns * Sym(number))
        return RoutineCall(DEPTHWISE_4, (own, weights, Argument(sums, 0)), sizes)

    block = SumBlock(product, names, 1, CHANNELS, True)
    body = block.statements(pixel, CHANNELS * Sym(number), dot, CHANNELS * count)
    return For(number, 0, count, tuple(body))


def _function(shared: SharedRows) -> Function:
    names = ("rows", "columns", "down", "right", "zero")
    rows, columns, down, right, zero = (Sym(name) for name in names)
    fours = Sym("fours")
    size = down * (rows - 1) + right * (columns - 1) + CHANNELS * fours
    parameters = [
        Parameter(Buffer("x", I8, size, align=1)),
        Parameter(Buffer("weights", I8, CHANNELS * rows * columns * fours, align=WORD)),
        *shared.buffers(CHANNELS * fours, 1),
    ]
    sizes = (rows, columns, down, right, zero)
    body = _fours(shared.product, FreshNames(), Argument("x", 0), 0, fours, sizes)
    return routine("channels_of_one", parameters, ("fours", *names), [body])


def _int(index: Index | None) -> int:
    return index if isinstance(index, int) else 0
