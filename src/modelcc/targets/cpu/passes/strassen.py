"""Strassen's algorithm: a matrix product by seven products of half the size in place of eight.

In Winograd's form (Strassen, 1969; Higham, "Accuracy and Stability of Numerical Algorithms",
section 23.2.2), with all operands split into quadrants::

    s1 = a21 + a22    s2 = s1 - a11    s3 = a22 - s2    s4 = a12 - s2
    t1 = w12 - w11    t2 = w22 - t1
    p1 = a11 w11      u2 = p1 + s2 t2  p5 = s1 t1        u3 = u2 + s3 (t2 - w11)
    c11 = p1 + a12 w21    c12 = u2 + p5 + s4 (t1 + t2)   c22 = u3 + p5    c21 = u3 + a22 (w21 - t2)

The constant is kept as w21, w11, t2 and t1, so it takes no more memory than before.  The result is
split into blocks of rows and columns whose p1, u2, p5 and u3 stay in cache: the sums of a product
are one kernel, shared by products of one tensor, and the rest is one kernel with leading block
axes.

Rounding errors grow to a few times those of the plain product: below 1e-5 of the largest element
for up to 3072 summands of normally distributed values (typically 3e-6).  ``rounding.py`` bounds
them for any data; the kernel carries that as its ``rounding``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from modelcc.ir.compute import Element
from modelcc.ir.index import Index, Sym, floordiv, mod, substitute
from modelcc.ir.tensor import (
    Axis,
    Item,
    Kernel,
    Read,
    Stage,
    TensorProgram,
    item_inputs,
    item_outputs,
)
from modelcc.ir.types import F32, TensorType
from modelcc.passes.tensor.added_constants import still_read
from modelcc.passes.tensor.epilogue import followed
from modelcc.passes.tensor.fused_kernel import kernel_of
from modelcc.passes.tensor.rounding import strassen_rounding
from modelcc.schedule.workload import program_key
from modelcc.targets.cpu.passes.strassen_cost import Split, StrassenCost
from modelcc.targets.cpu.passes.strassen_match import MatrixProduct, match_product
from modelcc.targets.cpu.passes.strassen_weights import QUADRANTS, QuadrantConstant

COLUMNS, ROWS = "sj", "si"
"""Axes of blocks."""
ROW, COLUMN, SUMMED, HALF = "sr", "sn", "sk", "sh"
"""Axes within a block; ``HALF`` iterates over the halves of a reduction."""
W21, W11, T2, T1 = range(QUADRANTS)
WORD = "strassen"
"""The algorithm's name in schedules."""


@dataclass(frozen=True)
class Strassen:
    """Rewrites products of a run-time tensor and a constant for which ``cost`` expects a gain.

    ``asked`` has words for contractions by their keys: these use that algorithm if they can, even
    if it is slower.
    """

    cost: StrassenCost = field(default_factory=StrassenCost)
    asked: Mapping[str, str] = field(default_factory=dict[str, str])

    def __call__(self, program: TensorProgram) -> TensorProgram:
        items: list[Item] = []
        types, constants = dict(program.types), dict(program.constants)
        readers = _readers(program)
        sums: dict[object, tuple[str, ...]] = {}
        for item in program.items:
            rewrite = self._rewrite(item, program) if isinstance(item, Kernel) else None
            if rewrite is None or len(readers[rewrite.product.w.tensor]) > 1:
                items.append(item)
                continue
            known = sums.setdefault(rewrite.summed_operand(), rewrite.own_sums())
            if known == rewrite.own_sums():
                items.append(rewrite.sum_kernel())
                types |= rewrite.sum_types()
            rewrite = replace(rewrite, sums=known)
            items.append(rewrite.kernel())
            types |= rewrite.types()
            constants[rewrite.w] = rewrite.weights(program)
        kept = still_read(items, program, constants)
        return replace(program, types=types, constants=kept).with_items(tuple(items))

    def _rewrite(self, kernel: Kernel, program: TensorProgram) -> _StrassenRewrite | None:
        found = match_product(kernel, program)
        if found is None or not found.rows:
            return None
        key = program_key(kernel, program) if self.asked else ""
        word = self.asked.get(key, "")
        if word and word != WORD:
            return None
        halved, split = self._split(found, self.cost.split if word else self.cost.choose)
        return (
            None
            if split is None
            else _StrassenRewrite(found, halved, split, asked=key if word else "")
        )

    def admits(self, kernel: Kernel, program: TensorProgram) -> bool:
        """Whether ``kernel`` can be computed by this algorithm, even if it is slower."""
        found = match_product(kernel, program)
        if found is None or not found.rows or len(_readers(program)[found.w.tensor]) > 1:
            return False
        return self._split(found, self.cost.split)[1] is not None

    def _split(
        self, found: MatrixProduct, choose: Callable[[int, int, int, int], Split | None]
    ) -> tuple[str, Split | None]:
        """The axis to halve, and the split chosen for it."""
        even = next((r for r in found.rows if r[1] % 2 == 0), None)
        halved = even or max(found.rows, key=lambda r: r[1])
        others = prod(e for n, e in found.rows if n != halved[0])
        return halved[0], choose(halved[1], others, found.column[1], found.summed[1])


