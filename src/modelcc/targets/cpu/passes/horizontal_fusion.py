"""Products fused with the readers of their parts: the gates of recurrent layers.

A step of a recurrent layer multiplies its state by one matrix for all gates, and then combines the
parts of the result point by point.  Blocks of columns are independent of each other if each has the
columns of every part, so one kernel computes a whole step, block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.scalar_tree import cost, depends_on, reads, substitute_indices, transform
from modelcc.ir.tensor import (
    Axis,
    Item,
    Kernel,
    Read,
    Scalar,
    Stage,
    TensorProgram,
    item_inputs,
    item_tensors,
)
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.fused_kernel import fused_kernel, with_values
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.passes.tensor.unify_axes import reads_own_point

BLOCK, PART, COLUMN = "block", "part", "column"
"""Axes of the fused kernel, beside those of rows."""
WIDTHS = (64, 48, 32, 16)
"""Possible numbers of columns of each part in a block: whole vectors."""
REPEATABLE = 8
"""Maximum cost of an epilogue that is recomputed for every reader of a product."""


@dataclass(frozen=True)
class HorizontalFusion:
    """Fuses a product of at most ``rows`` rows by a constant with the readers of its parts.

    A block has at most ``columns`` columns.  A product of at most ``undivided`` multiplications,
    which one thread computes, is one block.  Larger ones are not fused for a single thread:
    combining the parts of all columns at once has more instruction-level parallelism.

    before::

        program @main(%h: f32[2, 999], %x: f32[2, 128]) -> (%y) {
          constant %r: f32[999, 128] = "r"
          kernel @MatMul_Add(%h: f32[2, 999], %r: f32[999, 128], %x: f32[2, 128])
              -> (%g: f32[2, 128]) {
            %p: f32[2, 128] = [i < 2, j < 128] sum[k < 999] %h[i, k] * %r[k, j]
            %g: f32[2, 128] = [i < 2, j < 128] %x[i, j] + %p[i, j]
          }
          kernel @Mul(%g: f32[2, 128]) -> (%y: f32[2, 64]) {
            %y: f32[2, 64] = [m < 2, n < 64] sigmoid(%g[m, n]) * tanh(%g[m, n + 64])
          }
        }

    after::

        program @main(%h: f32[2, 999], %x: f32[2, 128]) -> (%y) {
          constant %r: f32[999, 128] = "r"
          kernel @MatMul_Add_Mul(%h: f32[2, 999], %r: f32[999, 128], %x: f32[2, 128])
              -> (%y: f32[2, 64]) {
            %p.parts: f32[2, 2, 2, 32] = [block < 2, i < 2, part < 2, column < 32]
              sum[k < 999] %h[i, k] * %r[k, 32*block + column + 64*part]
            %y[i, 32*block + column]: f32[2, 64] = [block < 2, i < 2, column < 32]
              sigmoid(%x[i, 32*block + column] + %p.parts[block, i, 0, column])
              * tanh(%x[i, 32*block + column + 64] + %p.parts[block, i, 1, column])
          }
        }
    """

    rows: int = 32
    columns: int = 256
    undivided: int = 1 << 15
    threads: int = 2

    def __call__(self, program: TensorProgram) -> TensorProgram:
        items: list[Item | None] = list(program.items)
        types = dict(program.types)
        readers = _places_of_readers(program)
        for position, item in enumerate(program.items):
            kernel = item if isinstance(item, Kernel) else None
            found = kernel and self._match(position, kernel, readers, program)
            places = () if found is None else (position, *found.places)
            # Readers of several products are fused with the first of these only.
            if found is None or any(items[n] is not program.items[n] for n in places):
                continue
            joined = found.kernel()
            types |= found.types(program)
            for place in places:
                items[place] = None
            items[found.places[-1]] = joined
        kept = tuple(item for item in items if item is not None)
        if len(kept) == len(program.items):
            return program
        return replace(program, types=types).with_items(kept)

    def _match(
        self,
        position: int,
        kernel: Kernel,
        read_at: Mapping[str, Sequence[int]],
        program: TensorProgram,
    ) -> _Fusion | None:
        stages = self._product(kernel, program)
        if stages is None:
            return None
        product = kernel.outputs[0]
        places = read_at.get(product, ())
        readers = [item for n in places if isinstance(item := program.items[n], Kernel)]
        if product in program.outputs or not readers or len(readers) != len(places):
            return None
        extent = stages[0].axes[-1].extent
        size = readers[0].stages[-1].axes[-1].extent if readers[0].stages[-1].axes else 1
        if not (isinstance(extent, int) and isinstance(size, int)) or extent % size:
            return None
        width = self._width(stages[0], size, extent // size)
        fusion = _Fusion(stages, kernel, tuple(readers), tuple(places), size, width)
        fits = width and extent > size and all(_combines(k, fusion) for k in readers)
        return fusion if fits and not _read_between(position, places, program) else None

    def _product(self, kernel: Kernel, program: TensorProgram) -> tuple[Stage, ...] | None:
        """The stages of a product by a constant, and its cheap epilogue, over the same axes."""
        stages = shared_axes(kernel.stages)
        if stages is None or kernel.outputs != (stages[-1].output,) or not stages[0].axes:
            return None
        first, final = stages[0], stages[-1]
        column = first.axes[-1].name
        if first.combine != "sum" or len(first.reduce) != 1 or any(s.reduce for s in stages[1:]):
            return None
        weights = {r.tensor for r in reads(first.body) if depends_on(r, column)}
        others = {r.tensor for r in reads(first.body)} - weights
        two = len(reads(first.body)) == 2 and others
        if not weights or not weights <= program.constants.keys() or not two:
            return None
        plain = all(program.types[t].layout is None for t in (*kernel.inputs, *kernel.outputs))
        rows = prod(a.extent if isinstance(a.extent, int) else self.rows for a in first.axes[:-1])
        cheap = sum(cost(s.body) for s in stages[1:]) < REPEATABLE
        exact = _at_point(final.write, first.axes) and rows <= self.rows
        return stages if plain and cheap and exact and _is_static(first) else None

    def _width(self, product: Stage, size: int, parts: int) -> int:
        """Columns of a block in each of the ``parts``; 0 if no width fits."""
        axes = (*product.axes, *product.reduce)
        if prod(a.extent for a in axes if isinstance(a.extent, int)) <= self.undivided:
            return size
        if self.threads == 1:
            return 0
        fitting = [w for w in WIDTHS if size % w == 0 and size > w]
        return next((w for w in fitting if w * parts <= self.columns), 0)


def _places_of_readers(program: TensorProgram) -> dict[str, list[int]]:
    """By tensor: positions of the items that read it, in order."""
    found: dict[str, list[int]] = {}
    for position, item in enumerate(program.items):
        for name in dict.fromkeys(item_inputs(item)):
            found.setdefault(name, []).append(position)
    return found


def _is_static(stage: Stage) -> bool:
    return all(isinstance(a.extent, int) for a in (*stage.axes, *stage.reduce))


def _at_point(indices: Sequence[Index], axes: Sequence[Axis]) -> bool:
    """Whether ``indices`` are the axes themselves; axes of extent 1 may be 0."""
    if len(indices) != len(axes):
        return False
    return all(
        i == Sym(a.name) or (i == 0 and a.extent == 1) for i, a in zip(indices, axes, strict=True)
    )


def _combines(kernel: Kernel, fusion: _Fusion) -> bool:
    """Whether a reader combines parts of the product at one point, in all its stages."""
    made = {s.output: s for s in kernel.stages}
    rows = [a.extent for a in fusion.stages[0].axes[:-1]]
    for stage in kernel.stages:
        extents = [a.extent for a in stage.axes]
        if stage.reduce or extents != [*rows, fusion.size]:
            return False
        for read in reads(stage.body):
            if read.tensor in made and not reads_own_point(read, stage, made[read.tensor]):
                return False
            if read.tensor == fusion.product and fusion.part(read, stage) is None:
                return False
    return True


def _read_between(position: int, places: Sequence[int], program: TensorProgram) -> bool:
    """Whether an item before the last reader, itself no reader, depends on a reader's result."""
    made: set[str] = set()
    for n in range(position + 1, places[-1]):
        item = program.items[n]
        if n in places:
            made |= {name for name in item_tensors(item) if name not in item_inputs(item)}
        elif made & set(item_inputs(item)):
            return True
    return False


