"""Axes that some operand of a product divides (grouped queries), as groups and members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import (
    Index,
    Sym,
    divisions,
    floordiv,
    loop_range,
    simplify,
    substitute,
    symbols,
)
from modelcc.ir.scalar_tree import depends_on, map_own_indices, reads, transform
from modelcc.ir.tensor import Axis, Item, Kernel, Read, Scalar, Stage, TensorProgram
from modelcc.ir.types import TensorType

Place = tuple[int, str]
"""A stage of a kernel, by its number, and the name of an axis."""


@dataclass(frozen=True)
class SplitGroups:
    """Query heads that share a key head become groups and members, in all stages of a kernel: keys
    do not move along members, and no index is divided.  Grouped convolutions, whose channels are
    divided alike, remain what schedules and libraries recognise.

    before::

        program @main(%q: f32[6, n, 4], %k: f32[2, n, 4]) -> (%y) dims(n in 1:) {
          kernel @MatMul(%q: f32[6, n, 4], %k: f32[2, n, 4]) -> (%y: f32[6, n]) {
            %s: f32[6, n, n] = [h < 6, i < n, j < n] sum[d < 4]
              %q[h, i, d] * %k[h floordiv 3, j, d]
            %y: f32[6, n] = [h < 6, i < n] max[j < n] %s[h, i, j]
          }
        }

    after::

        program @main(%q: f32[6, n, 4], %k: f32[2, n, 4]) -> (%y) dims(n in 1:) {
          kernel @MatMul(%q: f32[6, n, 4], %k: f32[2, n, 4]) -> (%y: f32[6, n]) {
            %s: f32[2, 3, n, n] = [h.group < 2, h.member < 3, i < n, j < n] sum[d < 4]
              %q[3*h.group + h.member, i, d] * %k[h.group, j, d]
            %y[3*h.group + h.member, i]: f32[6, n] = [h.group < 2, h.member < 3, i < n] max[j < n]
              %s[h.group, h.member, i, j]
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        types = dict(program.types)
        items: list[Item] = []
        for item in program.items:
            split = _split(item, types) if isinstance(item, Kernel) else None
            if split is None:
                items.append(item)
                continue
            kernel, more = split
            types |= more
            items.append(kernel)
        return replace(program, types=types).with_items(tuple(items))


def _split(
    kernel: Kernel, types: Mapping[str, TensorType]
) -> tuple[Kernel, dict[str, TensorType]] | None:
    """``kernel`` on groups, and types of its intermediate results; None if nothing is divided, or
    some stage has no whole groups, or uses them differently."""
    made = [s.output for s in kernel.stages]
    sizes = dict(_divided(kernel.stages))
    if not sizes or len(set(made)) < len(made) or any(types[n].layout for n in made):
        return None
    handed = frozenset(made) - frozenset(kernel.outputs)
    pending = list(sizes)
    while pending:
        place = pending.pop()
        found = _neighbours(kernel.stages, place, handed)
        if found is None or any(sizes.get(p, sizes[place]) != sizes[place] for p in found):
            return None
        pending += (p for p in found if p not in sizes)
        sizes |= dict.fromkeys(found, sizes[place])
    return _Groups(kernel, sizes, handed).split(types)


def _divided(stages: Sequence[Stage]) -> Iterator[tuple[Place, int]]:
    """Axes along which all factors of a product move, and which one of them divides."""
    for number, stage in enumerate(stages):
        found = reads(stage.body)
        if stage.combine != "sum" or getattr(stage.body, "function", "") != "mul":
            continue
        if _has_window(stage):
            continue
        for division in (d for r in found for i in r.indices for d in divisions(i)):
            axis, size = division.dividend, division.divisor
            if not isinstance(axis, Sym) or not isinstance(size, int):
                continue
            if all(depends_on(read, axis.name) for read in found):
                yield (number, axis.name), size


def _has_window(stage: Stage) -> bool:
    """Whether an index of an operand combines a term with a result axis of its own, as those of
    pixels do."""
    found, terms = list(reads(stage.body)), {a.name for a in stage.reduce}
    shared = {a.name for a in stage.axes if all(depends_on(read, a.name) for read in found)}
    own = {a.name for a in stage.axes} - shared
    used = (symbols(index) for read in found for index in read.indices)
    return any(names & terms and names & own for names in used)


def _neighbours(
    stages: Sequence[Stage], place: Place, handed: frozenset[str]
) -> frozenset[Place] | None:
    """Axes of other stages that are this one; None if there is none where one is needed."""
    number, name = place
    stage, found = stages[number], set[tuple[int, Index]]()
    if name not in {a.name for a in stage.axes}:
        return None
    made = {s.output: n for n, s in enumerate(stages)}
    for read in reads(stage.body):
        for at, index in enumerate(read.indices):
            if read.tensor in made and name in symbols(index):
                if index != Sym(name) or read.tensor not in handed:
                    return None
                found.add((made[read.tensor], stages[made[read.tensor]].write[at]))
    for at in (at for at, index in enumerate(stage.write) if name in symbols(index)):
        later = [(n, r) for n, s in enumerate(stages) for r in reads(s.body)]
        read_at = [(n, r.indices[at]) for n, r in later if r.tensor == stage.output]
        if (stage.output in handed and stage.write[at] != Sym(name)) or (
            stage.output not in handed and read_at
        ):
            return None
        found |= set(read_at)
    if not all(isinstance(index, Sym) for _, index in found):
        return None
    return frozenset((n, index.name) for n, index in found if isinstance(index, Sym))


@dataclass(frozen=True)
class _Groups:
    """A kernel whose axes at some places become groups, with these numbers of members."""

    kernel: Kernel
    sizes: Mapping[Place, int]
    handed: frozenset[str]

    def split(self, types: Mapping[str, TensorType]) -> tuple[Kernel, dict[str, TensorType]] | None:
        for number, stage in enumerate(self.kernel.stages):
            for axis in stage.axes:
                size = self.sizes.get((number, axis.name), 1)
                if not isinstance(axis.extent, int) and size > 1:
                    return None
                if isinstance(axis.extent, int) and axis.extent % size:
                    return None
        stages = tuple(self._stage(n) for n in range(len(self.kernel.stages)))
        more = {
            s.output: replace(types[s.output], shape=self._shape(n, types[s.output].shape))
            for n, s in enumerate(self.kernel.stages)
            if s.output in self.handed
        }
        return replace(self.kernel, stages=stages), more

    def _shape(self, number: int, shape: Sequence[Index]) -> tuple[Index, ...]:
        write = self.kernel.stages[number].write
        found: list[Index] = []
        for index, extent in zip(write, shape, strict=True):
            size = self._size(number, index)
            found += (extent,) if size is None else (floordiv(extent, size), size)
        return tuple(found)

    def _size(self, number: int, index: Index) -> int | None:
        """Members of the groups along which ``index`` of a stage moves."""
        return self.sizes.get((number, index.name)) if isinstance(index, Sym) else None

    def _stage(self, number: int) -> Stage:
        stage = self.kernel.stages[number]
        axes: list[Axis] = []
        values: dict[str, Index] = {}
        for axis in stage.axes:
            size = self.sizes.get((number, axis.name))
            if size is None:
                axes.append(axis)
                continue
            group = Axis(f"{axis.name}.group", floordiv(axis.extent, size))
            member = Axis(f"{axis.name}.member", size)
            axes += (group, member)
            values[axis.name] = Sym(group.name) * size + Sym(member.name)
        ranges = {a.name: loop_range(a.extent) for a in (*axes, *stage.reduce)}

        def moved(index: Index) -> Index:
            return simplify(substitute(index, values), ranges)

        def placed(tensor: str, indices: Sequence[Index]) -> tuple[Index, ...]:
            found: list[Index] = []
            for index in indices:
                split = tensor in self.handed and self._size(number, index) is not None
                found += _both(index) if split else (moved(index),)
            return tuple(found)

        def visit(node: Scalar) -> Scalar:
            if isinstance(node, Read):
                return replace(node, indices=placed(node.tensor, node.indices))
            return map_own_indices(node, moved)

        body, write = transform(stage.body, visit), placed(stage.output, stage.write)
        return replace(stage, axes=tuple(axes), write=write, body=body)


def _both(index: Index) -> tuple[Index, Index]:
    assert isinstance(index, Sym)
    return Sym(f"{index.name}.group"), Sym(f"{index.name}.member")
