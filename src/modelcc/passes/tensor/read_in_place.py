"""Views of tensors that were only moved, read from the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    compare,
    divides,
    divisions,
    loop_range,
    product,
    simplify,
    split_affine,
    substitute,
)
from modelcc.ir.scalar_tree import depends_on, reads, transform, walk
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Item,
    Kernel,
    Read,
    Scalar,
    Stage,
    TensorProgram,
    View,
    item_inputs,
    item_outputs,
)
from modelcc.ir.types import TensorType
from modelcc.ops.broadcast import reshaped_place
from modelcc.passes.tensor.fused_kernel import with_stages


@dataclass(frozen=True)
class ReadInPlace:
    """Slices, permutations and expansions that are read through views are never made: their readers
    read the source.

    A view is memory of its own, so its source is not inlined.  Products of two computed operands,
    such as those of attention, take part if strides and offsets in the source are multiples of
    ``boundary`` bytes, and axes that both operands have may be divided there: several heads read
    their group's.  Of other stages, those without reductions take part.  There are up to
    ``readers``.

    before::

        program @main(%x: f32[n, 16], %q: f32[2, n, 4]) -> (%y) dims(n in 1:) {
          kernel @Slice(%x: f32[n, 16]) -> (%s: f32[n, 8]) {
            %s: f32[n, 8] = [i < n, j < 8] %x[i, j + 8]
          }
          view %h: f32[n, 2, 4] = %s
          kernel @MatMul(%q: f32[2, n, 4], %h: f32[n, 2, 4]) -> (%y: f32[2, n, n]) {
            %y: f32[2, n, n] = [b < 2, i < n, j < n] sum[k < 4] %q[b, i, k] * %h[j, b, k]
          }
        }

    after::

        program @main(%x: f32[n, 16], %q: f32[2, n, 4]) -> (%y) dims(n in 1:) {
          kernel @MatMul(%q: f32[2, n, 4], %x: f32[n, 16]) -> (%y: f32[2, n, n]) {
            %y: f32[2, n, n] = [b < 2, i < n, j < n] sum[k < 4] %q[b, i, k] * %x[j, 4*b + k + 8]
          }
        }
    """

    boundary: int = 1
    readers: int = 8

    def __call__(self, program: TensorProgram) -> TensorProgram:
        moves = _Moves(program, self.boundary, self.readers)
        gone = moves.gone()
        if not gone:
            return program
        items = tuple(
            moves.reader(item) if isinstance(item, Kernel) else item
            for item in program.items
            if gone.isdisjoint(item_outputs(item))
        )
        return program.with_items(items)


class _Moves:
    """Kernels that move elements, by their results, and the readers of these."""

    def __init__(self, program: TensorProgram, boundary: int, most: int) -> None:
        self._program, self._boundary, self._most = program, boundary, most
        self._makers: dict[str, Item] = {}
        self._readers: dict[str, list[Item]] = {}
        writers: dict[str, int] = {}
        for item in program.items:
            for name in item_outputs(item):
                writers[name] = writers.get(name, 0) + 1
            for name in item_inputs(item):
                self._readers.setdefault(name, []).append(item)
            if _moves(item, program.types) or _reshapes(item, program):
                self._makers |= dict.fromkeys(item_outputs(item), item)
        self._makers = {n: i for n, i in self._makers.items() if writers[n] == 1}
        self._gone: set[str] = set()

    def gone(self) -> frozenset[str]:
        """Tensors that are not made any more."""
        for name, maker in self._makers.items():
            if name in self._gone or not isinstance(maker, Kernel):
                continue
            if not any(isinstance(reader, View) for reader in self._readers.get(name, ())):
                continue
            below = self._below(name)
            if below is not None and self._taken(below):
                self._gone |= below
        return frozenset(self._gone)

    def _below(self, name: str) -> frozenset[str] | None:
        """``name`` and tensors that are only moved from it; None if some have to be made."""
        if name in self._program.outputs or name not in self._makers:
            return None
        below = frozenset((name,))
        for reader in self._readers.get(name, ()):
            if isinstance(reader, View) or _moves(reader, self._program.types):
                more = self._below(item_outputs(reader)[0])
                if more is None:
                    return None
                below |= more
            elif not isinstance(reader, Kernel) or len(reader.stages) != 1:
                return None
        return below

    def _taken(self, below: frozenset[str]) -> bool:
        """Whether all readers of the tensors ``below`` a movement can read its source."""
        kernels = [r for name in below for r in self._readers.get(name, ())]
        outside = (k for k in kernels if below.isdisjoint(item_outputs(k)))
        ends = {id(k): k.stages[0] for k in outside if isinstance(k, Kernel)}.values()
        count = sum(read.tensor in below for stage in ends for read in reads(stage.body))
        return 0 < count <= self._most and all(self._accepts(stage, below) for stage in ends)

    def _accepts(self, stage: Stage, below: frozenset[str]) -> bool:
        if any(isinstance(node, Bind) for node in walk(stage.body)):
            return False
        is_product = _is_product(stage)
        if stage.reduce and not is_product:
            return False
        body = self._body(stage, below | self._gone)
        if is_product and any(r.tensor in self._program.constants for r in reads(body)):
            return False
        found = zip(reads(stage.body), reads(body), strict=True)
        moved = [new for old, new in found if old.tensor in below]
        return all(self._fits(stage, read, is_product) for read in moved)

    def _fits(self, stage: Stage, read: Read, is_product: bool) -> bool:
        """Whether ``stage`` may ``read`` there."""
        ranges = self._ranges((*stage.axes, *stage.reduce))
        shared = {a.name: a.extent for a in stage.axes if is_product and _is_shared(stage, a)}
        places = _parts(read, shared)
        if places is None:
            return False
        values, axes = places
        ranges |= {a.name: loop_range(a.extent) for a in axes}
        names = [a.name for a in (*stage.axes, *stage.reduce, *axes) if a.extent != 1]
        indices = [simplify(substitute(i, values), ranges) for i in read.indices]
        if any(split_affine(i, names) is None for i in indices):
            return False
        return not is_product or self._on_boundaries(read, indices, names)

    def _on_boundaries(self, read: Read, indices: list[Index], names: list[str]) -> bool:
        """Whether the read is contiguous along one axis, all else being aligned."""
        type_ = self._program.types[read.tensor]
        split = split_affine(type_.physical.offset(indices, type_.shape), names)
        if split is None:
            return False
        steps = [step for step in split[0].values() if step != 0]
        each, others = self._boundary // read.dtype.bytes, [s for s in steps if s != 1]
        whole = all(divides(max(each, 1), s, self._program.dims) for s in (*others, split[1]))
        return whole and len(steps) == len(others) + 1

    # --- readers

    def reader(self, kernel: Kernel) -> Kernel:
        """``kernel`` with the sources of removed tensors as operands."""
        if self._gone.isdisjoint(kernel.inputs):
            return kernel
        stages = [replace(s, body=self._body(s, self._gone)) for s in kernel.stages]
        before = (source for n in kernel.inputs for source in self._source(n))
        source = dict.fromkeys((*before, *kernel.source))
        return replace(with_stages(kernel, stages), source=tuple(source))

    def _source(self, name: str) -> Iterator[str]:
        maker = self._makers.get(name)
        if name in self._gone and isinstance(maker, Kernel | View):
            for before in item_inputs(maker):
                yield from self._source(before)
            yield from maker.source

    def _body(self, stage: Stage, gone: Set[str]) -> Scalar:
        """The body of ``stage``, which reads the sources of ``gone`` tensors."""
        ranges = self._ranges((*stage.axes, *stage.reduce))

        def visit(node: Scalar) -> Scalar:
            while isinstance(node, Read) and node.tensor in gone:
                node = self._before(node, ranges)
            return node

        return transform(stage.body, visit)

    def _before(self, read: Read, ranges: Bounds) -> Read:
        """A read of the same element in the source."""
        maker, types = self._makers[read.tensor], self._program.types
        if isinstance(maker, View):
            new, old = types[maker.output].shape, types[maker.input].shape
            indices = reshaped_place(read.indices, new, old, ranges)
            return Read(maker.input, tuple(simplify(i, ranges) for i in indices), read.dtype)
        assert isinstance(maker, Kernel)
        (stage,) = maker.stages
        values = {a.name: i for a, i in zip(stage.axes, read.indices, strict=True)}
        place = stage.body
        assert isinstance(place, Read)
        indices = (simplify(substitute(i, values), ranges) for i in place.indices)
        return replace(place, indices=tuple(indices))

    def _ranges(self, axes: Sequence[Axis]) -> dict[str, Range]:
        return {**self._program.dims, **{a.name: loop_range(a.extent) for a in axes}}


def _moves(item: Item, types: Mapping[str, TensorType]) -> bool:
    """Whether ``item`` only moves elements of a tensor."""
    if not isinstance(item, Kernel) or len(item.stages) != 1:
        return False
    (stage,) = item.stages
    if stage.reduce or not isinstance(stage.body, Read):
        return False
    plain = types[stage.body.tensor].layout is None and types[stage.output].layout is None
    return plain and stage.write == tuple(Sym(a.name) for a in stage.axes)


def _reshapes(item: Item, program: TensorProgram) -> bool:
    """Whether ``item`` is a view in which the index of each element in its source is known."""
    if not isinstance(item, View):
        return False
    new, old = program.types[item.output], program.types[item.input]
    plain = new.layout is None and old.layout is None and 0 not in old.shape
    same = compare(product(new.shape), "==", product(old.shape), program.dims)
    return plain and same is True


def _is_product(stage: Stage) -> bool:
    return stage.combine == "sum" and isinstance(stage.body, Apply) and stage.body.function == "mul"


def _is_shared(stage: Stage, axis: Axis) -> bool:
    """Whether all reads move along ``axis``."""
    return all(depends_on(read, axis.name) for read in reads(stage.body))


def _parts(
    read: Read, extents: Mapping[str, Index]
) -> tuple[dict[str, Index], tuple[Axis, ...]] | None:
    """Axes that ``read`` divides by a number, split in two; None if these are not those of
    ``extents``, or are divided by several numbers."""
    sizes: dict[str, int] = {}
    for division in (d for index in read.indices for d in divisions(index)):
        axis, size = division.dividend, division.divisor
        if not isinstance(axis, Sym) or not isinstance(size, int):
            return None
        extent = extents.get(axis.name)
        if (
            not isinstance(extent, int)
            or extent % size
            or sizes.setdefault(axis.name, size) != size
        ):
            return None
    axes: list[Axis] = []
    values: dict[str, Index] = {}
    for name, size in sizes.items():
        extent = extents[name]
        assert isinstance(extent, int)
        group, member = Axis(f"{name}.group", extent // size), Axis(f"{name}.member", size)
        axes += (group, member)
        values[name] = Sym(group.name) * size + Sym(member.name)
    return values, tuple(axes)
