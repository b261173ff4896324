"""Kernels of several groups of stages: parts computed together, values passed through cache.

A *group* is a run of stages over one iteration space, of which the first may reduce.  Values that
are read at their own point only stay in registers.  Tensors that a later group reads are *scratch*:
where blocks along the leading axes are independent of each other, groups alternate block by block
and a block's values are a local buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Range, Sym, floordiv, loop_range, mod, product, symbols
from modelcc.ir.loop import Alloc, BindIndex, Buffer, For, IndexOf, Stmt
from modelcc.ir.scalar_tree import reads, transform, walk
from modelcc.ir.tensor import Axis, Linear, Read, Scalar, Stage
from modelcc.ir.types import I64, Layout, TensorType
from modelcc.passes.tensor.register_axes import own_axes, shared_depth, with_axes
from modelcc.passes.tensor.unify_axes import reads_own_point
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.workload import plain_type


@dataclass(frozen=True)
class GroupedStages:
    """``groups`` in order; the stages of a group share their axes.

    ``outer`` axes are not among these, but are symbols of their indices.  ``scratch`` has the types
    of one block of the scratch tensors.
    """

    outer: tuple[Axis, ...]
    groups: tuple[tuple[Stage, ...], ...]
    scratch: Mapping[str, TensorType]

    @property
    def ranges(self) -> dict[str, Range]:
        """Bounds of the outer axes."""
        return {a.name: loop_range(a.extent) for a in self.outer}


def group_stages(kernel: CanonicalKernel) -> GroupedStages | None:
    """``kernel`` in groups; None if no value is shared by several parts of a tensor, and no sum
    is read in parts or combined with others."""
    internal = frozenset(s.output for s in kernel.stages) - frozenset(kernel.outputs)
    tests = (_shares_values, _reads_parts, _combines_sums)
    if not any(has(kernel.stages, internal) for has in tests):
        return None
    runs = _groups(kernel.stages)
    scratch = internal & _handed_on(runs)
    depth = _outer_depth(kernel.stages, scratch)
    outer = kernel.stages[0].axes[:depth] if scratch else ()
    groups = tuple(_on_block(run, outer, scratch, internal) for run in runs)
    plain = {s.output: plain_type(s) for s in kernel.stages} | dict(kernel.internal)
    types = {name: _block_type(plain[name], len(outer)) for name in sorted(scratch)}
    return GroupedStages(outer, groups, types)


def in_blocks(
    grouped: GroupedStages, names: FreshNames, statements: Sequence[Stmt], parallel: bool
) -> list[Stmt]:
    """``statements`` of all groups for every block, with local buffers."""
    if not grouped.outer:
        return list(statements)
    counter = names.fresh("block")
    position: Index = Sym(counter)
    bound: list[Stmt] = []
    for axis in reversed(grouped.outer):
        own = position if axis is grouped.outer[0] else mod(position, axis.extent)
        bound.append(BindIndex(axis.name, IndexOf(own, I64)))
        position = floordiv(position, axis.extent)
    buffers = [
        Alloc(Buffer(name, type_.dtype, type_.physical.size(type_.shape), "local"))
        for name, type_ in grouped.scratch.items()
    ]
    total = product(a.extent for a in grouped.outer)
    body = (*buffers, *bound, *statements)
    return [For(counter, 0, total, body, kind="parallel" if parallel else "serial")]


def _shares_values(stages: Sequence[Stage], internal: frozenset[str]) -> bool:
    """Whether several parts of one tensor are computed from one internal value."""
    writers = Counter(s.output for s in stages)
    parts: dict[str, set[int]] = {}
    for position, stage in reversed(list(enumerate(stages))):
        made = {position} if writers[stage.output] > 1 else parts.get(stage.output, set[int]())
        for read in reads(stage.body):
            parts.setdefault(read.tensor, set()).update(made)
    tensors = {name: Counter(stages[n].output for n in made) for name, made in parts.items()}
    return any(max(tensors[t].values(), default=0) > 1 for t in sorted(internal & tensors.keys()))


def _reads_parts(stages: Sequence[Stage], internal: frozenset[str]) -> bool:
    """Whether a stage reads sums at a constant index along one of their axes."""
    sums = {s.output: s for s in stages if s.reduce and s.output in internal}
    for read in (r for s in stages for r in reads(s.body) if r.tensor in sums):
        writer = sums[read.tensor]
        wide = {Sym(a.name) for a in writer.axes if a.extent != 1}
        pairs = zip(read.indices, writer.write, strict=True)
        if any(isinstance(index, int) and place in wide for index, place in pairs):
            return True
    return False


def _combines_sums(stages: Sequence[Stage], internal: frozenset[str]) -> bool:
    """Whether a stage combines several elements of sums."""
    sums = {s.output for s in stages if s.reduce} & internal
    nodes = (n for s in stages for n in walk(s.body) if isinstance(n, Linear)) if sums else ()
    return any(r.tensor in sums for n in nodes for r in reads(n))


def _groups(stages: Sequence[Stage]) -> list[list[Stage]]:
    arrays = any(isinstance(node, Linear) for s in stages for node in walk(s.body))
    groups: list[list[Stage]] = []
    for stage in stages:
        if not groups or _begins_group(stage, groups[-1], arrays):
            groups.append([])
        groups[-1].append(stage)
    return groups


def _begins_group(stage: Stage, group: Sequence[Stage], arrays: bool) -> bool:
    """Whether ``stage`` begins a group; ``arrays``: some stages may have own axes."""
    depth = shared_depth((*group, stage)) if arrays else None
    extents = [a.extent for a in stage.axes[:depth]]
    if stage.reduce or extents != [a.extent for a in group[0].axes[:depth]]:
        return True
    made = {s.output: s for s in group}
    shared = [r for r in reads(stage.body) if r.tensor in made]
    return not all(_at_own_point(r, stage, made[r.tensor], depth) for r in shared)


def _at_own_point(read: Read, reader: Stage, writer: Stage, depth: int | None) -> bool:
    """Whether ``read`` is at the reader's point of the first ``depth`` axes, or (None) of all."""
    plain = depth is None or writer.write == tuple(Sym(a.name) for a in writer.axes)
    return plain and reads_own_point(read, reader, writer, depth)


