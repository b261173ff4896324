"""Factors moved between layers: the same results, and ranges that are alike."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from modelcc.quantization.equalisation import equalised
from tests.quantization.chains import chain
from tests.quantization.graphs import floats


def uneven(graph: Graph) -> Graph:
    """The first weights have channels of very different ranges."""
    name = graph.nodes[0].inputs[1]
    factors = np.geomspace(1, 1000, 8).astype(np.float32).reshape(8, 1, 1, 1)
    data = graph.constants[name].data * factors
    return replace(graph, constants=MappingProxyType({**graph.constants, name: Constant(data)}))


def ranges(graph: Graph, weights: str) -> Array:
    return np.abs(graph.constants[weights].data).max((1, 2, 3))


def test_results_stay_and_channels_become_alike() -> None:
    graph = uneven(chain())
    even, feeds = equalised(graph), {"x": floats(2, 3, 6, 6)}
    wanted, found = (interpret(g, feeds)["y"] for g in (graph, even))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    first, depthwise, *_ = (n.inputs[1] for n in graph.nodes if len(n.inputs) == 3)
    before, after = ranges(graph, first), ranges(even, first)
    assert after.max() / after.min() < 0.1 * before.max() / before.min()
    np.testing.assert_allclose(after, ranges(even, depthwise), rtol=0.01)  # both have their share
