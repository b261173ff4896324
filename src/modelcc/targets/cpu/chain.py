"""Kernels of several phases: parts computed together, values handed on through cache.

A *phase* is a run of stages over one iteration space.  Values that only their own point reads stay
in registers.  Tensors that a later phase reads are *kept*: where blocks along the leading axes are
independent of each other, phases alternate block by block and a block's values are a local buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Range, Sym, floordiv, loop_range, mod, product, substitute
from modelcc.ir.loop import Alloc, BindIndex, Buffer, For, IndexOf, Stmt
from modelcc.ir.scalar_tree import reads, substitute_indices, transform
from modelcc.ir.tensor import Axis, Read, Scalar, Stage
from modelcc.ir.types import I64, Layout, TensorType
from modelcc.targets.cpu.canonical import CanonicalKernel
from modelcc.targets.cpu.expression import Names


@dataclass(frozen=True)
class Chain:
    """``phases`` in order; the stages of a phase share their axes.

    ``outer`` axes are not among these, but are symbols of their indices.  ``kept`` has the types
    of one block of what is handed on.
    """

    outer: tuple[Axis, ...]
    phases: tuple[tuple[Stage, ...], ...]
    kept: Mapping[str, TensorType]

    @property
    def ranges(self) -> dict[str, Range]:
        """Bounds of the outer axes."""
        return {a.name: loop_range(a.extent) for a in self.outer}


def find_chain(kernel: CanonicalKernel) -> Chain | None:
    """``kernel`` in phases; None if no value is shared by several parts of a tensor."""
    internal = frozenset(s.output for s in kernel.stages) - frozenset(kernel.outputs)
    if not _shares_values(kernel.stages, internal):
        return None
    writers = Counter(s.output for s in kernel.stages)
    reduced = {s.output for s in kernel.stages if s.reduce}
    kept = frozenset(t for t in internal if writers[t] > 1 or t in reduced)
    depth = _outer_depth(kernel.stages, kept)
    outer = kernel.stages[0].axes[:depth] if kept else ()
    phases = tuple(
        tuple(_inside(s, phase[0], outer, kept) for s in phase)
        for phase in _phases(kernel.stages, kept)
    )
    known = dict(kernel.internal)
    types = {name: _block_type(known[name], len(outer)) for name in sorted(kept)}
    return Chain(outer, phases, types)


def in_blocks(chain: Chain, names: Names, statements: Sequence[Stmt]) -> list[Stmt]:
    """``statements`` of all phases for every block, in parallel, with local buffers."""
    if not chain.outer:
        return list(statements)
    counter = names.fresh("block")
    position: Index = Sym(counter)
    bound: list[Stmt] = []
    for axis in reversed(chain.outer):
        own = position if axis is chain.outer[0] else mod(position, axis.extent)
        bound.append(BindIndex(axis.name, IndexOf(own, I64)))
        position = floordiv(position, axis.extent)
    buffers = [
        Alloc(Buffer(name, type_.dtype, type_.physical.size(type_.shape), "local"))
        for name, type_ in chain.kept.items()
    ]
    total = product(a.extent for a in chain.outer)
    body = (*buffers, *bound, *statements)
    return [For(counter, 0, total, body, kind="parallel")]


def _shares_values(stages: Sequence[Stage], internal: frozenset[str]) -> bool:
    """Whether several parts of one tensor are made from one internal value."""
    writers = Counter(s.output for s in stages)
    parts: dict[str, set[int]] = {}
    for position, stage in reversed(list(enumerate(stages))):
        made = {position} if writers[stage.output] > 1 else parts.get(stage.output, set[int]())
        for read in reads(stage.body):
            parts.setdefault(read.tensor, set()).update(made)
    tensors = {name: Counter(stages[n].output for n in made) for name, made in parts.items()}
    return any(max(tensors[t].values(), default=0) > 1 for t in sorted(internal & tensors.keys()))


def _phases(stages: Sequence[Stage], kept: frozenset[str]) -> list[list[Stage]]:
    phases: list[list[Stage]] = []
    for stage in stages:
        if not phases or _begins_phase(stage, phases[-1], kept):
            phases.append([])
        phases[-1].append(stage)
    return phases


def _begins_phase(stage: Stage, phase: Sequence[Stage], kept: frozenset[str]) -> bool:
    other_space = [a.extent for a in stage.axes] != [a.extent for a in phase[0].axes]
    handed_on = kept & {s.output for s in phase} & {r.tensor for r in reads(stage.body)}
    return bool(stage.reduce or phase[0].reduce or other_space or handed_on)


def _outer_depth(stages: Sequence[Stage], kept: frozenset[str]) -> int:
    """How many leading axes all stages share such that a block uses its own kept values only."""
    first = stages[0]
    for depth, axis in enumerate(first.axes):
        for stage in stages:
            if len(stage.axes) <= depth or stage.axes[depth].extent != axis.extent:
                return depth
            places = [r.indices for r in reads(stage.body) if r.tensor in kept]
            places += [stage.write] if stage.output in kept else []
            if any(place[depth] != Sym(stage.axes[depth].name) for place in places):
                return depth
    return len(first.axes)


def _inside(stage: Stage, first: Stage, outer: tuple[Axis, ...], kept: frozenset[str]) -> Stage:
    """``stage`` over the axes of its phase's ``first``, in one block."""
    depth = len(outer)
    target = (*outer, *first.axes[depth:])
    values: dict[str, Index] = {
        a.name: Sym(b.name) for a, b in zip(stage.axes, target, strict=True) if a.name != b.name
    }

    def visit(node: Scalar) -> Scalar:
        if isinstance(node, Read) and node.tensor in kept:
            return replace(node, indices=node.indices[depth:])
        return node

    write = tuple(substitute(i, values) for i in stage.write)
    return replace(
        stage,
        axes=first.axes[depth:],
        write=write[depth:] if stage.output in kept else write,
        body=transform(substitute_indices(stage.body, values), visit),
    )


def _block_type(type_: TensorType, depth: int) -> TensorType:
    """``type_`` without its first ``depth`` dimensions."""
    layout = type_.physical
    parts = tuple(replace(p, axis=p.axis - depth) for p in layout.parts if p.axis >= depth)
    return TensorType(
        type_.shape[depth:], type_.dtype, Layout(parts, layout.halo[depth:], layout.fill)
    )
