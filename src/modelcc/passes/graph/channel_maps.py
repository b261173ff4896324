"""Mappings of an operand's channels to those of the result: slices along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index, product
from modelcc.ir.op import Op
from modelcc.ops.arithmetic import Elementwise
from modelcc.ops.broadcast import Reduction, Reshape, with_axis
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Cast, ClipTensor
from modelcc.ops.gather import Gather
from modelcc.ops.lp_pool import LpPool
from modelcc.ops.padding import Pad
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.quant import Recentre, Saturate
from modelcc.ops.quant_matmul import ConvInteger
from modelcc.ops.resize import Resize
from modelcc.ops.shape import Concat, Slice, Transpose

Places: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"


@dataclass(frozen=True, eq=False)
class ChannelMap:
    """Slice ``targets[k]`` of a result along ``axis`` depends on slice ``sources[k]`` of an operand
    (None: of the same one), and on no other slice of that operand."""

    axis: int
    sources: Places | None = None
    targets: Places | None = None


def channel_map(graph: Graph, node: Node, operand: int, axis: int) -> ChannelMap | None:
    """The mapping of slices of an operand along ``axis`` by ``node``; None if it mixes them."""
    shape = graph.types[node.inputs[operand]].shape
    match node.op:
        case _ if is_pointwise(graph, node):
            return ChannelMap(axis + graph.types[node.outputs[0]].rank - len(shape))
        case Conv() | ConvInteger() if operand == 0 and axis == 1 and is_depthwise(graph, node):
            return _repeated(1, shape[1], graph.types[node.outputs[0]].shape[1], 1)
        case MaxPool() | AveragePool() | LpPool() if axis == 1:
            return ChannelMap(1)
        case Reduction(axes=axes, keepdims=kept) if axis not in axes:
            return ChannelMap(axis if kept else axis - sum(a < axis for a in axes))
        case Transpose(perm=perm):
            return ChannelMap(perm.index(axis))
        case Reshape(shape=new):
            return _reshaped(shape, new, axis)
        case Concat(axis=along) if graph.constants.keys().isdisjoint(node.inputs):
            return ChannelMap(axis) if axis != along else _part(graph, node, operand, axis)
        case Slice() as op:
            return _sliced(op, shape, axis)
        case Pad(before=before, after=after) if before[axis] == after[axis] == 0:
            return ChannelMap(axis)
        case Resize(shape=new, scales=scales, region=()) if new[axis] == shape[axis]:
            return ChannelMap(axis) if scales[axis] in (None, 1) else None
        case _:
            return None


def is_pointwise(graph: Graph, node: Node) -> bool:
    """Whether elements of the result depend on operands' elements at the same index; lookups in a
    constant table count as such."""
    if isinstance(node.op, Gather):
        table = graph.constants.get(node.inputs[0])
        return table is not None and table.data.ndim == 1
    return isinstance(node.op, Elementwise | Cast | ClipTensor | Saturate | Recentre)


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether it is a depthwise convolution by constants."""
    if not isinstance(node.op, Conv | ConvInteger):
        return False
    constant = all(not n or n in graph.constants for n in node.inputs[1:])
    return constant and node.op.groups == graph.types[node.inputs[0]].shape[1] != 1


def resized(op: Op, axis: int, extent: int, start: int) -> Op:
    """``op`` with a result of ``extent`` slices along ``axis``, from ``start`` of the operand
    on if it selects a part."""
    match op:
        case Reshape(shape=shape):
            return Reshape(with_axis(shape, axis, extent))
        case Resize(shape=shape):
            return replace(op, shape=with_axis(shape, axis, extent))
        case Slice(starts=starts, extents=extents, steps=steps):
            return Slice(with_axis(starts, axis, start), with_axis(extents, axis, extent), steps)
        case _:
            return op


def _repeated(axis: int, count: Index, extent: Index, outer: int) -> ChannelMap | None:
    """Slices repeated consecutively as often as there is room, all of that ``outer`` times."""
    if not isinstance(count, int) or not isinstance(extent, int):
        return None
    inner = extent // (count * outer)
    if inner == outer == 1:
        return ChannelMap(axis)
    sources = np.tile(np.repeat(np.arange(count), inner), outer)
    return ChannelMap(axis, sources, np.arange(extent))


def _reshaped(old: Sequence[Index], new: Sequence[Index], axis: int) -> ChannelMap | None:
    """An axis that is unchanged, or becomes part of a merged one."""
    before, count = product(old[:axis]), old[axis]
    for own, extent in enumerate(new):
        first = product(new[:own])
        if first == before and extent == count:
            return ChannelMap(own)
        outer = 1 if first == before else _ratio(before, first)
        if outer is None or not isinstance(count, int) or not isinstance(extent, int):
            continue
        if extent and count and extent % (count * outer) == 0:
            return _repeated(own, count, extent, outer)
    return None


def _ratio(whole: Index, part: Index) -> int | None:
    if isinstance(whole, int) and isinstance(part, int) and part and whole % part == 0:
        return whole // part or None
    return None


def _part(graph: Graph, node: Node, operand: int, axis: int) -> ChannelMap | None:
    extents = [graph.types[name].shape[axis] for name in node.inputs]
    if not all(isinstance(extent, int) for extent in extents):
        return None
    start, count = sum(map(_int, extents[:operand])), _int(extents[operand])
    return ChannelMap(axis, np.arange(count), np.arange(start, start + count))


def _sliced(op: Slice, shape: Sequence[Index], axis: int) -> ChannelMap | None:
    start, extent, step = op.starts[axis], op.extents[axis], op.steps[axis]
    if (start, extent, step) == (0, shape[axis], 1):
        return ChannelMap(axis)
    if not isinstance(start, int) or not isinstance(extent, int) or step != 1:
        return None
    return ChannelMap(axis, np.arange(start, start + extent), np.arange(extent))


def _int(extent: Index) -> int:
    assert isinstance(extent, int)
    return extent
