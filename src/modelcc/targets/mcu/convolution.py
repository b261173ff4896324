"""Products of images and weights from columns (im2col): three pixels and two rows of weights at
once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.argument import Argument
from modelcc.ir.index import Index, Sym, ceildiv, maximum, minimum
from modelcc.ir.loop import BindIndex, Buffer, For, Function, IndexOf, Parameter, RoutineCall, Stmt
from modelcc.ir.types import I8, I16, I64, Layout, Part, TensorType
from modelcc.schedule.expression import FreshNames
from modelcc.targets.isa.arm_dsp import DOT_3X2
from modelcc.targets.isa.arm_dsp_halves import DOT_3X2_HALVES
from modelcc.targets.mcu.blocks import WORD, SharedRows, SumBlock, routine, shared_rows
from modelcc.targets.mcu.gathering import Gathering, longest_run
from modelcc.targets.mcu.pixels import pixel_at
from modelcc.targets.mcu.products import Product
from modelcc.targets.mcu.some_rows import SomeRows

PIXELS, ROWS = 3, 2
"""Size of a block: what fits the registers."""

PAIRS = Layout((Part(0, ROWS), Part(1, WORD), Part(0, 1, ROWS), Part(1, 1, WORD)), ((0, 0),) * 2)
"""Pairs of rows of weights, interleaved by four elements."""

PAIRS_OF_HALVES = Layout(
    (Part(0, ROWS), Part(1, WORD), Part(0, 1, ROWS), Part(1, 1, 2), Part(1, 2, 2)), ((0, 0),) * 2
)
"""The same for halves, with the second and the third of each four swapped."""


def fits(product: Product) -> bool:
    """Whether there are enough pixels, with evenly spaced results."""
    even = all(product.step(nest.store) for nest in product.nests if nest.output in product.stored)
    whole = product.operand.fades and not product.shared
    return product.points >= PIXELS and even and whole


@dataclass(frozen=True)
class ByColumns:
    """Statements of a product that :func:`fits`."""

    product: Product
    names: FreshNames
    some: SomeRows | None = None

    def layouts(self, types: Mapping[str, TensorType]) -> dict[str, Layout]:
        """Layouts of constants."""
        return {self.product.weights: PAIRS if self.product.weight == I8 else PAIRS_OF_HALVES}

    def statements(self) -> list[Stmt]:
        """All pixels, or those of some rows; if their number is no multiple of three, the last
        block overlaps the previous one."""
        product, names = self.product, self.names
        gathering = Gathering(product, longest_run(product), names)
        columns, patch = names.fresh("columns"), names.fresh("patch")
        block, start, which = names.fresh("p"), names.fresh("start"), names.fresh("j")
        point, bound = pixel_at(product, Sym(start) + Sym(which), names)
        column = (*bound, *gathering.column(point, columns, Sym(which), patch))
        begin, end = self.some.points(product.points) if self.some else (0, product.points)
        last = minimum(Sym(block), end - PIXELS)
        first = IndexOf(maximum(0, last) if self.some else last, I64)
        body = (
            BindIndex(start, first),
            For(which, 0, PIXELS, column),
            self._rows(columns, Sym(start), gathering.fours),
        )
        return [*gathering.memory(columns, patch), For(block, begin, end, body, PIXELS)]

    def _rows(self, columns: str, start: Index, fours: int) -> Stmt:
        """All rows of weights times three columns."""
        product, shared = self.product, shared_rows(self.product)
        whole = product.rows % ROWS == 0
        if shared is None:
            return _pairs(product, self.names, columns, start, fours, product.rows, whole)
        step = next(product.step(n.store) for n in product.nests if n.output in product.stored)
        given = (
            Argument(columns, 0),
            Argument(product.weights, 0),
            *shared.arguments(product, start),
        )
        sizes = fours, product.rows, step, *shared.numbers
        return RoutineCall(_function(shared, whole), given, sizes)


def _pairs(
    product: Product, names: FreshNames, columns: str, start: Index, fours: Index, rows: Index,
    whole: bool,
) -> Stmt:  # fmt: skip
    """A loop over pairs of rows of weights; without ``whole`` the last one may be single."""
    pair = names.fresh("o")

    def dot(sums: str) -> RoutineCall:
        weights = Argument(product.weights, 2 * WORD * Sym(pair) * fours)
        given = Argument(columns, 0), weights, Argument(sums, 0)
        return RoutineCall(DOT_3X2 if product.weight == I8 else DOT_3X2_HALVES, given, (fours,))

    block = SumBlock(product, names, PIXELS, ROWS, whole)
    body = block.statements(start, ROWS * Sym(pair), dot, rows)
    return For(pair, 0, ceildiv(rows, ROWS), tuple(body))


def _function(shared: SharedRows, whole: bool) -> Function:
    fours, rows = Sym("fours"), Sym("rows")
    size, dtype = ROWS * WORD * fours * ceildiv(rows, ROWS), shared.product.weight
    parameters = [
        Parameter(Buffer("columns", I16, 3 * WORD * fours, align=WORD)),
        Parameter(Buffer("weights", dtype, size, align=WORD)),
        *shared.buffers(rows, PIXELS),
    ]
    body = _pairs(shared.product, FreshNames(), "columns", 0, fours, rows, whole)
    return routine("rows_of_three", parameters, ("fours", "rows", "step", *shared.sizes), [body])