def _readers(program: TensorProgram) -> Mapping[str, set[str]]:
    """Tensor → names of its readers."""
    found: dict[str, set[str]] = {}
    for item in program.items:
        for name in item_inputs(item):
            found.setdefault(name, set()).update(item_outputs(item))
    for name in program.outputs:
        found.setdefault(name, set()).add("")
    return found


@dataclass(frozen=True)
class _StrassenRewrite:
    """The replacement of one product; the axis ``halved`` is split by ``split``."""

    product: MatrixProduct
    halved: str
    split: Split
    sums: tuple[str, ...] = ()
    asked: str = ""

    @property
    def w(self) -> str:
        """Name of the constant's quadrants."""
        return f"{self.product.w.tensor}.quadrants"

    def weights(self, program: TensorProgram) -> QuadrantConstant:
        """The constant's quadrants."""
        source = program.constants[self.product.w.tensor]
        return QuadrantConstant(source, self.split.columns, self.product.transposed)

    def own_sums(self) -> tuple[str, ...]:
        """Names of s1 … s4, if this product computes them."""
        return tuple(f"{self.product.stage.output}.s{n}" for n in range(1, 5))

    def summed_operand(self) -> object:
        """A key of the inputs of s1 … s4; equal ones are shared."""
        places: dict[str, Index] = {
            name: Sym(f"axis{n}") for n, (name, _) in enumerate(self.product.rows)
        }
        places[self.product.summed[0]] = Sym("summed")
        indices = tuple(substitute(i, places) for i in self.product.a.indices)
        halved = [n for n, _ in self.product.rows].index(self.halved)
        extents = tuple(e for _, e in self.product.rows)
        return self.product.a.tensor, indices, halved, extents, self.product.summed[1]

    def sum_kernel(self) -> Kernel:
        """s1 … s4 of the run-time operand."""
        axes, at = self._sum_axes(), tuple(Sym(a.name) for a in self._sum_axes())
        tops: dict[str, Index] = {}
        bottoms = {self.halved: Sym(self.halved) + self.split.half}
        a11, a12, a21, a22 = (self._operand(r, c) for r in (tops, bottoms) for c in (0, 1))
        s1, s2, s3, s4 = self.own_sums()
        first, second = (Element(Read(name, at, F32)) for name in (s1, s2))
        bodies = (a21 + a22, first - a11, a22 - second, a12 - second)
        stages = tuple(
            Stage(name, axes, at, body.scalar)
            for name, body in zip((s1, s2, s3, s4), bodies, strict=True)
        )
        return kernel_of("strassen_sums", stages, (s1, s2, s3, s4), self.product.kernel.source)

    def sum_types(self) -> dict[str, TensorType]:
        """Types of s1 … s4."""
        shape = tuple(a.extent for a in self._sum_axes())
        return {name: TensorType(shape, F32) for name in self.own_sums()}

    def kernel(self) -> Kernel:
        """The seven products and the rows left over, block by block."""
        stages = (*self._products(), *(self._rest() if self.split.rest else ()))
        kernel = self.product.kernel
        found = kernel_of(f"{kernel.name}_strassen", stages, kernel.outputs, kernel.source)
        rounding = strassen_rounding(self.product.summed[1])
        return replace(found, rounding=rounding, asked=self.asked)

    def types(self) -> dict[str, TensorType]:
        """Types of the quadrants and of all values inside the kernel."""
        found: dict[str, TensorType] = {}
        for stage in self.kernel().stages:
            if stage.output not in self.product.kernel.outputs:
                shape = tuple(a.extent for a in stage.axes)
                found[stage.output] = TensorType(shape, stage.body.dtype)
        k, n = self.product.summed[1] // 2, self.product.column[1] // 2
        columns = self.split.columns
        return {**found, self.w: TensorType((n // columns, QUADRANTS, k, columns), F32)}

    def _products(self) -> Iterator[Stage]:
        w11, w21, t1, t2 = (self._weight(q) for q in (W11, W21, T1, T2))
        s1, s2, s3, s4 = (self._sum(name) for name in self.sums)
        a11, a12 = (self._operand(self._rows(0), c) for c in (0, 1))
        a22 = self._operand(self._rows(1), 1)
        p1 = yield from self._sum_of("p1", a11 * w11)
        q2 = yield from self._sum_of("q2", a12 * w21)
        yield from self._results(p1 + q2, 0, 0)
        q6 = yield from self._sum_of("q6", s2 * t2)
        u2 = yield from self._named("u2", p1 + q6)
        p5 = yield from self._sum_of("p5", s1 * t1)
        q3 = yield from self._sum_of("q3", s4 * (t1 + t2))
        yield from self._results(u2 + p5 + q3, 0, 1)
        q7 = yield from self._sum_of("q7", s3 * (t2 - w11))
        u3 = yield from self._named("u3", u2 + q7)
        yield from self._results(u3 + p5, 1, 1)
        q4 = yield from self._sum_of("q4", a22 * (w21 - t2))
        yield from self._results(u3 + q4, 1, 0)

    def _rest(self) -> Iterator[Stage]:
        """Remaining rows outside of the two halves: w12 is t1 + w11 and w22 is t1 + t2."""
        half = self.product.summed[1] // 2
        summed = {self.product.summed[0]: Sym(HALF) * half + Sym(SUMMED)}
        at = {**self._units(), **self._rows(2), **summed}
        a = Element(_substituted(self.product.a, at))
        side = Sym(HALF)
        left, right = self._weight(1 - side), self._weight(T1) + self._weight(1 + side)
        for column, weight in enumerate((left, right)):
            name = f"{self.product.stage.output}.r{column}"
            axes, where = self._axes(rest=True), self._own(rest=True)
            over = (Axis(HALF, 2), Axis(SUMMED, half))
            yield Stage(name, axes, where, (a * weight).scalar, over, "sum")
            yield from self._results(Element(Read(name, where, F32)), 2, column)

    def _sum_of(self, name: str, body: Element) -> Generator[Stage, None, Element]:
        over = (Axis(SUMMED, self.product.summed[1] // 2),)
        full = f"{self.product.stage.output}.{name}"
        yield Stage(full, self._axes(), self._own(), body.scalar, over, "sum")
        return Element(Read(full, self._own(), F32))

    def _named(self, name: str, body: Element) -> Generator[Stage, None, Element]:
        full = f"{self.product.stage.output}.{name}"
        yield Stage(full, self._axes(), self._own(), body.scalar)
        return Element(Read(full, self._own(), F32))

    def _results(self, value: Element, row: int, column: int) -> Iterator[Stage]:
        """Elements of one quadrant (row 2: of the remaining rows), with the epilogue."""
        chain = (self.product.stage, *self.product.epilogue)
        axes, at = self._axes(row == 2), self._at(row, column)
        stored = self.product.kernel.outputs
        yield from followed(chain, value.scalar, axes, at, f"{row}{column}", stored)

    def _axes(self, rest: bool = False) -> tuple[Axis, ...]:
        blocks = self.product.column[1] // 2 // self.split.columns
        rows = self._others * (1 if rest else self.split.inner)
        inner = (Axis(ROW, rows), Axis(COLUMN, self.split.columns))
        return (Axis(COLUMNS, blocks), *self._row_blocks(), *inner)

    @property
    def _others(self) -> int:
        return prod(e for n, e in self.product.rows if n != self.halved)

    def _row_blocks(self) -> tuple[Axis, ...]:
        blocks = self.split.half // self.split.inner
        return (Axis(ROWS, blocks),) if blocks > 1 else ()

    def _own(self, rest: bool = False) -> tuple[Index, ...]:
        return tuple(Sym(a.name) for a in self._axes(rest))

    def _at(self, row: int, column: int) -> dict[str, Index]:
        """Values of the product's parallel axes in a quadrant (row 2: in the remaining rows)."""
        name, extent = self.product.column
        offset = column * (extent // 2)
        columns = Sym(COLUMNS) * self.split.columns + Sym(COLUMN) + offset
        return {**self._units(), **self._rows(row), name: columns}

    def _rows(self, half: int) -> dict[str, Index]:
        """Values of the row axes: digits of a block's row number."""
        places: dict[str, Index] = {}
        stride = 1
        for name, extent in reversed(self.product.rows):
            size = extent
            if name == self.halved:
                size = 1 if half == 2 else self.split.inner
            outermost = name == self.product.rows[0][0]
            digit = floordiv(Sym(ROW), stride)
            places[name] = digit if outermost else mod(digit, size)
            stride *= size
        block = Sym(ROWS) * self.split.inner if self._row_blocks() and half < 2 else 0
        return {**places, self.halved: places[self.halved] + half * self.split.half + block}

    def _units(self) -> dict[str, Index]:
        axes = (*self.product.stage.axes, *self.product.stage.reduce)
        return {a.name: 0 for a in axes if a.extent == 1}

    def _operand(self, rows: Mapping[str, Index], column: int) -> Element:
        """The run-time operand in the left or right half of its columns."""
        name, extent = self.product.summed
        at = {**self._units(), **rows, name: Sym(SUMMED) + column * (extent // 2)}
        return Element(_substituted(self.product.a, at))

    def _sum_axes(self) -> tuple[Axis, ...]:
        rows = (Axis(n, self.split.half if n == self.halved else e) for n, e in self.product.rows)
        return (*rows, Axis(SUMMED, self.product.summed[1] // 2))

    def _sum(self, name: str) -> Element:
        rows = self._rows(0)
        at = (rows[n] for n, _ in self.product.rows)
        return Element(Read(name, (*at, Sym(SUMMED)), F32))

    def _weight(self, quadrant: Index) -> Element:
        at = (Sym(COLUMNS), quadrant, Sym(SUMMED), Sym(COLUMN))
        return Element(Read(self.w, at, F32))


def _substituted(read: Read, at: Mapping[str, Index]) -> Read:
    """``read`` with axes replaced by the values ``at``."""
    return replace(read, indices=tuple(substitute(i, at) for i in read.indices))
