"""Packing of run-time operands that a product would read from distant addresses.

Constants are packed at compile time by the schedule and are left alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from modelcc.ir.index import Index, Sym, coefficient, product, substitute, symbols
from modelcc.ir.naming import Names
from modelcc.ir.scalar_tree import index_symbols, reads, transform
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Cast,
    Guard,
    Item,
    Kernel,
    Read,
    Scalar,
    Stage,
    TensorProgram,
)
from modelcc.ir.types import BF16, F16, F32, Layout, Part, TensorType, row_major
from modelcc.targets.cpu.passes.single_rows import unless_single


@dataclass(frozen=True)
class PackOperands:
    """``block`` vector lanes innermost; an operand read fewer than ``reuse`` times stays.

    So does one whose lanes are contiguous, unless it is read ``rows`` times (None: never) and has
    more than ``near`` bytes per product.  Vectors of consecutive reduction steps are in different
    rows then, maybe in different pages, and conflict in few sets of the L1 cache (Goto & van de
    Geijn, "Anatomy of high-performance matrix multiplication", 2008).  An operand that is uniform
    over the lanes is transposed for the same reason, if it is read down its columns by vectors of
    ``reuse`` blocks.  If a symbolic number of rows is one at run time, the operand is not copied
    (:mod:`modelcc.targets.cpu.passes.single_rows`).  Guarded ones stay: a copy would read out of
    range.  Copies of 16-bit floats that are multiplied as f32 are f32.  Equal copies are shared.
    Few rows times the rows of a much larger matrix swap their roles: the few are packed, and the
    result is transposed.

    before::

        program @main(%q: f32[8, 4], %k: f32[24, 4]) -> (%s) {
          kernel @MatMul(%q: f32[8, 4], %k: f32[24, 4]) -> (%s: f32[8, 24]) {
            %s: f32[8, 24] = [m < 8, n < 24] sum[d < 4] %q[m, d] * %k[n, d]
          }
        }

    after::

        program @main(%q: f32[8, 4], %k: f32[24, 4]) -> (%s) {
          kernel @Pack(%k: f32[24, 4]) -> (%s.packed: f32[24, 4]<d0/16 d1 d0%16>) {
            %s.packed: f32[24, 4]<d0/16 d1 d0%16> = [n < 24, d < 4] %k[n, d]
          }
          kernel @MatMul(%q: f32[8, 4], %s.packed: f32[24, 4]<d0/16 d1 d0%16>)
            -> (%s: f32[8, 24]) {
            %s: f32[8, 24] = [m < 8, n < 24] sum[d < 4] %q[m, d] * %s.packed[n, d]
          }
        }
    """

    block: int = 16
    reuse: int = 4
    rows: int | None = None
    near: int = 0

    def __call__(self, program: TensorProgram) -> TensorProgram:
        types, names = dict(program.types), Names(program.types)
        made: dict[Hashable, str] = {}
        items: list[Item] = []
        for item in program.items:
            if not isinstance(item, Kernel):
                items.append(item)
                continue
            product, turns, swapped = self._swapped(item, program, names)
            types |= swapped
            known = replace(program, types=types)
            changed, added = self._packed(product, known, names, made)
            items += (*changed, *turns)
            types |= added
        return replace(program, items=tuple(items), types=types)

    def _packed(
        self, kernel: Kernel, program: TensorProgram, names: Names, made: dict[Hashable, str]
    ) -> tuple[list[Item], dict[str, TensorType]]:
        """``kernel`` reading copies, preceded by the new ones, and the types of these; ``made`` has
        the existing ones, and is updated."""
        copies = tuple(self._copies(kernel, program, names))
        items: list[Item] = []
        reader, new = kernel, dict[Hashable, str]()
        for copy in copies:
            name = made.get(copy.contents)
            if name is None:
                items.append(copy.kernel(kernel))
                new[copy.contents] = copy.name
            reader = copy.read_by(reader, name or copy.name)
        items.append(reader)
        types = {copy.name: copy.type for copy in copies if copy.name in new.values()}
        rows = [a for c in copies if c.layout for a in c.still(kernel.stages[0])]
        choice = unless_single(kernel, rows, items, program) if self.rows and rows else None
        if choice is not None:
            return choice[0], types | choice[1]
        made |= new
        return items, types

    def _swapped(
        self, kernel: Kernel, program: TensorProgram, names: Names
    ) -> tuple[Kernel, tuple[Kernel, ...], dict[str, TensorType]]:
        """``kernel`` with rows and columns swapped, the kernel that transposes its result, and
        types; unchanged unless that is cheaper than copying the operand that moves with columns."""
        stage, *others = kernel.stages
        lane = _vector_axis(stage, program)
        row = next((a for a in stage.axes if a != lane), None)
        if lane is None or row is None or others or not self._worth_swapping(stage, row, lane):
            return kernel, (), {}
        tensors = (*(read.tensor for read in _factors(stage)), stage.output)
        plain = all(_is_row_major(program.types[t]) for t in tensors)
        if not plain or any(t in program.constants for t in tensors):
            return kernel, (), {}
        name, dtype = names.fresh(f"{stage.output}.swapped"), program.types[stage.output].dtype
        point = stage.write[::-1]
        swapped = replace(stage, output=name, axes=(lane, row), write=point)
        turn = Stage(stage.output, stage.axes, stage.write, Read(name, point, dtype))
        return (
            replace(kernel, outputs=(name,), stages=(swapped,)),
            (Kernel("Transpose", (name,), kernel.outputs, (turn,), kernel.source),),
            {name: TensorType((lane.extent, row.extent), dtype)},
        )

    def _worth_swapping(self, stage: Stage, row: Axis, lane: Axis) -> bool:
        """Whether packing the rows and transposing the result costs less than packing the lanes'
        operand."""
        if len(stage.axes) != 2 or len(stage.reduce) != 1:
            return False
        (summed,) = stage.reduce
        wanted = {(Sym(a.name), Sym(summed.name)) for a in (row, lane)}
        both = {read.indices for read in _factors(stage)} == wanted
        if not both or stage.write != (Sym(row.name), Sym(lane.name)):
            return False
        m, n, k = row.extent, lane.extent, summed.extent
        if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)):
            return False
        return m % self.block == 0 and m * (k + 2 * n) <= n * k

    def _copies(self, kernel: Kernel, program: TensorProgram, names: Names) -> Iterator[_Copy]:
        """The operands of a product to pack."""
        stage, *others = kernel.stages
        lane, factors = _vector_axis(stage, program), _factors(stage)
        if lane is None or len(factors) != 2 or any(s.reduce for s in others):
            return
        if others and self.rows is None:
            return
        moving = [r for r in factors if lane.name in index_symbols(r)]
        for read in factors if len(moving) == 1 else ():
            if _is_guarded(read, stage):
                continue
            plain = _is_row_major(program.types[read.tensor]) and read.tensor in kernel.inputs
            if not plain or read.tensor in program.constants:
                continue
            if read in moving and self._worth(stage, read, lane):
                axes = _axes_of(read, stage)
                layout = self._layout(axes, lane, stage.reduce)
                name = names.fresh(f"{stage.output}.packed")
                yield _Copy(name, read, _value(stage, read), axes, layout)
            elif read not in moving and self._worth_turning(stage, read):
                axes = tuple(sorted(_axes_of(read, stage), key=lambda a: a in stage.reduce))
                name = names.fresh(f"{stage.output}.turned")
                yield _Copy(name, read, _value(stage, read), axes, None)

    def _worth(self, stage: Stage, read: Read, lane: Axis) -> bool:
        """Whether an operand that moves with the vectors is reused enough to pay for a copy."""
        wide = not isinstance(lane.extent, int) or lane.extent * 2 >= self.block
        if coefficient(read.indices[-1], lane.name) == 0:
            return wide and self._uses(stage, read, self.reuse)
        return (
            self.rows is not None
            and wide
            and self._is_far(stage, read)
            and self._uses(stage, read, self.rows)
        )

    def _worth_turning(self, stage: Stage, read: Read) -> bool:
        """Whether an operand uniform over the lanes is read down its columns, by many vectors."""
        if self.rows is None or len(stage.reduce) != 1:
            return False
        (summed,) = stage.reduce
        across = summed.name in index_symbols(read) and summed.name not in symbols(read.indices[-1])
        many = self._uses(stage, read, self.block * self.reuse)
        return across and many and self._is_far(stage, read)

    def _is_far(self, stage: Stage, read: Read) -> bool:
        """Whether a product's part of an operand exceeds ``near`` bytes in any layout."""
        shared = [a for a in stage.axes if all(a.name in index_symbols(r) for r in _factors(stage))]
        axes = [a for a in _axes_of(read, stage) if a not in shared]
        size = product(a.extent for a in axes) * _value(stage, read).dtype.bytes
        # Elements shared by windows would be copied for each.
        windows = any(len(symbols(i)) > 1 for i in read.indices)
        return not windows and not (isinstance(size, int) and size <= self.near)

    def _uses(self, stage: Stage, read: Read, least: int) -> bool:
        """Whether each element is read at least ``least`` times, or a symbolic number."""
        times = product(a.extent for a in stage.axes if a.name not in index_symbols(read))
        return not isinstance(times, int) or times >= least

    def _layout(self, axes: tuple[Axis, ...], lane: Axis, summed: tuple[Axis, ...]) -> Layout:
        """Blocks of lanes innermost, reduction axes contiguous."""
        position = axes.index(lane)
        parts = [Part(n, self.block if n == position else 1) for n in range(len(axes))]
        parts.sort(key=lambda part: axes[part.axis] in summed)
        return Layout((*parts, Part(position, 1, self.block)), ((0, 0),) * len(axes))


