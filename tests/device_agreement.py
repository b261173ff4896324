"""What models on any device have to compute."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import TensorType, dtype_of
from modelcc.ops.elementwise import Add, Mul
from tests.test_control_flow import assert_same, example

WIDTHS = (np.float16, ml_dtypes.bfloat16, np.float64, np.int64, np.int8, np.uint8)
"""Elements that a model may have."""


def check_control_flow(graph: Graph, target: str) -> None:
    """Branches and loops as the interpreter runs them, at two batches by one program."""
    net = modelcc.compile(graph, target=target, threads=1, cache=None)
    for batch in (1, 3):
        arrays = example(batch)
        got, wanted = net.run(arrays), interpret(graph, arrays)
        for name in graph.outputs:
            assert_same(got[name], wanted[name], f"{name} at batch {batch}")


def check_elements(dtype: type, target: str) -> None:
    """As the interpreter rounds them; 16-bit floats are computed in 32 bits."""
    build = GraphBuilder("widths")
    found = dtype_of(np.zeros(1, dtype))
    for name in "xy":
        build.input(name, TensorType((5, 3), found))
    (product,) = build.add(Mul(), "x", "y")
    graph = build.build(list(build.add(Add(), product, "x")))
    net = modelcc.compile(graph, target=target, cache=None)
    values = np.arange(15).reshape(5, 3)
    feeds = {"x": (values % 7).astype(dtype), "y": (values % 5 + 1).astype(dtype)}
    (name,) = graph.outputs
    got, wanted = net.run(feeds)[name], interpret(graph, feeds)[name]
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
