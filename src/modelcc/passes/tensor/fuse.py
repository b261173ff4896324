"""Fusion: grouping stages into kernels that keep intermediate values in registers or in L1.

A stage joins the kernel of the latest of its producers if all of the kernel's stages then share
one iteration space (a reduction and its epilogue) or walk the same rows (softmax, layer norm).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import reads, walk
from modelcc.ir.tensor import (
    Axis,
    Guard,
    IndexValue,
    Item,
    Kernel,
    Scalar,
    Stage,
    TensorProgram,
    View,
)
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.row_space import RowSpace, row_space
from modelcc.passes.tensor.shared_axes import shared_axes


@dataclass(frozen=True)
class FuseKernels:
    """Greedy fusion in program order; ``limit`` bounds the stages of one kernel.

    before::

        program @main(%a: f32[n, 8], %b: f32[8, 4]) -> (%d) dims(n in 1:) {
          kernel @MatMul(%a: f32[n, 8], %b: f32[8, 4]) -> (%c: f32[n, 4]) {
            %c: f32[n, 4] = [i < n, j < 4] sum[k < 8] %a[i, k] * %b[k, j]
          }
          kernel @Relu(%c: f32[n, 4]) -> (%d: f32[n, 4]) {
            %d: f32[n, 4] = [i < n, j < 4] max(%c[i, j], 0.0)
          }
        }

    after::

        program @main(%a: f32[n, 8], %b: f32[8, 4]) -> (%d) dims(n in 1:) {
          kernel @MatMul_Relu(%a: f32[n, 8], %b: f32[8, 4]) -> (%d: f32[n, 4]) {
            %c: f32[n, 4] = [i < n, j < 4] sum[k < 8] %a[i, k] * %b[k, j]
            %d: f32[n, 4] = [i < n, j < 4] max(%c[i, j], 0.0)
          }
        }
    """

    limit: int = 16

    def __call__(self, program: TensorProgram) -> TensorProgram:
        groups: list[_Group] = []
        home: dict[str, int] = {}
        views = {i.output: i for i in program.items if isinstance(i, View)}
        usage = _Usage.of(program)
        for item in program.items:
            if isinstance(item, View):
                home[item.output] = home.get(item.input, -1)
                continue
            stage = item.stages[0]
            position = self._target(item, groups, home, views, usage, program)
            if position is None:
                position = len(groups)
                groups.append(_Group())
            groups[position].add(item)
            home[stage.output] = max(position, home.get(stage.output, -1))
        return program.with_items(_assemble(_live(groups, program), program))

    def _target(
        self,
        item: Kernel,
        groups: Sequence[_Group],
        home: Mapping[str, int],
        views: Mapping[str, View],
        usage: _Usage,
        program: TensorProgram,
    ) -> int | None:
        """Group that the kernel may join, None for a new one."""
        produced = [t for t in item.inputs if home.get(t, -1) >= 0]
        if not produced:
            return None
        latest = max(home[t] for t in produced)
        direct = [t for t in produced if home[t] == latest]
        group = groups[latest]
        if any(t in views or t not in group.outputs for t in direct):
            return None
        if item.outputs[0] in group.outputs or len(group.kernels) >= self.limit:
            return None
        if item.outputs[0] in usage.parts and any(usage.readers[t] > 1 for t in direct):
            return None
        stages = (*group.stages, item.stages[0])
        return latest if _fits(stages, program.types) else None


@dataclass(frozen=True)
class _Usage:
    """``readers``: how many stages read a tensor; ``parts``: tensors written by several stages.

    A part (of a concatenation) is written by its producer only if nobody else reads it, or every
    producer would be compiled for each of its places.
    """

    readers: Mapping[str, int]
    parts: frozenset[str]

    @staticmethod
    def of(program: TensorProgram) -> _Usage:
        stages = [s for i in program.items if isinstance(i, Kernel) for s in i.stages]
        readers = Counter(t for s in stages for t in {r.tensor for r in reads(s.body)})
        writers = Counter(s.output for s in stages)
        return _Usage(readers, frozenset(t for t, n in writers.items() if n > 1))


@dataclass
class _Group:
    """Kernels being fused, in order."""

    kernels: list[Kernel] = field(default_factory=list[Kernel])

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(s for k in self.kernels for s in k.stages)

    @property
    def outputs(self) -> frozenset[str]:
        return frozenset(s.output for s in self.stages)

    def add(self, kernel: Kernel) -> None:
        self.kernels.append(kernel)


def _fits(stages: Sequence[Stage], types: Mapping[str, TensorType]) -> bool:
    last = stages[-1]
    if not last.reduce and not any(s.reduce for s in stages[1:]) and shared_axes(stages):
        return True
    if not all(_contiguous_row(s, types) for s in stages if s.reduce):
        return False
    space = row_space(stages)
    return space is not None and _walks_as_one(space, types)


def _walks_as_one(space: RowSpace, types: Mapping[str, TensorType]) -> bool:
    """Whether every access walks the row axes as one contiguous axis."""
    names = frozenset(a.name for a in space.row)
    if len(names) <= 1:
        return True
    for stage in space.stages:
        if names & _counted(stage.body):
            return False
        accesses = [(r.tensor, r.indices) for r in reads(stage.body)]
        for tensor, indices in (*accesses, (stage.output, stage.write)):
            moves = any(names & symbols(i) for i in indices)
            if moves and not _is_row(indices, types[tensor], space.row):
                return False
    return True


def _counted(body: Scalar) -> frozenset[str]:
    """Symbols of index values and guards."""
    found: set[str] = set()
    for node in walk(body):
        if isinstance(node, IndexValue):
            found |= symbols(node.index)
        elif isinstance(node, Guard):
            found |= {n for c in node.conditions for i in (c.left, c.right) for n in symbols(i)}
    return frozenset(found)


def _is_row(indices: Sequence[Index], type_: TensorType, row: Sequence[Axis]) -> bool:
    """Whether the last dimensions are walked by the axes of ``row``, all of them in order."""
    places = [(i, n) for i, n in zip(indices, type_.shape, strict=True) if n != 1][-len(row) :]
    along = type_.layout is None and [i for i, _ in places] == [Sym(a.name) for a in row]
    return along and [n for _, n in places[1:]] == [a.extent for a in row[1:]]


def _contiguous_row(stage: Stage, types: Mapping[str, TensorType]) -> bool:
    """Whether the reduction runs along the last dimension of row-major tensors it reads."""
    inner = next((a for a in reversed(stage.reduce) if a.extent != 1), None)
    if inner is None:
        return True
    along = [r for r in reads(stage.body) if any(inner.name in symbols(i) for i in r.indices)]
    return all(r.indices[-1] == Sym(inner.name) and types[r.tensor].layout is None for r in along)


def _live(groups: Sequence[_Group], program: TensorProgram) -> list[_Group]:
    """The groups whose results somebody reads, in the end."""
    live = list(groups)
    while True:
        needed = _needed(live, program)
        kept = [group for group, names in zip(live, needed, strict=True) if names]
        if len(kept) == len(live):
            return live
        live = kept


def _assemble(groups: Sequence[_Group], program: TensorProgram) -> tuple[Item, ...]:
    """Kernels in order with what leaves them, each view right behind its base."""
    needed = _needed(groups, program)
    views: dict[str, list[View]] = {}
    for item in program.items:
        if isinstance(item, View):
            views.setdefault(item.input, []).append(item)
    remaining = {s.output: 0 for g in groups for s in g.stages}
    for group in groups:
        for name in group.outputs:
            remaining[name] += 1
    items: list[Item] = []
    for name in (*program.inputs, *program.constants):
        items += _view_tree(name, views)
    for position, group in enumerate(groups):
        kernel = _kernel(group, needed[position])
        items.append(kernel)
        for name in sorted(group.outputs):
            remaining[name] -= 1
            if remaining[name] == 0:
                items += _view_tree(name, views)
    return tuple(items)


def _view_tree(name: str, views: Mapping[str, Sequence[View]]) -> list[View]:
    found: list[View] = []
    for view in views.get(name, ()):
        found += [view, *_view_tree(view.output, views)]
    return found


def _needed(groups: Sequence[_Group], program: TensorProgram) -> list[frozenset[str]]:
    """Per group: the tensors it defines that somebody else reads."""
    outside = set(program.outputs) | {i.input for i in program.items if isinstance(i, View)}
    readers: dict[str, set[int]] = {}
    writers: dict[str, set[int]] = {}
    for position, group in enumerate(groups):
        for stage in group.stages:
            writers.setdefault(stage.output, set()).add(position)
            for read in reads(stage.body):
                readers.setdefault(read.tensor, set()).add(position)

    def leaves(name: str, position: int) -> bool:
        elsewhere = readers.get(name, set[int]()) - {position}
        return name in outside or bool(elsewhere) or len(writers[name]) > 1

    return [
        frozenset(n for n in group.outputs if leaves(n, position))
        for position, group in enumerate(groups)
    ]


def _kernel(group: _Group, needed: frozenset[str]) -> Kernel:
    stages = group.stages
    inner = {s.output for s in stages}
    read = dict.fromkeys(r.tensor for s in stages for r in reads(s.body))
    names = dict.fromkeys(k.name for k in group.kernels)
    sources = dict.fromkeys(s for k in group.kernels for s in k.source)
    return Kernel(
        "_".join(names)[:48],
        tuple(t for t in read if t not in inner),
        tuple(dict.fromkeys(s.output for s in stages if s.output in needed)),
        stages,
        tuple(sources),
    )
