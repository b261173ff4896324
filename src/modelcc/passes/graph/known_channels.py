"""Channels whose contents do not depend on the input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import Array
from modelcc.ops.broadcast import Reduction, Reshape
from modelcc.ops.gather import Gather
from modelcc.ops.padding import Pad
from modelcc.ops.pool import MaxPool
from modelcc.ops.quant_matmul import ConvInteger
from modelcc.ops.resize import Resize
from modelcc.ops.shape import Concat, Slice, Transpose
from modelcc.passes.graph.channel_groups import ChannelGroups, IntegerProduct, Mask
from modelcc.passes.graph.channel_maps import channel_map, is_depthwise, is_pointwise


@dataclass(frozen=True, eq=False)
class KnownChannels:
    """The channels of ``mask`` along ``axis`` have the contents ``data``, which has no others.

    Its other extents are 1 along axes where elements do not differ.
    """

    mask: Mask
    data: Array
    axis: int

    @property
    def numbers(self) -> Array | None:
        """One number for each known channel; None if elements of a channel differ."""
        is_uniform = self.data.size == self.data.shape[self.axis]
        return self.data.reshape(-1) if is_uniform else None

    def within(self, mask: Mask) -> Array:
        """The data of the channels of ``mask``, which are known."""
        return np.compress(mask[self.mask], self.data, self.axis)


Facts = Mapping[str, KnownChannels]


def known_channels(groups: ChannelGroups) -> dict[str, KnownChannels]:
    """Known channels by values, if any; only products of integers introduce them."""
    found: dict[str, KnownChannels] = {}
    for node in groups.graph.nodes:
        name = node.outputs[0] if node.outputs else ""
        if name not in groups.axes:
            continue
        product = groups.products.get(name)
        known = _summed(groups, product, found) if product else _carried(groups, node, found)
        if known is not None and known.mask.any():
            found[name] = replace(known, data=_narrowed(known.data, known.axis))
    return found


def constant_operands(product: IntegerProduct, x: KnownChannels | None) -> tuple[Mask, Array]:
    """Channels of a product's operand that are one number wherever they are read, its border
    included; and these numbers less the zero point (0 for the other channels)."""
    mask = np.zeros(product.weights.shape[1], bool)
    offsets = np.zeros(product.weights.shape[1], np.int32)
    numbers = None if x is None else x.numbers
    if x is not None and numbers is not None:
        values = np.zeros(len(mask), np.int32)
        values[x.mask] = numbers
        mask = x.mask if product.padding is None else x.mask & (values == product.padding)
        offsets = np.where(mask, values - product.x_zero, 0).astype(np.int32)
    return mask, offsets


def _summed(groups: ChannelGroups, product: IntegerProduct, facts: Facts) -> KnownChannels:
    """Sums of known channels only; those without weights are 0."""
    known, offsets = constant_operands(product, facts.get(product.node.inputs[0]))
    mask = np.asarray(~(product.reads & ~known).any(axis=1))
    sums = np.zeros(mask.sum(), np.int32)
    if mask.any() and offsets.any():
        sums = product.sums[mask] @ offsets
    return _vector(groups, product.node.outputs[0], mask, sums)


def _carried(groups: ChannelGroups, node: Node, facts: Facts) -> KnownChannels | None:
    """The result of an op on known channels of its operands, channel by channel."""
    graph = groups.graph
    if is_pointwise(graph, node):
        return _pointwise(groups, node, facts)
    if is_depthwise(graph, node):
        return _depthwise(groups, node, facts)
    match node.op:
        case MaxPool() | Pad() | Reduction():
            return _by_reference(groups, node, facts)
        case Reshape() | Slice() | Concat() | Transpose() | Resize(mode="nearest"):
            return _moved(groups, node, facts)
        case _:
            return None


def _pointwise(groups: ChannelGroups, node: Node, facts: Facts) -> KnownChannels | None:
    graph, result = groups.graph, node.outputs[0]
    given = [name for name in node.inputs if name and name not in graph.constants]
    if not given or any(name not in facts for name in given):
        return None
    mask = np.logical_and.reduce([facts[name].mask for name in given])
    if not mask.any():
        return None
    axis = groups.axes[result] - graph.types[result].rank
    is_table = isinstance(node.op, Gather)
    operands: list[Array | None] = []
    for operand, name in enumerate(node.inputs):
        if name in facts:
            operands.append(facts[name].within(mask))
        elif name not in graph.constants or (is_table and operand == 0):
            operands.append(graph.constants[name].data if name else None)
        else:
            operands.append(_constants_of(graph.constants[name].data, mask, axis))
    data = np.asarray(node.op.reference(*operands))
    return KnownChannels(mask, data, groups.axes[result])


def _constants_of(data: Array, mask: Mask, axis: int) -> Array:
    """The channels of ``mask`` of a constant that is broadcast; ``axis`` counts from the end."""
    if data.ndim + axis < 0 or data.shape[axis] != len(mask):
        return data
    return np.compress(mask, data, data.ndim + axis)


def _depthwise(groups: ChannelGroups, node: Node, facts: Facts) -> KnownChannels | None:
    """For integers: channels without weights are 0, others depend on a single channel."""
    graph, op = groups.graph, node.op
    constants = [graph.constants.get(name) for name in (*node.inputs[1:], "", "")[:3]]
    w, x_zero, w_zero = (None if c is None else c.data for c in constants)
    if not isinstance(op, ConvInteger) or w is None:
        return None
    shift = np.int32(0) if w_zero is None else w_zero.astype(np.int32).reshape(-1, 1)
    reads = (w.reshape(len(w), -1) != shift).any(axis=1)
    zeros = np.zeros((1, np.sum(~reads), *(1,) * (w.ndim - 2)), np.int32)
    none = KnownChannels(~reads, zeros, 1)
    known = facts.get(node.inputs[0])
    if known is None:
        return none
    padding = op.padding if x_zero is None else int(x_zero.reshape(()))
    seen = _seen(graph, node.inputs[0], op, known, padding, w.shape[2:])
    if seen is None:
        return none
    mask = np.repeat(known.mask, len(w) // len(known.mask))
    own = w_zero if w_zero is None or w_zero.size == 1 else w_zero[mask]
    window, image = seen
    return _joined(KnownChannels(mask, window.reference(image, w[mask], x_zero, own), 1), none)


def _seen(
    graph: Graph, name: str, op: ConvInteger, x: KnownChannels, padding: int, taps: tuple[int, ...]
) -> tuple[ConvInteger, Array] | None:
    """A convolution of the known channels: of one window if all are equal, else of all of them."""
    groups = int(x.mask.sum())
    border = any((*op.pads_before, *op.pads_after))
    if x.numbers is not None and (not border or (x.numbers == padding).all()):
        none, ones = (0,) * len(taps), (1,) * len(taps)
        one = replace(op, pads_before=none, pads_after=none, dilations=ones, groups=groups)
        return one, np.broadcast_to(x.data, (*x.data.shape[:2], *taps))
    extents = [extent for extent in graph.types[name].shape[2:] if isinstance(extent, int)]
    if len(extents) < len(taps):
        return None
    return replace(op, groups=groups), np.broadcast_to(x.data, (*x.data.shape[:2], *extents))


def _by_reference(groups: ChannelGroups, node: Node, facts: Facts) -> KnownChannels | None:
    """Evaluates ops on whole images, if extents are known and sums are exact."""
    known, (name, *_) = facts.get(node.inputs[0]), node.inputs
    type = groups.graph.types[name]
    exact = type.dtype.is_integer or isinstance(node.op, MaxPool | Pad)
    if known is None or not exact:
        return None
    several = isinstance(node.op, Reduction) and 0 in node.op.axes
    start = 0 if several or known.axis == 0 else 1
    shape = [*known.data.shape[:start], *type.shape[start:]]
    shape[known.axis] = known.data.shape[known.axis]
    extents = [extent for extent in shape if isinstance(extent, int)]
    if len(extents) < len(shape):
        return None
    result = np.asarray(node.op.reference(np.broadcast_to(known.data, extents)))
    return KnownChannels(known.mask, result, groups.axes[node.outputs[0]])


def _moved(groups: ChannelGroups, node: Node, facts: Facts) -> KnownChannels | None:
    """Channels of one number each, through data movement."""
    result = node.outputs[0]
    mask, values = np.zeros(groups.size(result), bool), np.zeros(groups.size(result))
    for operand, name in enumerate(node.inputs):
        if name not in groups.axes:  # a run-time operand without channels
            return None
        known = facts.get(name)
        found = channel_map(groups.graph, node, operand, groups.axes[name])
        if found is None or (found.sources is None and len(node.inputs) > 1):
            return None
        if known is None or known.numbers is None:
            continue
        every = np.arange(len(mask))
        sources = every if found.sources is None else found.sources
        targets = every if found.targets is None else found.targets
        own = np.zeros(len(known.mask), known.numbers.dtype)
        own[known.mask] = known.numbers
        values = values.astype(own.dtype)
        mask[targets], values[targets] = known.mask[sources], own[sources]
    return _vector(groups, result, mask, values[mask])


def _vector(groups: ChannelGroups, name: str, mask: Mask, numbers: Array) -> KnownChannels:
    """One number for each channel of ``mask``."""
    shape, axis = [1] * groups.graph.types[name].rank, groups.axes[name]
    shape[axis] = -1
    return KnownChannels(mask, numbers.reshape(shape), axis)


def _joined(one: KnownChannels, other: KnownChannels) -> KnownChannels:
    """The union of known channels, of which the second ones take precedence."""
    mask = one.mask | other.mask
    shape = np.broadcast_shapes(
        *(np.delete(np.asarray(k.data.shape), k.axis).tolist() for k in (one, other))
    )
    extents = [*shape[: one.axis], int(mask.sum()), *shape[one.axis :]]
    data = np.zeros(extents, one.data.dtype)
    for known in (one, other):
        places = (slice(None),) * known.axis, np.flatnonzero(known.mask[mask])
        data[(*places[0], places[1])] = known.data
    return KnownChannels(mask, data, one.axis)


def _narrowed(data: Array, axis: int) -> Array:
    """Reduces axes along which all elements are bitwise equal to extent 1."""
    first = data[tuple(slice(None) if a == axis else slice(0, 1) for a in range(data.ndim))]
    bits = f"u{data.dtype.itemsize}"
    same = np.ascontiguousarray(data).view(bits) == np.ascontiguousarray(first).view(bits)
    return np.ascontiguousarray(first) if same.all() else data
