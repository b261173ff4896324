"""Cross-layer equalisation: channels of consecutive layers get similar ranges, which changes only
rounding.

Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019,
section 4.1: where ``f(s x) = s f(x)`` between two products, outputs of the first are divided by the
factors of inputs of the second, so that both have the range ``sqrt(r1 r2)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import F32, Array
from modelcc.ops.activation import LeakyRelu, Relu
from modelcc.ops.conv import Conv
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.pool import AveragePool, MaxPool

HOMOGENEOUS = (Relu, LeakyRelu, MaxPool, AveragePool)
"""Positively homogeneous ops, per channel."""

ROUNDS, ENOUGH = 20, 1e-3
"""Maximum rounds over all pairs, and the change of a factor at convergence."""


@dataclass(frozen=True)
class _Neighbours:
    """Two products, the first one's result being read by the second alone."""

    first: Node
    second: Node


def equalised(graph: Graph) -> Graph:
    """The graph after equalisation of its convolutions and products with constant weights."""
    pairs = list(_pairs(graph))
    data = {name: constant.data for name, constant in graph.constants.items()}
    for _ in range(ROUNDS):
        if max((_equalise(pair, data) for pair in pairs), default=0.0) < ENOUGH:
            break
    constants = {
        name: constant if data[name] is constant.data else Constant(data[name])
        for name, constant in graph.constants.items()
    }
    return replace(graph, constants=MappingProxyType(constants))


def _pairs(graph: Graph) -> Iterator[_Neighbours]:
    readers = graph.consumers()
    uses = {n: len(nodes) for n, nodes in readers.items()}
    for node in graph.nodes:
        if not _is_product(node, graph, uses):
            continue
        name = node.outputs[0]
        while len(readers.get(name, ())) == 1 and name not in graph.outputs:
            (reader,) = readers[name]
            if _is_product(reader, graph, uses) and reader.inputs[0] == name:
                yield _Neighbours(node, reader)
            if not isinstance(reader.op, HOMOGENEOUS):
                break
            name = reader.outputs[0]


def _is_product(node: Node, graph: Graph, uses: Mapping[str, int]) -> bool:
    """Whether its weights, and its per-output bias, are constants used by it alone."""
    if not isinstance(node.op, Conv | Gemm | MatMul) or graph.types[node.outputs[0]].dtype != F32:
        return False
    constants = [graph.constants.get(name) for name in node.inputs[1:] if name]
    if any(c is None for c in constants) or any(uses[n] > 1 for n in node.inputs[1:] if n):
        return False
    weights, *bias = [c.data for c in constants if c is not None]
    matrix = isinstance(node.op, Conv) or weights.ndim == 2
    return matrix and all(b.size == _outputs(node, weights) for b in bias)


def _outputs(node: Node, weights: Array) -> int:
    return weights.shape[0 if _outputs_first(node) else 1]


def _outputs_first(node: Node) -> bool:
    return isinstance(node.op, Conv) or (isinstance(node.op, Gemm) and node.op.trans_b)


def _grouped(node: Node, weights: Array) -> NDArray[Any]:
    """Weights, or a view of them, as ``[groups, outputs, inputs, kernel]``, outputs and inputs per
    group."""
    groups = node.op.groups if isinstance(node.op, Conv) else 1
    first = weights if _outputs_first(node) else weights.T
    outputs, inputs = first.shape[:2]
    return first.reshape(groups, outputs // groups, inputs, -1)


def _equalise(pair: _Neighbours, data: dict[str, Array]) -> float:
    """Equalises one pair; returns the greatest deviation of a factor from 1."""
    first, second = (_grouped(n, data[n.inputs[1]]) for n in (pair.first, pair.second))
    r1 = np.abs(first).max((2, 3), initial=0.0).reshape(-1)
    r2 = np.abs(second).max((1, 3), initial=0.0).reshape(-1)
    if len(r1) != len(r2):
        return 0.0
    fits = (r1 > 0) & (r2 > 0)
    factor = np.where(fits, np.sqrt(np.where(fits, r1, 1.0) / np.where(fits, r2, 1.0)), 1.0)
    factor = factor.astype(np.float32)
    _replace(pair.first, first / factor.reshape(*first.shape[:2], 1, 1), data)
    _replace(pair.second, second * factor.reshape(second.shape[0], 1, second.shape[2], 1), data)
    for name in pair.first.inputs[2:]:
        if name:
            data[name] = data[name] / factor.reshape(data[name].shape)
    return float(np.abs(factor - 1).max(initial=0.0))


def _replace(node: Node, grouped: NDArray[Any], data: dict[str, Array]) -> None:
    name = node.inputs[1]
    old = data[name]
    turned = not _outputs_first(node)
    flat = grouped.reshape(old.T.shape if turned else old.shape)
    data[name] = np.ascontiguousarray(flat.T if turned else flat, old.dtype)
