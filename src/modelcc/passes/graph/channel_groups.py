"""Equivalence classes of channel axes of a graph's values, with their producers and readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import Array
from modelcc.ops.conv import Conv
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger
from modelcc.passes.graph.channel_maps import (
    ChannelMap,
    Places,
    channel_map,
    is_depthwise,
    is_pointwise,
)

Mask: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"


@dataclass(frozen=True, eq=False)
class IntegerProduct:
    """``weights - zero`` of a node by its operand's channels: ``weights`` are [out, in, taps].

    ``axis`` is that of the result's channels.  ``zero`` is one for each row or a scalar; ``x_zero``
    is the operand's, and in a border the operand is ``padding`` (None: there is no border).
    """

    node: Node
    axis: int
    weights: Array
    kernel: tuple[int, ...]
    zero: Array
    x_zero: int
    padding: int | None

    @property
    def reads(self) -> Mask:
        """Mask of channels [out, in] with a non-zero weight."""
        return np.asarray((self.weights != self.zero.reshape(-1, 1, 1)).any(axis=2))

    @property
    def sums(self) -> Array:
        """Weights less their zero point [out, in], summed over taps."""
        every = self.weights.sum(axis=2, dtype=np.int32)
        return np.asarray(every - self.zero.reshape(-1, 1) * self.weights.shape[2], np.int32)

    def layout(self, weights: Array) -> Array:
        """``weights`` [out, in, taps] in the layout of the node's operand."""
        if isinstance(self.node.op, MatMulInteger):
            return np.ascontiguousarray(weights[:, :, 0].T)
        return weights.reshape(*weights.shape[:2], *self.kernel)


def integer_product(graph: Graph, node: Node, axis: int) -> IntegerProduct | None:
    """A product of integers by constants, which mixes all channels; None for any other node."""
    if not isinstance(node.op, ConvInteger | MatMulInteger):
        return None
    w, x_zero, w_zero = (*node.inputs[1:], "", "")[:3]
    if w not in graph.constants or any(n and n not in graph.constants for n in (x_zero, w_zero)):
        return None
    weights = graph.constants[w].data
    given = (graph.constants[n].data if n else np.zeros(()) for n in (x_zero, w_zero))
    zeros = [data.astype(np.int32) for data in given]
    if zeros[0].size != 1 or zeros[1].ndim > 1:
        return None
    number, padding, kernel = int(zeros[0].reshape(())), None, weights.shape[2:]
    if isinstance(node.op, MatMulInteger):
        if weights.ndim != 2:
            return None
        weights = weights.T[:, :, None]
    else:
        if node.op.groups != 1:
            return None
        weights = weights.reshape(*weights.shape[:2], -1)
        if any((*node.op.pads_before, *node.op.pads_after)):
            padding = number if x_zero else node.op.padding
    return IntegerProduct(node, axis, weights, kernel, zeros[1], number, padding)


@dataclass(frozen=True, eq=False)
class Relation:
    """Channel ``sources[k]`` of one value is channel ``targets[k]`` of another."""

    source: str
    target: str
    sources: Places
    targets: Places


@dataclass(frozen=True, eq=False)
class ChannelGroups:
    """Values and the axes of their channels: a group, named by one of its values, has equally many
    channels in each.

    Channels of ``fixed`` groups cannot be removed.  ``products`` read channels of their operands
    according to their weights, and are named by their results.
    """

    graph: Graph
    axes: Mapping[str, int]
    parents: Mapping[str, str]
    fixed: frozenset[str]
    relations: tuple[Relation, ...]
    products: Mapping[str, IntegerProduct]

    def root(self, value: str) -> str:
        """The group of the channels of a value."""
        return _root(self.parents, value)

    def size(self, value: str) -> int:
        """Number of channels of a value."""
        extent = self.graph.types[value].shape[self.axes[value]]
        assert isinstance(extent, int)
        return extent

    @property
    def groups(self) -> dict[str, int]:
        """The groups and their sizes."""
        return {v: self.size(v) for v in self.axes if self.parents[v] == v}


def channel_groups(graph: Graph) -> ChannelGroups:
    """The channels of the results of products with constants."""
    finder = _Finder(graph)
    for node in graph.nodes:
        finder.visit(node)
    return finder.found()


