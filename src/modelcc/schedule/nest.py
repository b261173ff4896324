"""From a stage to a loop nest over flat buffers: split axes, linear offsets, merged loops.

A *nest* is a stage whose logical axes were split where layouts split dimensions, and whose reads
and write are flat element offsets over the resulting loop variables.  All information for a
schedule (what is contiguous along which variable) is a coefficient of an offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod
from typing import TypeAlias

from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    bounds_of,
    ceildiv,
    coefficient,
    loop_range,
    mod,
    simplify,
    substitute,
    symbols,
)
from modelcc.ir.scalar import Combine
from modelcc.ir.scalar_tree import map_indices, map_own_indices, own_indices, reads, transform, walk
from modelcc.ir.tensor import (
    Axis,
    Bind,
    Condition,
    Guard,
    IndexValue,
    Linear,
    Number,
    Read,
    Scalar,
    Stage,
)
from modelcc.ir.tensor_ranges import not_implied_by_border
from modelcc.ir.types import TensorType

Offsets: TypeAlias = dict[tuple[str, tuple[Index, ...]], Index]
"""Flat offset of a tensor's element at logical indices."""


@dataclass(frozen=True)
class LoopVar:
    """A loop variable ``0 … extent-1``.  ``axis`` is the stage axis it stems from, and
    ``axis index = sum of var * multiplier`` over the axis' variables.

    ``ragged`` (vector variables): the logical extent of the axis; the last block may pass it.
    """

    name: str
    extent: Index
    axis: str
    multiplier: int = 1


@dataclass(frozen=True)
class Nest:
    """A stage over loop variables, outermost first; reads have one index, the flat offset.

    Tensors in ``logical`` (kernel-internal values, constants still to be packed) have no offsets:
    their reads keep logical indices, their ``store`` is 0.  ``extents`` holds the logical extent of
    every stage axis.  ``own`` variables, of few points, are unrolled: values that other nests read
    at these are one each.
    """

    output: str
    store: Index
    parallel: tuple[LoopVar, ...]
    reduce: tuple[LoopVar, ...]
    body: Scalar
    combine: Combine | None
    ranges: Bounds
    extents: Mapping[str, Index]
    own: tuple[LoopVar, ...] = ()

    @property
    def points(self) -> int:
        """Points along its own variables."""
        return prod(v.extent for v in self.own if isinstance(v.extent, int))

    @property
    def variables(self) -> tuple[LoopVar, ...]:
        return self.parallel + self.reduce

    def var(self, name: str) -> LoopVar:
        return next(v for v in self.variables if v.name == name)


def is_split(type_: TensorType, dim: int) -> int | None:
    """The block size by which the layout splits ``dim``, or None."""
    blocks = [p.mod for p in type_.physical.parts if p.axis == dim and p.mod is not None]
    return blocks[0] if blocks else None


def _axis_block(index: Index, axis: Axis, dim: int, type_: TensorType) -> int | None:
    """Block of ``dim`` if ``index`` runs along ``axis`` from a multiple of the block."""
    block = is_split(type_, dim)
    if block is None or coefficient(index, axis.name) != 1:
        return None
    return block if mod(substitute(index, {axis.name: 0}), block) == 0 else None


def covers_blocks(indices: Sequence[Index], axis: Axis, type_: TensorType) -> bool:
    """Whether an access at ``indices`` stays in the padding of the layout up to the end of the
    last block of ``axis``, or does not move along it."""
    moving = [(i, d) for d, i in enumerate(indices) if axis.name in symbols(i)]
    blocks = [(_axis_block(i, axis, d, type_), i, d) for i, d in moving]
    return all(b is not None and _ends_blocks(b, i, axis, d, type_) for b, i, d in blocks)


def _ends_blocks(block: int, index: Index, axis: Axis, dim: int, type_: TensorType) -> bool:
    """Whether only padding follows ``axis`` in its last block of ``dim``."""
    return (
        divides(block, axis.extent)
        or substitute(index, {axis.name: axis.extent}) == (type_.shape[dim])
    )


def axis_blocks(stage: Stage, types: Mapping[str, TensorType]) -> dict[str, int]:
    """Stage axis → block by which its loop is split, from the layouts of its tensors.

    A parallel axis that does not fill its last block is split only for an output with the same
    padding: the points past its end are computed as well.
    """
    blocks = _blocks_along(stage.output, stage.write, stage.axes, types)
    for axis in stage.axes:
        if axis.name in blocks and not covers_blocks(stage.write, axis, types[stage.output]):
            del blocks[axis.name]
    whole = tuple(a for a in stage.axes if a.name not in blocks)
    for read in reads(stage.body):
        along = _blocks_along(read.tensor, read.indices, (*whole, *stage.reduce), types)
        for axis in (*whole, *stage.reduce):
            block = along.get(axis.name)
            if block is not None and (axis in stage.reduce or divides(block, axis.extent)):
                blocks.setdefault(axis.name, block)
    return blocks


