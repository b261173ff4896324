"""Products by Helium: rows of weights times bytes in place, four sums per vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.argument import Argument
from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym, coefficient, maximum, minimum, substitute
from modelcc.ir.loop import Alloc, BindIndex, Buffer, For, If, IndexOf, Predicate, RoutineCall, Stmt
from modelcc.ir.scalar_tree import reads
from modelcc.ir.types import I8, I32, I64, Layout, Part, TensorType
from modelcc.schedule.expression import FreshNames
from modelcc.targets.isa.arm_mve import COPY, FILL, ROWS, ROWS_BY_1, ROWS_BY_2, VECTOR
from modelcc.targets.mcu.blocks import WORD
from modelcc.targets.mcu.gathering import Runs, longest_run
from modelcc.targets.mcu.lanes import LANES, RowLoop
from modelcc.targets.mcu.pixels import pixel_at
from modelcc.targets.mcu.products import Product
from modelcc.targets.mcu.some_rows import SomeRows

BY_VECTORS = Layout(
    (Part(0, ROWS), Part(1, VECTOR), Part(0, 1, ROWS), Part(1, 1, VECTOR)), ((0, 0),) * 2
)
"""Groups of four rows of weights, interleaved by sixteen bytes."""

_SUMMED = 32
"""Rows whose sums are in memory at a time."""


def fits(product: Product) -> bool:
    """Whether bytes are multiplied directly, and pixels are evenly spaced in the results."""
    plain = product.of_bytes and product.operand.zero == 0 and product.bias is not None
    return plain and not product.shared and (product.points == 1 or lies_evenly(product))


def lies_evenly(product: Product) -> bool:
    """Whether pixels are evenly spaced in all results, and in the other operands of these."""
    stores = [n.store for n in product.nests if n.output in product.stored]
    read = [r.indices[0] for n in product.nests for r in reads(n.body) if r.indices]
    moving = [i for i in read if any(coefficient(i, v.name) != 0 for v in product.pixels)]
    return all(product.step(i) for i in (*stores, *moving))


def padded(name: str, types: Mapping[str, TensorType], block: int) -> dict[str, Layout]:
    """The layout of a constant with one element per row, padded to blocks."""
    shape = types[name].static_shape()
    axis = max(range(len(shape)), key=lambda n: shape[n])
    if shape[axis] % block == 0:
        return {}
    parts = [Part(n, block if n == axis else 1) for n in range(len(shape))]
    return {name: Layout((*parts, Part(axis, 1, block)), ((0, 0),) * len(shape))}


@dataclass(frozen=True)
class ByVectors:
    """Statements of a product that :func:`fits`."""

    product: Product
    names: FreshNames
    some: SomeRows | None = None

    @property
    def pixels(self) -> int:
        """Number of pixels computed at once."""
        return min(2, self.product.points)

    def layouts(self, types: Mapping[str, TensorType]) -> dict[str, Layout]:
        """Layouts of constants."""
        product = self.product
        assert product.bias is not None
        return {product.weights: BY_VECTORS, **padded(product.bias.tensor, types, ROWS)}

    def statements(self) -> list[Stmt]:
        """All pixels, or those of some rows; with an odd number the last block overlaps the
        previous one."""
        product, names = self.product, self.names
        block, start = names.fresh("p"), names.fresh("start")
        begin, end = self.some.points(product.points) if self.some else (0, product.points)
        last = minimum(Sym(block), end - self.pixels)
        first = IndexOf(maximum(0, last) if self.some else last, I64)
        sums, some = names.fresh("sums"), min(product.rows, _SUMMED)
        pitch = -(-some // ROWS) * ROWS
        columns, made, gathered = self._columns(Sym(start))
        given = [Alloc(Buffer(sums, I32, self.pixels * pitch, "local", WORD)), *made]
        body = (BindIndex(start, first), *gathered, *self._rows(columns, Sym(start), sums, pitch))
        return [*given, For(block, begin, end, body, self.pixels)]

    def _columns(self, start: Index) -> tuple[list[Argument], list[Stmt], list[Stmt]]:
        """Arguments of each pixel's bytes, memory for them, and the statements that gather them."""
        product, run = self.product, longest_run(self.product)
        offset, steps = product.operand.offset, product.steps
        direct = run.length == steps and not product.operand.conditions
        if direct and (product.points == 1 or product.step(offset)):
            inner = {v.name: 0 for v in product.reduce}
            points = (product.at(start + n) for n in range(self.pixels))
            offsets = (substitute(offset, {**inner, **point}) for point in points)
            return [Argument(product.operand.tensor, o) for o in offsets], [], []
        columns, which = self.names.fresh("columns"), self.names.fresh("j")
        point, bound = pixel_at(product, start + Sym(which), self.names)
        mover = _Moved(columns, steps * Sym(which), product.operand.pad)
        body = (*bound, *Runs(product, run, self.names).statements(point, mover))
        memory = Alloc(Buffer(columns, I8, self.pixels * steps, "local", WORD))
        found = [Argument(columns, n * steps) for n in range(self.pixels)]
        return found, [memory], [For(which, 0, self.pixels, body)]

    def _rows(self, columns: Sequence[Argument], start: Index, sums: str, pitch: int) -> list[Stmt]:
        """A loop over blocks of rows."""
        product, row = self.product, self.names.fresh("o")
        assert product.bias is not None
        if product.rows <= pitch:
            return self._some(columns, start, sums, 0, product.rows)
        rest, last = product.rows % pitch, product.rows - product.rows % pitch
        body = self._some(columns, start, sums, Sym(row), pitch)
        found: list[Stmt] = [For(row, 0, last, tuple(body), pitch)]
        return found + (self._some(columns, start, sums, last, rest) if rest else [])

    def _some(
        self, columns: Sequence[Argument], start: Index, sums: str, first: Index, rows: int
    ) -> list[Stmt]:
        """``rows`` rows from the ``first`` on."""
        product, steps = self.product, self.product.steps
        assert product.bias is not None
        weights = Argument(product.weights, -(-steps // VECTOR) * VECTOR * first)
        given = (*columns, weights, Argument(product.bias.tensor, first), Argument(sums, 0))
        blocks = -(-rows // ROWS)
        summed = RoutineCall(ROWS_BY_2 if self.pixels == 2 else ROWS_BY_1, given, (steps, blocks))
        whole = rows % LANES == 0
        count = rows // LANES if whole else rows
        points = [product.at(start + n) for n in range(self.pixels)]
        own = blocks * ROWS
        loop = RowLoop(product, points, first, count, whole, sums, own)
        return [summed, loop.statement(self.names)]


@dataclass(frozen=True)
class _Moved:
    """Copies to the bytes of a column that begins at ``start``."""

    columns: str
    start: Index
    pad: int

    def bytes(self, step: Index, tensor: str, offset: Index, count: Index) -> list[Stmt]:
        """Unchanged bytes."""
        given = (Argument(tensor, offset), Argument(self.columns, self.start + step))
        return [RoutineCall(COPY, given, (count,))]

    def border(self, step: Index, count: Index) -> list[Stmt]:
        """The zero point; most pixels need no padding."""
        given = (Argument(self.columns, self.start + step),)
        call = RoutineCall(FILL, given, (count, self.pad + 128))
        if isinstance(count, int):
            return [call]
        return [If(Predicate((Condition(count, ">", 0),)), (call,))]