def _root(parents: Mapping[str, str], value: str) -> str:
    while parents[value] != value:
        value = parents[value]
    return value


@dataclass
class _Finder:
    graph: Graph
    axes: dict[str, int] = field(default_factory=dict[str, int])
    parents: dict[str, str] = field(default_factory=dict[str, str])
    fixed: set[str] = field(default_factory=set[str])
    relations: list[Relation] = field(default_factory=list[Relation])
    products: dict[str, IntegerProduct] = field(default_factory=dict[str, IntegerProduct])

    def found(self) -> ChannelGroups:
        """The groups found, with outputs fixed."""
        self.fixed |= {name for name in self.graph.outputs if name in self.axes}
        fixed = frozenset(_root(self.parents, name) for name in self.fixed)
        relations = tuple(self.relations)
        return ChannelGroups(self.graph, self.axes, self.parents, fixed, relations, self.products)

    def visit(self, node: Node) -> None:
        """Assigns channels to the node's results, after its operands."""
        axis = made_axis(self.graph, node)
        product = None if axis is None else integer_product(self.graph, node, axis)
        own = [n for n, name in enumerate(node.inputs) if name in self.axes]
        if axis is not None:
            self._add(node.outputs[0], axis)
            read = self.axes.get(node.inputs[0])
            if product is not None and read in (None, read_axis(self.graph, node)):
                self.products[node.outputs[0]] = product
                return
        elif own and len(node.outputs) == 1 and self._carry(node, own):
            return
        self.fixed |= {node.inputs[n] for n in own}

    def _add(self, value: str, axis: int) -> bool:
        """Adds a group; False if there is only one channel."""
        extent = self.graph.types[value].shape[axis]
        if not isinstance(extent, int) or extent < 2:
            return False
        self.axes[value], self.parents[value] = axis, value
        return True

    def _carry(self, node: Node, own: list[int]) -> bool:
        """Propagates channels of operands to the result; False if the op mixes them."""
        maps = {n: channel_map(self.graph, node, n, self.axes[node.inputs[n]]) for n in own}
        axes = {m.axis for m in maps.values() if m is not None}
        if None in maps.values() or len(axes) != 1:
            return False
        (axis,) = axes
        others = _others(self.graph, node, axis, self.axes)
        for operand, along in others.items():
            if not self._add(node.inputs[operand], along):
                return False
            self.fixed.add(node.inputs[operand])
            maps[operand] = channel_map(self.graph, node, operand, along)
        if not self._add(node.outputs[0], axis):
            return False
        for operand, found in maps.items():
            self._join(node.inputs[operand], node.outputs[0], found)
        return True

    def _join(self, source: str, target: str, found: ChannelMap | None) -> None:
        assert found is not None
        if found.sources is None or found.targets is None:
            self.parents[_root(self.parents, target)] = _root(self.parents, source)
        else:
            self.relations.append(Relation(source, target, found.sources, found.targets))


def made_axis(graph: Graph, node: Node) -> int | None:
    """The channel axis of the result of a product by constants; None for any other node."""
    if not node.inputs or any(n and n not in graph.constants for n in node.inputs[1:]):
        return None
    rank = graph.types[node.outputs[0]].rank
    match node.op:
        case Conv(groups=1) | ConvInteger(groups=1):
            return 1
        case MatMul() | MatMulInteger() | Gemm() if graph.types[node.inputs[1]].rank == 2:
            return rank - 1
        case _:
            return None


def read_axis(graph: Graph, node: Node) -> int:
    """The axis of the operand's channels that a product reads."""
    is_image = isinstance(node.op, Conv | ConvInteger)
    return 1 if is_image else graph.types[node.inputs[0]].rank - 1


def _others(graph: Graph, node: Node, axis: int, axes: Mapping[str, int]) -> dict[int, int]:
    """Run-time operands, whose channels are unknown, and their axes."""
    found: dict[int, int] = {}
    if is_depthwise(graph, node):
        return found
    rank = graph.types[node.outputs[0]].rank
    for operand, name in enumerate(node.inputs):
        if not name or name in axes or name in graph.constants:
            continue
        own = graph.types[name]
        along = axis - (rank - own.rank) if is_pointwise(graph, node) else axis
        if along >= 0 and own.shape[along] != 1:
            found[operand] = along
    return found
