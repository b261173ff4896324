"""Gathers and scatters."""

from __future__ import annotations

from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import OnnxWriting
from modelcc.ops.accumulate import accumulator
from modelcc.ops.gather import Gather, GatherSum, OneHot
from modelcc.ops.gather_elements import GatherElements, ScatterElements
from modelcc.ops.gather_nd import GatherND, ScatterND
from modelcc.ops.time_axis import CacheUpdate, ReverseSequence


def gather(at: OnnxWriting, op: Gather) -> OnnxValue:
    return at.node("Gather", at.input(), at.indices(1), axis=op.axis)


def gather_elements(at: OnnxWriting, op: GatherElements) -> OnnxValue:
    return at.node("GatherElements", at.input(), at.indices(1), axis=op.axis)


def gather_nd(at: OnnxWriting, op: GatherND) -> OnnxValue:
    return at.node("GatherND", at.input(), at.indices(1), batch_dims=op.batch_dims)


def scatter_elements(at: OnnxWriting, op: ScatterElements) -> OnnxValue:
    operands = at.input(), at.indices(1), at.input(2)
    return at.node("ScatterElements", *operands, axis=op.axis, reduction=op.reduction)


def scatter_nd(at: OnnxWriting, op: ScatterND) -> OnnxValue:
    """ONNX indexes the first axes."""
    rank, last = at.type().rank, op.axis + op.depth(at.type(1))
    order = [*range(op.axis, last), *range(op.axis), *range(last, rank)]
    operands = at.transpose(at.input(), order), at.indices(1), at.input(2)
    found = at.node("ScatterND", *operands, reduction=op.reduction)
    return at.transpose(found, [order.index(a) for a in range(rank)])


def gather_sum(at: OnnxWriting, op: GatherSum) -> OnnxValue:
    """Scatter-added to zeros, with the axes of indices first."""
    axis, count = op.axis, at.type(1).rank
    first = range(axis, axis + count)
    order = [*first, *range(axis), *range(axis + count, at.type().rank)]
    rest = [*at.shape[:axis], *at.shape[axis + count :]]
    wide = accumulator(at.input().dtype)
    zeros = at.full(0, (op.extent, *rest), wide)
    places = at.node("Unsqueeze", at.indices(1), at.build.ints(-1))
    turned = at.transpose(at.cast(at.input(), wide), order)
    total = at.node("ScatterND", zeros, places, turned, reduction="add")
    total = at.cast(total, at.input().dtype)
    return at.transpose(total, [*range(1, axis + 1), 0, *range(axis + 1, len(rest) + 1)])


def one_hot(at: OnnxWriting, op: OneHot) -> OnnxValue:
    """A scalar is treated as a vector of one element."""
    places, values, line = at.indices(0), at.input(1), at.build.ints(0)
    single = at.type().rank == 0
    if single:
        places = at.node("Unsqueeze", places, line)
    axis = 1 if single else op.axis
    found = at.node("OneHot", places, at.sizes.one(op.depth), values, axis=axis, dtype=values.dtype)
    return at.node("Squeeze", found, line) if single else found


def cache_update(at: OnnxWriting, op: CacheUpdate) -> OnnxValue:
    """Written at ``starts[b] + i``."""
    cache, update = at.input(0), at.input(1)
    shape, rank = at.type(1).shape, at.type(1).rank
    line = [-1 if a == op.axis else 1 for a in range(rank)]
    places = at.node("Reshape", at.count(shape[op.axis]), at.build.ints(*line))
    if at.has(2):
        column = at.build.ints(-1, *(1,) * (rank - 1))
        places = at.node("Add", at.node("Reshape", at.indices(2), column), places)
    if op.circular:
        places = at.node("Mod", places, at.sizes.one(at.shape[op.axis]))
    return at.node("ScatterElements", cache, at.expand(places, shape), update, axis=op.axis)


def reverse_sequence(at: OnnxWriting, op: ReverseSequence) -> OnnxValue:
    """ONNX has batch and time as the first two axes."""
    order = [op.time_axis, op.batch_axis]
    order += [a for a in range(at.type().rank) if a not in order]
    turned = at.transpose(at.input(), order)
    found = at.node("ReverseSequence", turned, at.indices(1), batch_axis=1, time_axis=0)
    return at.transpose(found, [order.index(a) for a in range(len(order))])