@dataclass(frozen=True)
class _Copy:
    """``name`` holds the ``value`` of a ``read`` along ``axes``, in ``layout``."""

    name: str
    read: Read
    value: Scalar
    axes: tuple[Axis, ...]
    layout: Layout | None

    @property
    def point(self) -> tuple[Index, ...]:
        return tuple(Sym(a.name) for a in self.axes)

    @property
    def type(self) -> TensorType:
        return TensorType(tuple(a.extent for a in self.axes), self.value.dtype, self.layout)

    @property
    def contents(self) -> Hashable:
        """A key equal for equal copies."""
        order = {a.name: Sym(f"d{n}") for n, a in enumerate(self.axes)}
        indices = tuple(substitute(i, order) for i in self.read.indices)
        return self.read.tensor, indices, self.type

    def still(self, stage: Stage) -> list[Axis]:
        """Axes of the product in which its read is invariant."""
        return [a for a in stage.axes if a not in self.axes]

    def kernel(self, reader: Kernel) -> Kernel:
        """The kernel that makes the copy for ``reader``."""
        stage = Stage(self.name, self.axes, self.point, self.value)
        return Kernel("Pack", (self.read.tensor,), (self.name,), (stage,), reader.source)

    def read_by(self, kernel: Kernel, name: str) -> Kernel:
        """``kernel`` with its first stage reading the copy called ``name``."""
        stage, *others = kernel.stages
        new = Read(name, self.point, self.value.dtype)
        body = transform(stage.body, lambda node: new if node == self.value else node)
        stages = (replace(stage, body=body), *others)
        old = self.read.tensor
        inputs = [name if tensor == old else tensor for tensor in kernel.inputs]
        inputs += [old] if any(r.tensor == old for s in stages for r in reads(s.body)) else []
        return replace(kernel, inputs=tuple(inputs), stages=stages)


