"""Concatenated parts of a tensor as one stage that selects among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import reads, substitute_indices, walk
from modelcc.ir.tensor import (
    Axis,
    Bind,
    Condition,
    Guard,
    Item,
    Kernel,
    Number,
    Scalar,
    Stage,
    TensorProgram,
    View,
    item_outputs,
)


@dataclass(frozen=True)
class SelectParts:
    """Stages that fill adjacent parts of a tensor become one, of up to ``most`` of them: their
    producers are inlined into it, and it into its readers.

    A part that a reduction computes is left to that one's kernel, which writes it in place, if the
    tensor is an operand of a product, into which nothing is inlined.

    before::

        program @main(%x: f32[n, 4], %y: f32[n, 4]) -> (%c) dims(n in 1:) {
          kernel @Concat(%x: f32[n, 4]) -> (%c: f32[n, 8]) {
            %c: f32[n, 8] = [i < n, j < 4] %x[i, j]
          }
          kernel @Concat(%y: f32[n, 4]) -> (%c: f32[n, 8]) {
            %c[i, j + 4]: f32[n, 8] = [i < n, j < 4] -%y[i, j]
          }
        }

    after::

        program @main(%x: f32[n, 4], %y: f32[n, 4]) -> (%c) dims(n in 1:) {
          kernel @Concat(%x: f32[n, 4], %y: f32[n, 4]) -> (%c: f32[n, 8]) {
            %c: f32[n, 8] = [i < n, j < 8] (%x[i, j] if [j < 4] else (-%y[i, j - 4] if [j >= 4] else 0.0))
          }
        }
    """  # noqa: E501

    most: int = 16

    def __call__(self, program: TensorProgram) -> TensorProgram:
        made = _Fillers.of(program)
        groups = made.parts(program)
        items: list[Item] = []
        for item in program.items:
            if isinstance(item, Kernel) and item.outputs[0] in groups:
                parts = groups[item.outputs[0]]
                if item is parts[-1].kernel:
                    items += self._selected(parts, made)
            else:
                items.append(item)
        return program.with_items(tuple(items))

    def _selected(self, parts: Sequence[_FilledPart], made: _Fillers) -> Iterator[Kernel]:
        """Kernels that fill a tensor."""
        alone = made.feeds_product(parts[0].stage.output)
        for apart, run in groupby(parts, lambda p: alone and made.is_reduced(p)):
            rest = list(run)
            number = len(rest) if apart else -(-len(rest) // self.most)
            for piece in range(number):
                bounds = (len(rest) * k // number for k in (piece, piece + 1))
                yield _joined(rest[slice(*bounds)])


@dataclass(frozen=True)
class _FilledPart:
    """The part of a tensor that ``kernel`` fills, from ``start`` up to ``end`` along ``axis``."""

    kernel: Kernel
    axis: int
    start: Index
    end: Index

    @property
    def stage(self) -> Stage:
        return self.kernel.stages[0]


@dataclass(frozen=True)
class _Fillers:
    """Kernels of one stage by their outputs, and numbers of readers."""

    kernels: Mapping[str, list[Kernel]]
    readers: Mapping[str, list[Stage]]
    fixed: frozenset[str]

    @staticmethod
    def of(program: TensorProgram) -> _Fillers:
        kernels: dict[str, list[Kernel]] = {}
        readers: dict[str, list[Stage]] = {}
        for item in program.items:
            if isinstance(item, Kernel):
                for stage in item.stages:
                    kernels.setdefault(stage.output, []).append(item)
                    for name in {r.tensor for r in reads(stage.body)}:
                        readers.setdefault(name, []).append(stage)
        views = {i.input for i in program.items if isinstance(i, View)}
        return _Fillers(kernels, readers, frozenset(views | set(program.outputs)))

    def parts(self, program: TensorProgram) -> dict[str, list[_FilledPart]]:
        """Tensors that are filled completely by consecutive parts."""
        writers = Counter(name for item in program.items for name in item_outputs(item))
        found: dict[str, list[_FilledPart]] = {}
        for name, kernels in self.kernels.items():
            if 1 < len(kernels) == writers[name]:
                parts = _parts(kernels, program.types[name].shape)
                if parts is not None:
                    found[name] = parts
        return found

    def feeds_product(self, name: str) -> bool:
        """Whether a product reads a tensor."""
        return any(s.reduce and len(list(reads(s.body))) > 1 for s in self.readers.get(name, ()))

    def is_reduced(self, part: _FilledPart) -> bool:
        """Whether a part is a reduction, possibly with an epilogue, that only this tensor uses."""
        stage: Stage | None = part.stage
        while stage is not None:
            if stage.reduce:
                return True
            stage = next(self._before(stage), None)
        return False

    def _before(self, stage: Stage) -> Iterator[Stage]:
        """Stages whose results only ``stage`` reads, at its own point; reductions first."""
        here = tuple(Sym(axis.name) for axis in stage.axes)
        found: list[Stage] = []
        for read in reads(stage.body):
            (reader, *others) = self.readers[read.tensor]
            kernels = self.kernels.get(read.tensor, [])
            alone = reader is stage and not others and read.tensor not in self.fixed
            if alone and len(kernels) == 1 and read.indices == here:
                found.append(kernels[0].stages[0])
        yield from sorted(found, key=lambda s: not s.reduce)


def _parts(kernels: Sequence[Kernel], shape: Sequence[Index]) -> list[_FilledPart] | None:
    found = [_part(kernel, shape) for kernel in kernels]
    parts = [part for part in found if part is not None]
    if len(parts) < len(kernels) or len({part.axis for part in parts}) > 1:
        return None
    whole = parts[0].start == 0 and parts[-1].end == shape[parts[0].axis]
    return parts if whole and all(a.end == b.start for a, b in pairwise(parts)) else None


def _part(kernel: Kernel, shape: Sequence[Index]) -> _FilledPart | None:
    """The part that a kernel fills: a range along one axis."""
    stage = kernel.stages[0]
    places = [Sym(a.name) for a in stage.axes]
    if len(kernel.stages) != 1 or stage.reduce or len(places) != len(shape):
        return None
    if any(isinstance(node, Bind) for node in walk(stage.body)):
        return None
    starts = [i - place for i, place in zip(stage.write, places, strict=True)]
    names = {a.name for a in stage.axes}
    extents = [a.extent for a in stage.axes]
    moved = [
        d for d, (s, e) in enumerate(zip(starts, extents, strict=True)) if (s, e) != (0, shape[d])
    ]
    if len(moved) != 1 or symbols(starts[moved[0]]) & names:
        return None
    start = starts[moved[0]]
    return _FilledPart(kernel, moved[0], start, start + extents[moved[0]])


def _joined(parts: Sequence[_FilledPart]) -> Kernel:
    """The kernel of adjacent parts."""
    first = parts[0]
    if len(parts) == 1:
        return first.kernel
    axes, start = list(first.stage.axes), first.start
    along = axes[first.axis]
    axes[first.axis] = Axis(along.name, parts[-1].end - start)
    body: Scalar = Number(0, first.stage.body.dtype)
    for part in reversed(parts):
        body = _guarded(part, axes, start, body)
    stage = Stage(first.stage.output, tuple(axes), first.stage.write, body)
    inputs = dict.fromkeys(r.tensor for r in reads(body))
    source = dict.fromkeys(s for part in parts for s in part.kernel.source)
    return replace(first.kernel, inputs=tuple(inputs), stages=(stage,), source=tuple(source))


def _guarded(part: _FilledPart, axes: Sequence[Axis], start: Index, other: Scalar) -> Scalar:
    """The value of ``part`` in its range, of the tensor from ``start`` on, else ``other``."""
    here = Sym(axes[part.axis].name)
    values: dict[str, Index] = {
        own.name: Sym(axis.name) for own, axis in zip(part.stage.axes, axes, strict=True)
    }
    values[part.stage.axes[part.axis].name] = here - (part.start - start)
    body = substitute_indices(part.stage.body, values)
    ends = (Condition(here, ">=", part.start - start), Condition(here, "<", part.end - start))
    first, last = part.start == start, isinstance(other, Number)
    kept = ends[1:] if first else ends[:1] if last else ends
    return Guard(kept, body, other, body.dtype)
