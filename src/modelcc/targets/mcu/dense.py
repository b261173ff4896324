"""Products of few pixels, as in fully connected layers: one column by four rows of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.argument import Argument
from modelcc.ir.index import Index, Sym, ceildiv, substitute
from modelcc.ir.loop import Buffer, For, Function, Parameter, RoutineCall, Stmt
from modelcc.ir.types import I8, I16, U8, Layout, Part, TensorType
from modelcc.schedule.expression import FreshNames
from modelcc.targets.isa.arm_dsp import DOT_1X4
from modelcc.targets.isa.arm_dsp_halves import DOT_1X4_16, DOT_1X4_U8
from modelcc.targets.mcu.blocks import WORD, SharedRows, SumBlock, routine, shared_rows
from modelcc.targets.mcu.gathering import longest_run
from modelcc.targets.mcu.pixels import pixel_at
from modelcc.targets.mcu.products import Product
from modelcc.targets.mcu.some_rows import SomeRows

ROWS = 4

FOURS = Layout((Part(0, ROWS), Part(1, WORD), Part(0, 1, ROWS), Part(1, 1, WORD)), ((0, 0),) * 2)
"""Groups of four rows of weights, interleaved by four elements."""

FOURS_OF_HALVES = Layout(
    (Part(0, ROWS), Part(1, WORD), Part(0, 1, ROWS), Part(1, 1, 2), Part(1, 2, 2)), ((0, 0),) * 2
)
"""The same for halves, with the second and the third of each four swapped."""

_DOTS = {(I8, I8): DOT_1X4, (U8, I16): DOT_1X4_U8, (I16, I8): DOT_1X4_16}


def fits(product: Product) -> bool:
    """Whether bytes of a pixel are contiguous, in whole words."""
    whole = longest_run(product).unit == product.steps and product.steps % WORD == 0
    even = all(product.step(n.store) or product.points == 1 for n in product.nests)
    known = (product.operand.dtype, product.weight) in _DOTS
    plain = known and not product.operand.conditions and not product.shared
    return whole and even and plain


@dataclass(frozen=True)
class Dense:
    """Statements of a product that :func:`fits`."""

    product: Product
    names: FreshNames
    some: SomeRows | None = None

    def layouts(self, types: Mapping[str, TensorType]) -> dict[str, Layout]:
        """Layouts of constants."""
        return {self.product.weights: FOURS if self.product.weight == I8 else FOURS_OF_HALVES}

    def statements(self) -> list[Stmt]:
        """Pixel by pixel, all or those of some rows."""
        product, names = self.product, self.names
        pixel = names.fresh("p")
        point, bound = pixel_at(product, Sym(pixel), names)
        summed = {v.name: 0 for v in product.reduce}
        offset = substitute(substitute(product.operand.offset, point), summed)
        body = (*bound, self._rows(offset, Sym(pixel)))
        begin, end = self.some.points(product.points) if self.some else (0, product.points)
        return [For(pixel, begin, end, body)]

    def _rows(self, offset: Index, pixel: Index) -> Stmt:
        product, shared = self.product, shared_rows(self.product)
        fours = product.steps // WORD
        zero = product.operand.zero + (128 if product.of_bytes else 0)
        x = Argument(product.operand.tensor, offset)
        whole = product.rows % ROWS == 0
        if shared is None:
            return _blocks(product, self.names, x, pixel, fours, product.rows, zero, whole)
        given = (x, Argument(product.weights, 0), *shared.arguments(product, pixel))
        sizes = fours, product.rows, zero, *shared.numbers
        return RoutineCall(_function(shared, whole), given, sizes)


def _blocks(
    product: Product, names: FreshNames, x: Argument, pixel: Index, fours: Index, rows: Index,
    zero: Index, whole: bool,
) -> Stmt:  # fmt: skip
    """A loop over groups of four rows of weights; without ``whole`` the last group may be
    partial."""
    number = names.fresh("o")

    def dot(sums: str) -> RoutineCall:
        weights = Argument(product.weights, ROWS * WORD * fours * Sym(number))
        own = _DOTS[product.operand.dtype, product.weight]
        given = x, weights, Argument(sums, 0)
        return RoutineCall(own, given, (fours, zero)[: len(own.sizes)])

    block = SumBlock(product, names, 1, ROWS, whole)
    body = block.statements(pixel, ROWS * Sym(number), dot, rows)
    return For(number, 0, ceildiv(rows, ROWS), tuple(body))


def _function(shared: SharedRows, whole: bool) -> Function:
    fours, rows, zero = Sym("fours"), Sym("rows"), Sym("zero")
    size = ROWS * WORD * fours * ceildiv(rows, ROWS)
    parameters = [
        Parameter(Buffer("x", shared.product.operand.dtype, WORD * fours, align=1)),
        Parameter(Buffer("weights", shared.product.weight, size, align=WORD)),
        *shared.buffers(rows, 1),
    ]
    body = _blocks(shared.product, FreshNames(), Argument("x", 0), 0, fours, rows, zero, whole)
    return routine("rows_of_one", parameters, ("fours", "rows", "zero", *shared.sizes), [body])
