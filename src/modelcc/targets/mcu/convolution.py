"""Products of images and weights by columns: three pixels and two rows of weights at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.argument import Argument
from modelcc.ir.index import Index, Sym, floordiv, minimum, mod, substitute
from modelcc.ir.loop import (
    Alloc,
    BindIndex,
    Buffer,
    Const,
    For,
    IndexOf,
    Load,
    RoutineCall,
    Stmt,
    Store,
)
from modelcc.ir.types import I32, I64, Layout, Part
from modelcc.schedule.expression import FreshNames, PointEmitter
from modelcc.targets.isa.arm_dsp import DOT_3X2
from modelcc.targets.mcu.gathering import WORD, Gathering, longest_run
from modelcc.targets.mcu.products import Product

PIXELS, ROWS = 3, 2
"""Of a block: what fits the registers."""

PAIRS = Layout((Part(0, ROWS), Part(1, WORD), Part(0, 1, ROWS), Part(1, 1, WORD)), ((0, 0),) * 2)
"""Two rows of weights, fours of which follow each other."""


def fits(product: Product) -> bool:
    """Whether there are pixels enough, whose results lie evenly, and whole pairs of rows."""
    even = all(product.step(nest.store) for nest in product.nests if nest.output in product.stored)
    return product.points >= PIXELS and even and not product.shared and product.rows % ROWS == 0


@dataclass(frozen=True)
class Convolution:
    """Statements of a product that :func:`fits`."""

    product: Product
    names: FreshNames

    def statements(self) -> list[Stmt]:
        """All pixels; the last ones of a number that is no multiple of three are computed twice."""
        product, names = self.product, self.names
        gathering = Gathering(product, longest_run(product), names)
        columns, patch = names.fresh("columns"), names.fresh("patch")
        block, start, which = names.fresh("p"), names.fresh("start"), names.fresh("j")
        point, bound = self._pixel(Sym(start) + Sym(which))
        column = (*bound, *gathering.column(point, columns, Sym(which), patch))
        first = IndexOf(minimum(Sym(block), product.points - PIXELS), I64)
        body = (
            BindIndex(start, first),
            For(which, 0, PIXELS, column),
            self._rows(columns, Sym(start), gathering.fours),
        )
        return [*gathering.memory(columns, patch), For(block, 0, product.points, body, PIXELS)]

    def _pixel(self, number: Index) -> tuple[Mapping[str, Index], list[Stmt]]:
        """Loop variables at a pixel, and what binds them."""
        product, names = self.product, self.names
        if product.step(product.operand.offset) and not product.operand.conditions:
            return product.at(number), []
        bound: list[Stmt] = []
        point: dict[str, Index] = {}
        for position, v in reversed(list(enumerate(product.pixels))):
            own = mod(number, v.extent) if position else number
            name = names.fresh(v.name)
            bound.append(BindIndex(name, IndexOf(own, I64)))
            point[v.name] = Sym(name)
            number = floordiv(number, v.extent)
        return point, bound

    def _rows(self, columns: str, start: Index, fours: int) -> Stmt:
        """Two rows of weights after the other, by all three columns."""
        product, names = self.product, self.names
        pair, sums = names.fresh("o"), names.fresh("sums")
        body: list[Stmt] = [Alloc(Buffer(sums, I32, PIXELS * ROWS, "local", WORD))]
        emitter = PointEmitter(names, None)
        for row in range(ROWS):
            bias = self._bias(emitter, ROWS * Sym(pair) + row)
            body += emitter.statements
            emitter.statements = []
            body += [Store(sums, row * PIXELS + pixel, bias) for pixel in range(PIXELS)]
        weights = Argument(product.weights, 2 * WORD * fours * Sym(pair))
        given = (Argument(columns, 0), weights, Argument(sums, 0))
        body.append(RoutineCall(DOT_3X2, given, (fours,)))
        for row in range(ROWS):
            for pixel in range(PIXELS):
                total = Load(sums, row * PIXELS + pixel, I32)
                point = {**product.at(start + pixel), product.row.name: ROWS * Sym(pair) + row}
                body += self._epilogue(emitter, point, total)
        return For(pair, 0, product.rows // ROWS, tuple(body))

    def _bias(self, emitter: PointEmitter, row: Index):
        bias = self.product.bias
        if bias is None:
            return Const(0, I32)
        return emitter.emit(bias, {self.product.row.name: row}, {})

    def _epilogue(
        self, emitter: PointEmitter, point: Mapping[str, Index], total: Load
    ) -> list[Stmt]:
        product = self.product
        values = {product.total: emitter.name("sum", total)}
        for nest in product.nests:
            value = emitter.emit(nest.body, point, values)
            if nest.output in product.stored:
                emitter.statements.append(Store(nest.output, substitute(nest.store, point), value))
            values[nest.output] = emitter.name("v", value)
        found, emitter.statements = emitter.statements, []
        return found
