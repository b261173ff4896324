"""Removal of unused channels, with the filters that compute them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.builder import infer_types
from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.naming import Names
from modelcc.ir.op import Op
from modelcc.ops.conv import Conv
from modelcc.ops.gather import Gather
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger
from modelcc.passes.graph.channel_groups import ChannelGroups, Mask, channel_groups
from modelcc.passes.graph.channel_maps import channel_map, is_pointwise, resized
from modelcc.passes.graph.dead_code import with_nodes


@dataclass(frozen=True)
class DeadChannels:
    """A channel is dead if all weights that read it are 0, or belong to dead channels.

    It is also removed from ops that compute channel by channel in between: requantization, sums,
    pooling, depthwise convolutions, concatenations, reshapes.  ``block`` is the number of channels
    that a target processes at once: some dead ones are kept to make their number a multiple.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xui8>):
          %w = "mcc.constant"() {value = dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi8>}
          %b = "mcc.constant"() {value = dense<[5, 6]> : tensor<2xi32>}
          %v = "mcc.constant"() {value = dense<[[0, 0], [3, 4]]> : tensor<2x2xi8>}
          %s = "mcc.MatMulInteger"(%x, %w)
          %t = "mcc.Add"(%s, %b)
          %c = "mcc.Cast"(%t) {to = ui8}
          %y = "mcc.MatMulInteger"(%c, %v)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xui8>):
          %w = "mcc.constant"() {value = dense<[[2], [4], [6]]> : tensor<3x1xi8>}
          %b = "mcc.constant"() {value = dense<[6]> : tensor<1xi32>}
          %v = "mcc.constant"() {value = dense<[[3, 4]]> : tensor<1x2xi8>}
          %s = "mcc.MatMulInteger"(%x, %w)
          %t = "mcc.Add"(%s, %b)
          %c = "mcc.Cast"(%t) {to = ui8}
          %y = "mcc.MatMulInteger"(%c, %v)
          "mcc.return"(%y)
        })
    """

    block: int = 1

    def __call__(self, graph: Graph) -> Graph:
        groups = channel_groups(graph)
        if groups.fixed.issuperset(groups.groups):
            return graph
        kept = _kept(groups, self.block)
        if all(mask.all() for mask in kept.values()):
            return graph
        return _Removal(groups, kept).graph()


def _kept(groups: ChannelGroups, block: int) -> dict[str, Mask]:
    """The live channels of each group."""
    needed = {g: np.full(size, g in groups.fixed) for g, size in groups.groups.items()}
    products = groups.products.items()
    reads = {n: p.reads for n, p in products if p.node.inputs[0] in groups.axes}
    _spread(groups, needed, reads)
    while empty := [g for g, mask in needed.items() if not mask.any()]:
        needed[empty[0]][0] = True
        _spread(groups, needed, reads)
    for mask in needed.values():
        _fill(mask, block)
    _spread(groups, needed, {})
    return needed


def _spread(groups: ChannelGroups, needed: dict[str, Mask], reads: Mapping[str, Mask]) -> None:
    """Marks producers of needed channels, until a fixed point."""
    changed = True
    while changed:
        before = sum(int(mask.sum()) for mask in needed.values())
        for relation in groups.relations:
            one, other = (needed[groups.root(n)] for n in (relation.source, relation.target))
            both = one[relation.sources] | other[relation.targets]
            np.logical_or.at(one, relation.sources, both)
            np.logical_or.at(other, relation.targets, both)
        for name, read in reads.items():
            operand = needed[groups.root(groups.products[name].node.inputs[0])]
            rows = needed[groups.root(name)] if name in groups.axes else slice(None)
            operand |= read[rows].any(axis=0)
        changed = before != sum(int(mask.sum()) for mask in needed.values())


def _fill(mask: Mask, block: int) -> None:
    """Keep some dead channels, so that their number is a multiple of ``block``."""
    missing = min(-int(mask.sum()) % block, int((~mask).sum()))
    mask[np.flatnonzero(~mask)[:missing]] = True


@dataclass(frozen=True)
class _Removal:
    """A graph reduced to the channels ``kept`` of each group."""

    groups: ChannelGroups
    kept: Mapping[str, Mask]

    def graph(self) -> Graph:
        """The nodes, with results under their own names."""
        graph = self.groups.graph
        names, constants, types = Names(graph.types), dict(graph.constants), dict(graph.types)
        nodes: list[Node] = []
        for node in graph.nodes:
            new = self._op(node)
            inputs = list(node.inputs)
            for operand, axes in self._constants(node):
                data = graph.constants[inputs[operand]].data
                for axis, mask in axes.items():
                    data = np.compress(mask, data, axis)
                inputs[operand] = names.fresh(inputs[operand])
                constants[inputs[operand]] = Constant(np.ascontiguousarray(data))
                types[inputs[operand]] = constants[inputs[operand]].type
            if new is not node.op or any(types[n] is not graph.types.get(n) for n in inputs if n):
                given = [types[name] if name else None for name in inputs]
                types.update(zip(node.outputs, infer_types(new, given, *node.source), strict=True))
                node = Node(new, tuple(inputs), node.outputs, node.source)
            nodes.append(node)
        return with_nodes(replace(graph, types=types, constants=constants), tuple(nodes))

    def _kept(self, name: str) -> Mask:
        return self.kept[self.groups.root(name)]

    def _mask(self, name: str) -> Mask | None:
        """Mask of a value's channels, if some are removed."""
        if name not in self.groups.axes:
            return None
        mask = self._kept(name)
        return None if mask.all() else mask

    def _op(self, node: Node) -> Op:
        groups, result = self.groups, node.outputs[0] if node.outputs else ""
        own = node.inputs[0] if node.inputs else ""
        mask = self._mask(own)
        if isinstance(node.op, Conv | ConvInteger) and mask is not None and node.op.groups > 1:
            return replace(node.op, groups=int(mask.sum()))
        if result not in groups.axes or own not in groups.axes:
            return node.op
        found = channel_map(groups.graph, node, 0, groups.axes[own])
        if found is None or (mask is None and self._mask(result) is None):
            return node.op
        first = 0 if found.sources is None else int(found.sources[0])
        start = first if mask is None else int(mask[:first].sum())
        return resized(node.op, groups.axes[result], int(self._kept(result).sum()), start)

    def _constants(self, node: Node) -> Iterator[tuple[int, dict[int, Mask]]]:
        """Operands with removed slices, and masks of the others by axes."""
        constants = self.groups.graph.constants
        for operand, name in enumerate(node.inputs):
            if name in constants:
                axes = dict(self._axes(node, operand, constants[name].data.shape))
                found = {axis: mask for axis, mask in axes.items() if mask is not None}
                if found:
                    yield operand, found

    def _axes(
        self, node: Node, operand: int, shape: tuple[int, ...]
    ) -> Iterator[tuple[int, Mask | None]]:
        groups, result = self.groups, node.outputs[0]
        made = self._mask(result)
        read = self._mask(node.inputs[0]) if result in groups.products else None
        is_vector = made is not None and shape[-1:] == (len(made),)
        match node.op:
            case Conv() | ConvInteger() if operand == 1:
                yield from ((0, made), (1, read))
            case MatMul() | MatMulInteger() if operand == 1:
                yield from ((0, read), (1, made))
            case Gemm(trans_b=turned) if operand == 1:
                yield 0 if turned else 1, made
            case MatMulInteger() if operand == 2:
                return
            case Conv() | ConvInteger() | Gemm() | MatMulInteger():
                yield len(shape) - 1, made if is_vector else None
            case _ if is_pointwise(groups.graph, node) and not isinstance(node.op, Gather):
                axis = len(shape) - groups.graph.types[result].rank + groups.axes.get(result, 0)
                if made is not None and axis >= 0 and shape[axis] == len(made):
                    yield axis, made
            case _:
                return