def divides(block: int, extent: Index) -> bool:
    """Whether ``extent`` is a known multiple of ``block``."""
    return isinstance(extent, int) and extent % block == 0


def _blocks_along(
    tensor: str, indices: Sequence[Index], axes: Sequence[Axis], types: Mapping[str, TensorType]
) -> dict[str, int]:
    type_ = types.get(tensor)
    if type_ is None or type_.layout is None:
        return {}
    blocks: dict[str, int] = {}
    cut = {p.axis for p in type_.physical.parts if p.mod is not None}
    moving = [(dim, index) for dim, index in enumerate(indices) if dim in cut]
    for axis in axes:
        for dim, index in moving:
            block = _axis_block(index, axis, dim, type_)
            if block is not None:
                blocks.setdefault(axis.name, block)
    return blocks


def split_axis(axis: Axis, block: int | None) -> tuple[LoopVar, ...]:
    """One variable, or an outer and an inner one of extent ``block``."""
    if block is None:
        return (LoopVar(axis.name, axis.extent, axis.name),)
    outer = LoopVar(f"{axis.name}o", ceildiv(axis.extent, block), axis.name, block)
    return (outer, LoopVar(f"{axis.name}v", block, axis.name))


def linearise(
    stage: Stage,
    types: Mapping[str, TensorType],
    dims: Bounds,
    logical: frozenset[str],
    blocks: Mapping[str, int],
    offsets: Offsets | None = None,
    depth: int | None = None,
) -> Nest:
    """The nest of ``stage`` with axes split by ``blocks``, parallel loops in output order.

    ``offsets`` collects those of stages with the same parallel axes.  Axes from ``depth`` on are
    private to it.
    """
    split = {a.name: split_axis(a, blocks.get(a.name)) for a in stage.axes + stage.reduce}
    values = {name: _recombine(vs) for name, vs in split.items() if len(vs) > 1}
    ranges = {**dims, **{v.name: loop_range(v.extent) for vs in split.values() for v in vs}}
    ranges |= _bound_symbol_ranges(stage.body)
    axis_ranges = {**dims, **{a.name: loop_range(a.extent) for a in stage.axes + stage.reduce}}
    stage = replace(stage, body=_drop_bordered(stage.body, types, axis_ranges))
    stored = stage.output in types
    offsets = {} if offsets is None else offsets
    store = _offset(stage.output, stage.write, types, values, ranges, offsets) if stored else 0
    body = _flatten(stage.body, types, values, ranges, logical, offsets)
    parallel = tuple(v for a in stage.axes[:depth] for v in split[a.name])
    own = tuple(
        v for a in stage.axes[len(stage.axes) if depth is None else depth :] for v in split[a.name]
    )
    reduce = tuple(v for a in stage.reduce for v in split[a.name])
    extents = {a.name: a.extent for a in stage.axes + stage.reduce}
    return Nest(
        stage.output, store, _by_stride(parallel, store), _blocks_first(reduce), body,
        stage.combine, ranges, extents, own,
    )  # fmt: skip


def _drop_bordered(body: Scalar, types: Mapping[str, TensorType], ranges: Bounds) -> Scalar:
    """``body`` without the guards of reads that stay inside a border of the guards' value."""

    def visit(node: Scalar) -> Scalar:
        match node:
            case Guard(conditions, Read() as read, Number(value=fill)) if read.tensor in types:
                type_ = types[read.tensor]
                if type_.layout is None or type_.layout.fill != fill:
                    return node
                left = not_implied_by_border(conditions, read, type_, ranges)
                return replace(node, conditions=left) if left else read
            case _:
                return node

    return transform(body, visit)


def _recombine(variables: Sequence[LoopVar]) -> Index:
    total: Index = 0
    for v in variables:
        total = total + Sym(v.name) * v.multiplier
    return total


def _bound_symbol_ranges(body: Scalar) -> dict[str, Range]:
    return {s.symbol: Range(0, None) for s in walk(body) if isinstance(s, Bind)}


def _offset(
    tensor: str,
    indices: Sequence[Index],
    types: Mapping[str, TensorType],
    values: Mapping[str, Index],
    ranges: Bounds,
    offsets: Offsets,
) -> Index:
    """The flat offset; indices a constant apart along unsplit dimensions share one."""
    type_ = types[tensor]
    layout, shape = type_.physical, type_.shape
    split = {p.axis for p in layout.parts if p.div != 1 or p.mod is not None}
    moved = [0 if d in split else _constant(i) for d, i in enumerate(indices)]
    base = tuple([i - c for i, c in zip(indices, moved, strict=True)])
    start = offsets.get((tensor, base))
    if start is None:
        where = [simplify(substitute(i, values), ranges) for i in base]
        start = offsets[tensor, base] = simplify(layout.offset(where, shape), ranges)
    if not any(moved):
        return start
    apart = layout.offset(moved, shape) - layout.offset([0] * len(moved), shape)
    return start + (apart if isinstance(apart, int) else simplify(apart, ranges))


def _constant(index: Index) -> int:
    return index if isinstance(index, int) else index.const


