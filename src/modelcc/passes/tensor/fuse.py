"""Fusion: grouping stages into kernels that keep intermediate values in registers or in L1.

A stage joins the kernel of the latest of its producers if all of the kernel's stages then share one
iteration space (a reduction and its epilogue) or iterate over the same rows (softmax, layer norm).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import cost, reads, walk
from modelcc.ir.tensor import (
    Algorithm,
    Axis,
    Bind,
    Cast,
    Guard,
    IndexValue,
    Item,
    Kernel,
    ReadSize,
    Scalar,
    Scatter,
    Stage,
    TensorProgram,
    View,
    item_inputs,
    item_outputs,
)
from modelcc.ir.tensor_verifier import item_symbols
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.fused_kernel import fused_kernel
from modelcc.passes.tensor.reduction_domain import ReductionDomain, reduction_domain
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.passes.tensor.split_blocks import ragged_part


@dataclass(frozen=True)
class FuseKernels:
    """Greedy fusion in program order; ``limit`` bounds the stages of one kernel, ``work`` the
    cost of one evaluation of all their expressions, to limit the compile time of a kernel.

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
    work: int = 1024

    def __call__(self, program: TensorProgram) -> TensorProgram:
        groups: list[_FusionGroup] = []
        home: dict[str, int] = {}
        symbols_at: dict[str, int] = {}
        views = {i.output: i for i in program.items if isinstance(i, View)}
        usage = _Usage.of(program)
        for item in program.items:
            if isinstance(item, View):
                home[item.output] = home.get(item.input, -1)
                continue
            if isinstance(item, Algorithm | Scatter | ReadSize):
                symbols_at |= _bound_at(item, len(groups))
                home |= dict.fromkeys(item_outputs(item), len(groups))
                groups.append(_FusionGroup(alone=item))
                continue
            assert isinstance(item, Kernel)
            stage = item.stages[0]
            position = self._target(item, groups, home, views, usage, program)
            needed = item_symbols(item, program.types) if symbols_at else ()
            known_from = max((symbols_at.get(name, -1) for name in needed), default=-1)
            if position is None or position < known_from:
                position = len(groups)
                groups.append(_FusionGroup())
            groups[position].add(item)
            home[stage.output] = max(position, home.get(stage.output, -1))
        return program.with_items(_assemble(_live(groups, program), program))

    def _target(
        self,
        item: Kernel,
        groups: Sequence[_FusionGroup],
        home: Mapping[str, int],
        views: Mapping[str, View],
        usage: _Usage,
        program: TensorProgram,
    ) -> int | None:
        """The group that the kernel may join, None for a new one."""
        produced = [t for t in item.inputs if home.get(t, -1) >= 0]
        if not produced:
            return None
        latest = max(home[t] for t in produced)
        direct = [t for t in produced if home[t] == latest]
        group = groups[latest]
        if group.alone is not None:
            return None
        if any(t in views or t not in group.outputs for t in direct):
            return None
        if item.outputs[0] in group.outputs or len(group.kernels) >= self.limit:
            return None
        if group.work + cost(item.stages[0].body) > self.work:
            return None
        if item.outputs[0] in usage.parts and any(usage.readers[t] > 1 for t in direct):
            return None
        if any(ragged_part(s, program.types) for s in (item.stages[0], *group.stages)):
            return None
        if _repeats_gathers(item.stages[0], group.stages):
            return None
        if _is_product(item.stages[0]) and any(
            _rounds(s) and s.output in direct for s in group.stages
        ):
            return None
        stages = (*group.stages, item.stages[0])
        return latest if _fits(stages, program.types) else None


