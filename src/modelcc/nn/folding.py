"""Batch norms as part of the convolutions before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import Array
from modelcc.ops.conv import Conv
from modelcc.ops.norm import BatchNorm


def folded_norms(graph: Graph, weights: Mapping[str, Array]) -> tuple[Graph, dict[str, Array]]:
    """The graph without norms of convolutions that nobody else reads, and their new weights.

    A bias is called as the norm's is.  Norms of other values stay.
    """
    found = dict(weights)
    readers = Counter(n for node in graph.nodes for n in node.inputs) + Counter(graph.outputs)
    makers = graph.producers()
    gone: dict[str, Node] = {}
    for node in graph.nodes:
        conv = makers.get(node.inputs[0]) if isinstance(node.op, BatchNorm) else None
        if conv is None or not isinstance(conv.op, Conv) or readers[conv.outputs[0]] > 1:
            continue
        kernel, *bias = conv.inputs[1:]
        own = (kernel, *filter(None, bias), *node.inputs[1:])
        if any(name not in found or readers[name] > 1 for name in own):
            continue
        gone[conv.outputs[0]] = _folded(conv, node, found)
    made = {node.outputs[0] for node in gone.values()}
    nodes = tuple(
        gone.get(node.outputs[0], node)
        for node in graph.nodes
        if not (isinstance(node.op, BatchNorm) and node.outputs[0] in made)
    )
    return replace(graph, nodes=nodes), found


def _folded(conv: Node, norm: Node, weights: dict[str, Array]) -> Node:
    """The convolution that also normalises; ``weights`` become its own."""
    assert isinstance(norm.op, BatchNorm)
    kernel, *bias = conv.inputs[1:]
    scale, shift, mean, var = (weights[name] for name in norm.inputs[1:])
    factor = scale / np.sqrt(var + np.asarray(norm.op.epsilon, var.dtype))
    old = weights[bias[0]] if bias and bias[0] else np.zeros_like(mean)
    weights[kernel] = weights[kernel] * factor.reshape(-1, *(1,) * (weights[kernel].ndim - 1))
    weights[norm.inputs[2]] = (old - mean) * factor + shift
    inputs = (conv.inputs[0], kernel, norm.inputs[2])
    return replace(conv, inputs=inputs, outputs=norm.outputs, source=(*conv.source, *norm.source))