def _flatten(
    body: Scalar,
    types: Mapping[str, TensorType],
    values: Mapping[str, Index],
    ranges: Bounds,
    logical: frozenset[str],
    offsets: Offsets,
) -> Scalar:
    def visit(node: Scalar) -> Scalar:
        match node:
            case Read() if node.tensor not in logical:
                offset = _offset(node.tensor, node.indices, types, values, ranges, offsets)
                return Read(node.tensor, (offset,), node.dtype)
            case Read() | IndexValue() | Linear():
                return map_own_indices(node, lambda i: simplify(substitute(i, values), ranges))
            case Guard():
                return _flatten_guard(node, values, ranges)
            case _:
                return node

    return transform(body, visit)


def _flatten_guard(node: Guard, values: Mapping[str, Index], ranges: Bounds) -> Scalar:
    kept: list[Condition] = []
    for condition in node.conditions:
        for c in normal_form(condition):
            left = simplify(substitute(c.left, values), ranges)
            lowest = bounds_of(left, ranges).lo
            if c.comparison != ">=" or lowest is None or lowest < 0:
                kept.append(Condition(left, c.comparison, 0))
    return replace(node, conditions=tuple(kept)) if kept else node.inside


def normal_form(condition: Condition) -> tuple[Condition, ...]:
    """The same condition as ``left >= 0`` where possible."""
    difference = condition.left - condition.right
    match condition.comparison:
        case ">=":
            return (Condition(difference, ">=", 0),)
        case ">":
            return (Condition(difference - 1, ">=", 0),)
        case "<=":
            return (Condition(-difference, ">=", 0),)
        case "<":
            return (Condition(-difference - 1, ">=", 0),)
        case "==" | "!=":
            return (Condition(difference, condition.comparison, 0),)


def _by_stride(variables: tuple[LoopVar, ...], store: Index) -> tuple[LoopVar, ...]:
    """Variables ordered by decreasing stride in the output (stable; symbolic strides first)."""

    def stride(v: LoopVar) -> float:
        c = coefficient(store, v.name)
        return float(c) if isinstance(c, int) else float("inf")

    return tuple(sorted(variables, key=stride, reverse=True))


def _blocks_first(variables: tuple[LoopVar, ...]) -> tuple[LoopVar, ...]:
    """Outer blocks, whole axes, then inner blocks (ci//16, kh, kw, ci%16)."""
    split = {v.axis for v in variables if v.multiplier > 1}
    rank = {v.name: 0 if v.multiplier > 1 else 2 if v.axis in split else 1 for v in variables}
    return tuple(sorted(variables, key=lambda v: rank[v.name]))


def merge_loops(nests: Sequence[Nest], keep: frozenset[str] = frozenset()) -> tuple[Nest, ...]:
    """Merge adjacent parallel loops wherever every access is linear in the fused index.

    All nests share their parallel variables.  Variables in ``keep`` stay separate.
    """
    result = tuple(nests)
    position = 0
    while position + 1 < len(result[0].parallel):
        outer, inner = result[0].parallel[position : position + 2]
        free = outer.name not in keep and inner.name not in keep
        if free and all(_mergeable(n, outer, inner) for n in result):
            result = tuple(_merge(n, outer, inner) for n in result)
        else:
            position += 1
    return result


def merge_terms(nest: Nest) -> Nest:
    """Merge loops of a reduction wherever every access is linear in the fused index, whatever their
    order."""
    for outer, inner in permutations(nest.reduce, 2):
        if _mergeable(nest, outer, inner):
            return merge_terms(_merge(nest, outer, inner))
    return nest


def _mergeable(nest: Nest, outer: LoopVar, inner: LoopVar) -> bool:
    def walks_as_one(index: Index) -> bool:
        a, b = coefficient(index, outer.name), coefficient(index, inner.name)
        return a is not None and b is not None and a == b * inner.extent

    def occurs(index: Index) -> bool:
        return bool({outer.name, inner.name} & symbols(index))

    if not walks_as_one(nest.store):
        return False
    for node in walk(nest.body):
        match node:
            case Read() if len(node.indices) == 1:
                if not walks_as_one(node.indices[0]):
                    return False
            case Bind():
                pass
            case _ if any(map(occurs, own_indices(node))):
                return False
            case _:
                pass
    return True


def _merge(nest: Nest, outer: LoopVar, inner: LoopVar) -> Nest:
    merged = LoopVar(inner.name, outer.extent * inner.extent, inner.axis, inner.multiplier)
    drop = {outer.name: 0}
    parallel, reduce = (
        tuple(merged if v == inner else v for v in variables if v != outer)
        for variables in (nest.parallel, nest.reduce)
    )
    ranges = {k: r for k, r in nest.ranges.items() if k != outer.name}
    ranges[inner.name] = loop_range(merged.extent)
    body = map_indices(nest.body, lambda i: substitute(i, drop))
    store = substitute(nest.store, drop)
    return replace(nest, parallel=parallel, reduce=reduce, ranges=ranges, body=body, store=store)
