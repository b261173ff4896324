"""Folds channels of constant value into the biases of their readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import Array
from modelcc.ops.elementwise import Add
from modelcc.passes.graph.channel_groups import IntegerProduct, channel_groups
from modelcc.passes.graph.graph_writer import GraphWriter
from modelcc.passes.graph.known_channels import constant_operands, known_channels


@dataclass(frozen=True)
class ConstantChannels:
    """Products of integers do not read channels that are the same for any input.

    A filter without weights makes such a channel, which remains constant through requantization,
    tables, sums with other such channels, pooling and depthwise convolutions.  With a border it
    must equal the border, too, or it is read as before.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xui8>):
          %w = "mcc.constant"() {value = dense<[[0, 1], [0, 2], [0, 3]]> : tensor<3x2xi8>}
          %b = "mcc.constant"() {value = dense<[5, 6]> : tensor<2xi32>}
          %v = "mcc.constant"() {value = dense<[[1, 2], [3, 4]]> : tensor<2x2xi8>}
          %s = "mcc.MatMulInteger"(%x, %w)
          %t = "mcc.Add"(%s, %b)
          %u = "mcc.Clip"(%t) {low = 0.0, high = 255.0}
          %c = "mcc.Cast"(%u) {to = ui8}
          %y = "mcc.MatMulInteger"(%c, %v)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xui8>):
          %w = "mcc.constant"() {value = dense<[[0, 1], [0, 2], [0, 3]]> : tensor<3x2xi8>}
          %b = "mcc.constant"() {value = dense<[5, 6]> : tensor<2xi32>}
          %v = "mcc.constant"() {value = dense<[[0, 0], [3, 4]]> : tensor<2x2xi8>}
          %k = "mcc.constant"() {value = dense<[5, 10]> : tensor<2xi32>}
          %s = "mcc.MatMulInteger"(%x, %w)
          %t = "mcc.Add"(%s, %b)
          %u = "mcc.Clip"(%t) {low = 0.0, high = 255.0}
          %c = "mcc.Cast"(%u) {to = ui8}
          %z = "mcc.MatMulInteger"(%c, %v)
          %y = "mcc.Add"(%z, %k)
          "mcc.return"(%y)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        groups = channel_groups(graph)
        known = known_channels(groups)
        found: dict[str, _Without] = {}
        for name, product in groups.products.items():
            mask, offsets = constant_operands(product, known.get(product.node.inputs[0]))
            if (product.reads & mask).any():
                found[name] = _Without(product, mask, product.sums @ offsets)
        return _rewritten(graph, found) if found else graph


@dataclass(frozen=True, eq=False)
class _Without:
    """A product that does not read the channels of ``mask``, which contribute ``sums``."""

    product: IntegerProduct
    mask: Array
    sums: Array

    @property
    def weights(self) -> Array:
        """Its weights, with those of constant channels set to their zero point."""
        weights, zero = self.product.weights.copy(), self.product.zero
        rows = np.broadcast_to(zero.reshape(-1, 1, 1), weights.shape)
        weights[:, self.mask] = rows[:, self.mask].astype(weights.dtype)
        return self.product.layout(weights)

    def added_to(self, addend: Array, rank: int) -> Array:
        """The sums plus the other addend of a result of ``rank``."""
        sums = self.sums.reshape(-1, *(1,) * (rank - 1 - self.product.axis))
        return np.asarray(addend + sums, np.int32)


def _rewritten(graph: Graph, found: Mapping[str, _Without]) -> Graph:
    writer, readers = GraphWriter(graph), graph.consumers()
    nodes: dict[int, Node] = {id(node): node for node in graph.nodes}
    more: dict[int, Node] = {}
    for result, own in found.items():
        node, rank = own.product.node, graph.types[result].rank
        inputs = (node.inputs[0], writer.constant(own.weights, "weights"), *node.inputs[2:])
        nodes[id(node)] = replace(node, inputs=inputs)
        if not own.sums.any():
            continue
        bias = _bias(graph, result, readers)
        if bias is not None:
            addend = next(name for name in bias.inputs if name != result)
            name = writer.constant(own.added_to(graph.constants[addend].data, rank), addend)
            nodes[id(bias)] = replace(bias, inputs=(result, name))
            continue
        before = writer.value(writer.types[result], result)
        nodes[id(node)] = replace(nodes[id(node)], outputs=(before,))
        sums = writer.constant(own.added_to(np.zeros((), np.int32), rank), "sums")
        more[id(node)] = Node(Add(), (before, sums), (result,), node.source)
    for node in graph.nodes:
        writer.nodes += (n for n in (nodes[id(node)], more.get(id(node))) if n is not None)
    return writer.graph()


def _bias(graph: Graph, name: str, readers: Mapping[str, list[Node]]) -> Node | None:
    """The sum with a constant that is the only reader of ``name``."""
    own = readers.get(name, [])
    if len(own) != 1 or not isinstance(own[0].op, Add) or name in graph.outputs:
        return None
    return own[0] if not graph.constants.keys().isdisjoint(own[0].inputs) else None