def _vector_axis(stage: Stage, program: TensorProgram) -> Axis | None:
    """The axis of the output's innermost dimension, if it is a sum of products."""
    is_product = isinstance(stage.body, Apply) and stage.body.function == "mul"
    if stage.combine != "sum" or not is_product or not stage.write:
        return None
    layout = program.types[stage.output].layout
    innermost = -1 if layout is None else layout.parts[-1].axis
    return next((a for a in stage.axes if stage.write[innermost] == Sym(a.name)), None)


def _is_row_major(type_: TensorType) -> bool:
    """Whether the last dimension is innermost, with or without a halo."""
    return type_.layout is None or type_.layout.parts == row_major(type_.rank).parts


def _factors(stage: Stage) -> list[Read]:
    """The operands of a product of two, without guards and conversions of 16-bit floats to f32."""
    args = stage.body.args if isinstance(stage.body, Apply) else ()
    inner = [a.inside if isinstance(a, Guard) else a for a in args]
    inner = [a.value if _widens(a) else a for a in inner]
    return [r for r in inner if isinstance(r, Read)]


def _widens(value: Scalar) -> TypeGuard[Cast]:
    """Whether ``value`` is a 16-bit float converted to f32."""
    return isinstance(value, Cast) and value.dtype == F32 and value.value.dtype in (BF16, F16)


def _value(stage: Stage, read: Read) -> Scalar:
    """The factor of a product that contains ``read``."""
    args = stage.body.args if isinstance(stage.body, Apply) else ()
    return next((a for a in args if _widens(a) and a.value == read), read)


def _is_guarded(read: Read, stage: Stage) -> bool:
    """Whether a product's operand is padded by a guard."""
    args = stage.body.args if isinstance(stage.body, Apply) else ()
    return any(isinstance(a, Guard) and read in reads(a) for a in args)


def _axes_of(read: Read, stage: Stage) -> tuple[Axis, ...]:
    """The axes that move ``read``, in the order of its dimensions."""
    order = dict.fromkeys(n for i in read.indices for n in sorted(symbols(i)))
    by_name: Mapping[str, Axis] = {a.name: a for a in (*stage.axes, *stage.reduce)}
    return tuple(by_name[n] for n in order if n in by_name)