@dataclass(frozen=True)
class _Fusion:
    """A product, over the axes of its first stage, and the kernels at ``places`` that read it.

    ``size`` columns are a part, and ``width`` of these are in a block.
    """

    stages: tuple[Stage, ...]
    kernel_of_product: Kernel
    readers: tuple[Kernel, ...]
    places: tuple[int, ...]
    size: int
    width: int

    @property
    def product(self) -> str:
        """The tensor that the readers read."""
        return self.stages[-1].output

    @property
    def sums(self) -> str:
        """The fused kernel's name for the sums of products."""
        return f"{self.stages[0].output}.parts"

    @property
    def rows(self) -> tuple[Axis, ...]:
        """Axes of rows."""
        return self.stages[0].axes[:-1]

    def part(self, read: Read, reader: Stage) -> int | None:
        """Which part of the product is read at the reader's point; None if the read is no part."""
        offset = read.indices[-1] - Sym(reader.axes[-1].name)
        if not isinstance(offset, int) or offset % self.size:
            return None
        here = _at_point(read.indices[:-1], reader.axes[:-1])
        return offset // self.size if here else None

    def kernel(self) -> Kernel:
        """The product and its readers as one kernel."""
        kernels = (self.kernel_of_product, *self.readers)
        stages = (self._sums(), *self._combined())
        return fused_kernel(kernels, stages, (t for k in self.readers for t in k.outputs))

    def types(self, program: TensorProgram) -> dict[str, TensorType]:
        """The type of the sums."""
        shape = tuple(a.extent for a in self._sums().axes)
        return {self.sums: TensorType(shape, program.types[self.stages[0].output].dtype)}

    def _column(self, part: Index) -> Index:
        start = Sym(BLOCK) * self.width if self.width < self.size else 0
        return start + Sym(COLUMN) + part * self.size

    def _sums(self) -> Stage:
        first = self.stages[0]
        extent = first.axes[-1].extent
        assert isinstance(extent, int)
        block, column = Axis(BLOCK, self.size // self.width), Axis(COLUMN, self.width)
        axes = (block, *self.rows, Axis(PART, extent // self.size), column)
        body = substitute_indices(first.body, {first.axes[-1].name: self._column(Sym(PART))})
        at = tuple(Sym(a.name) for a in axes)
        return replace(first, output=self.sums, axes=axes, write=at, body=body)

    def _combined(self) -> Iterator[Stage]:
        """The readers' stages, block by block."""
        axes = (Axis(BLOCK, self.size // self.width), *self.rows, Axis(COLUMN, self.width))
        for stage in (s for k in self.readers for s in k.stages):
            at: dict[str, Index] = {
                a.name: Sym(b.name) if b.extent != 1 else 0
                for a, b in zip(stage.axes, self.rows, strict=False)
            }
            at[stage.axes[-1].name] = self._column(0)
            write = tuple(substitute(i, at) for i in stage.write)
            body = transform(substitute_indices(stage.body, at), self._with_part)
            yield replace(stage, axes=axes, write=write, body=body)

    def _with_part(self, node: Scalar) -> Scalar:
        """The value of the product that ``node`` reads, in a block; other nodes unchanged."""
        if not (isinstance(node, Read) and node.tensor == self.product):
            return node
        offset = node.indices[-1] - self._column(0)
        assert isinstance(offset, int)
        return self._value(offset // self.size)

    def _value(self, part: int) -> Scalar:
        """The product at a point of a block, after its epilogue."""
        first = self.stages[0]
        rows = tuple(Sym(a.name) for a in self.rows)
        point = (Sym(BLOCK), *rows, part, Sym(COLUMN))
        made: dict[str, Scalar] = {first.output: Read(self.sums, point, first.body.dtype)}
        at: Mapping[str, Index] = {first.axes[-1].name: self._column(part)}
        for stage in self.stages[1:]:
            made[stage.output] = with_values(substitute_indices(stage.body, at), made)
        return made[self.product]