@dataclass(frozen=True)
class _Usage:
    """``readers``: numbers of stages that read a tensor; ``parts``: tensors of several writers.

    A part (of a concatenation) is fused with its producer only if nothing else reads it, as the
    producer would otherwise be compiled for each of its uses.
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
class _FusionGroup:
    """Kernels being fused, in order; or an item that is not fused (``alone``)."""

    kernels: list[Kernel] = field(default_factory=list[Kernel])
    alone: Algorithm | Scatter | ReadSize | None = None
    work: int = 0

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(s for k in self.kernels for s in k.stages)

    @property
    def outputs(self) -> frozenset[str]:
        if self.alone is not None:
            return frozenset(item_outputs(self.alone))
        return frozenset(s.output for s in self.stages)

    @property
    def inputs(self) -> frozenset[str]:
        if self.alone is not None:
            return frozenset(item_inputs(self.alone))
        return frozenset(r.tensor for s in self.stages for r in reads(s.body))

    def add(self, kernel: Kernel) -> None:
        self.kernels.append(kernel)
        self.work += cost(kernel.stages[0].body)


def _bound_at(item: Algorithm | Scatter | ReadSize, position: int) -> dict[str, int]:
    return dict.fromkeys(item.symbols, position) if isinstance(item, ReadSize) else {}


def _rounds(stage: Stage) -> bool:
    """Whether it stores narrower floats, which products read repeatedly."""
    body = stage.body
    if not isinstance(body, Cast) or stage.reduce or not body.dtype.is_float:
        return False
    return body.value.dtype.is_float and body.dtype.bits < body.value.dtype.bits


def _is_product(stage: Stage) -> bool:
    return stage.combine == "sum" and len(list(reads(stage.body))) > 1


def _fits(stages: Sequence[Stage], types: Mapping[str, TensorType]) -> bool:
    last = stages[-1]
    if not last.reduce and not any(s.reduce for s in stages[1:]):
        shared = shared_axes(stages)
        if shared is not None and _keeps_vectors(shared, types):
            return True
    if not all(_contiguous_row(s, types) for s in stages if s.reduce):
        return False
    domain = reduction_domain(stages)
    if domain is None or domain.repeats(domain.stages[-1]):
        return False
    return _walks_as_one(domain, types)


def _keeps_vectors(stages: Sequence[Stage], types: Mapping[str, TensorType]) -> bool:
    """Whether the last stage writes vectors along the vector axis of the first ones.

    Sums of products and reductions with blocked results are vectorised along their results;
    permuting these is cheaper afterwards.
    """
    first, last = stages[0], stages[-1]
    if not first.reduce or not (_is_product(first) or types[first.output].layout is not None):
        return True
    wanted = _vector_axes(first, types)
    return not wanted or bool(wanted & _vector_axes(last, types))


def _vector_axes(stage: Stage, types: Mapping[str, TensorType]) -> frozenset[str]:
    """Axes along which elements of the output are contiguous; none if there is only one element."""
    type_ = types[stage.output]
    moving = [p.axis for p in type_.physical.parts if type_.shape[p.axis] != 1]
    return symbols(stage.write[moving[-1]]) if moving else frozenset()


def _repeats_gathers(reader: Stage, made: Sequence[Stage]) -> bool:
    """Whether the reduction ``reader`` would repeat gathers of ``made`` for several results.

    A row's elements are computed where a reduction reads them: expensive for chains of gathers.
    """
    gathered = {s.output for s in made if any(isinstance(node, Bind) for node in walk(s.body))}
    if not reader.reduce or not gathered:
        return False
    axes = {a.name for a in reader.axes if a.extent != 1}
    used = [r for r in reads(reader.body) if r.tensor in gathered]
    return any(axes - {n for i in r.indices for n in symbols(i)} for r in used)


def _walks_as_one(domain: ReductionDomain, types: Mapping[str, TensorType]) -> bool:
    """Whether every access traverses the row axes as one contiguous axis."""
    names = frozenset(a.name for a in domain.row)
    if len(names) <= 1:
        return True
    for stage in domain.stages:
        if names & _counted(stage.body):
            return False
        accesses = [(r.tensor, r.indices) for r in reads(stage.body)]
        for tensor, indices in (*accesses, (stage.output, stage.write)):
            moves = any(names & symbols(i) for i in indices)
            if moves and not _is_row(indices, types[tensor], domain.row):
                return False
    return True


def _counted(body: Scalar) -> frozenset[str]:
    """Symbols of index values and guards."""
    names: set[str] = set()
    for node in walk(body):
        if isinstance(node, IndexValue):
            names |= symbols(node.index)
        elif isinstance(node, Guard):
            names |= {n for c in node.conditions for i in (c.left, c.right) for n in symbols(i)}
    return frozenset(names)


def _is_row(indices: Sequence[Index], type_: TensorType, row: Sequence[Axis]) -> bool:
    """Whether the axes of ``row``, all of them in order, index the last dimensions."""
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


def _live(groups: Sequence[_FusionGroup], program: TensorProgram) -> list[_FusionGroup]:
    """The groups whose results are used, transitively."""
    live = list(groups)
    while True:
        needed = _needed(live, program)
        kept = [
            group
            for group, names in zip(live, needed, strict=True)
            if names or isinstance(group.alone, ReadSize)
        ]
        if len(kept) == len(live):
            return live
        live = kept


def _assemble(groups: Sequence[_FusionGroup], program: TensorProgram) -> tuple[Item, ...]:
    """Kernels in order with their outputs, each view directly after its base."""
    needed = _needed(groups, program)
    views: dict[str, list[View]] = {}
    for item in program.items:
        if isinstance(item, View):
            views.setdefault(item.input, []).append(item)
    remaining = Counter(name for group in groups for name in group.outputs)
    pending = {s for g in groups if isinstance(g.alone, ReadSize) for s in g.alone.symbols}
    ready = [*program.inputs, *program.constants]
    waiting: list[str] = []
    items: list[Item] = []

    def place_views() -> None:
        names = [*waiting, *ready]
        waiting.clear()
        ready.clear()
        for name in names:
            for view in views.get(name, ()):
                extents = program.types[view.output].shape
                if any(symbols(e) & pending for e in extents):
                    waiting.append(name)
                    continue
                views[name] = [v for v in views[name] if v is not view]
                items.append(view)
                ready.append(view.output)
        if ready:
            place_views()

    place_views()
    for position, group in enumerate(groups):
        items.append(group.alone or _kernel(group, needed[position]))
        if isinstance(group.alone, ReadSize):
            pending -= set(group.alone.symbols)
        for name in sorted(group.outputs):
            remaining[name] -= 1
            if remaining[name] == 0:
                ready.append(name)
        place_views()
    return tuple(items)


def _needed(groups: Sequence[_FusionGroup], program: TensorProgram) -> list[frozenset[str]]:
    """Per group: the tensors it defines that others read."""
    outside = set(program.outputs) | {i.input for i in program.items if isinstance(i, View)}
    readers: dict[str, set[int]] = {}
    writers: dict[str, set[int]] = {}
    for position, group in enumerate(groups):
        for name in group.outputs:
            writers.setdefault(name, set()).add(position)
        for name in group.inputs:
            readers.setdefault(name, set()).add(position)

    def leaves(name: str, position: int) -> bool:
        elsewhere = readers.get(name, set[int]()) - {position}
        return name in outside or bool(elsewhere) or len(writers[name]) > 1

    return [
        frozenset(n for n in group.outputs if leaves(n, position))
        for position, group in enumerate(groups)
    ]


def _kernel(group: _FusionGroup, needed: frozenset[str]) -> Kernel:
    outputs = (s.output for s in group.stages if s.output in needed)
    return fused_kernel(group.kernels, group.stages, outputs)