def _handed_on(groups: Sequence[Sequence[Stage]]) -> frozenset[str]:
    """Tensors written in several parts, and those that a later group reads."""
    writers = Counter(s.output for group in groups for s in group)
    names = {name for name, count in writers.items() if count > 1}
    made: set[str] = set()
    for group in groups:
        names |= made & {r.tensor for s in group for r in reads(s.body)}
        made |= {s.output for s in group}
    return frozenset(names)


def _outer_depth(stages: Sequence[Stage], scratch: frozenset[str]) -> int:
    """How many leading axes all stages share such that a block uses its own scratch values only.

    Within a block, every operand of a product is still used at several points.
    """
    first = stages[0]
    for depth, axis in enumerate(first.axes):
        for stage in stages:
            if len(stage.axes) <= depth or stage.axes[depth].extent != axis.extent:
                return depth
            places = [r.indices for r in reads(stage.body) if r.tensor in scratch]
            places += [stage.write] if stage.output in scratch else []
            if any(place[depth] != Sym(stage.axes[depth].name) for place in places):
                return depth
            if stage.reduce and not _reused(stage, depth + 1):
                return depth
    return len(first.axes)


def _reused(stage: Stage, depth: int) -> bool:
    """Whether each read is invariant along some axis inside the first ``depth``."""
    moving = [{n for i in r.indices for n in symbols(i)} for r in reads(stage.body)]
    return all(any(a.name not in names for a in stage.axes[depth:]) for names in moving)


def _on_block(
    group: Sequence[Stage],
    outer: tuple[Axis, ...],
    scratch: frozenset[str],
    internal: frozenset[str],
) -> tuple[Stage, ...]:
    """The stages of ``group`` over the axes of its first one, in one block.

    Small arrays passed between them are local to the block, as ``scratch`` tensors are.
    """
    first, shared = group[0], shared_depth(group)
    if shared is None:
        return tuple(_inside(s, first.axes, outer, scratch) for s in group)
    common = first.axes[:shared]
    own = (own_axes(s, first, shared) for s in group)
    local = scratch | (internal & {s.output for s in group})
    return tuple(_inside(s, (*common, *o), outer, local) for s, o in zip(group, own, strict=True))


def _inside(
    stage: Stage, axes: tuple[Axis, ...], outer: tuple[Axis, ...], local: frozenset[str]
) -> Stage:
    """``stage`` over ``axes`` within one block, to which ``local`` tensors belong."""
    depth = len(outer)
    placed = with_axes(stage, (*outer, *axes[depth:]))

    def visit(node: Scalar) -> Scalar:
        if isinstance(node, Read) and node.tensor in local:
            return replace(node, indices=node.indices[depth:])
        return node

    return replace(
        placed,
        axes=placed.axes[depth:],
        write=placed.write[depth:] if stage.output in local else placed.write,
        body=transform(placed.body, visit),
    )


def _block_type(type_: TensorType, depth: int) -> TensorType:
    """``type_`` without its first ``depth`` dimensions."""
    layout = type_.physical
    parts = tuple(replace(p, axis=p.axis - depth) for p in layout.parts if p.axis >= depth)
    return TensorType(
        type_.shape[depth:], type_.dtype, Layout(parts, layout.halo[depth:], layout.fill)
    )
