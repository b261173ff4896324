"""Random graphs mean the same after every pass, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_parser import parse_graph
from modelcc.ir.graph_text import constants_by_digest, print_graph
from modelcc.ir.types import F32, TensorType
from modelcc.ops.activation import Clip, Relu
from modelcc.ops.catalog import MCC
from modelcc.ops.elementwise import Abs, Add, Identity, Max, Mul, Neg, Sigmoid, Sub, Tanh
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.shape import Reshape, Transpose
from modelcc.passes.graph.lower_precision import LowerPrecision
from tests.passes.graph.examples import assert_same_meaning
from tests.passes.graph.test_docstrings import PASSES, made

UNARY = (Abs(), Identity(), Neg(), Relu(), Sigmoid(), Tanh(), Clip(-1.0, 1.0))
BINARY = (Add(), Mul(), Sub(), Max())
SHAPES = ((2, 3), (3, 2), (6,), (2, 1, 3), (1, 6))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to 14 nodes on tensors of 6 elements and their means, with 1 to 3 outputs."""
    build = GraphBuilder()
    values = [build.input(f"x{i}", TensorType(draw(st.sampled_from(SHAPES)), F32)) for i in (0, 1)]
    for _ in range(draw(st.integers(1, 14))):
        x = draw(st.sampled_from(values))
        values.append(draw(_step(build, x, values)))
    computed = [n for n in values if not n.startswith("x")]
    outputs = draw(st.lists(st.sampled_from(computed), min_size=1, max_size=3, unique=True))
    return build.build(outputs)


@st.composite
def _step(draw: st.DrawFn, build: GraphBuilder, x: str, values: list[str]) -> str:
    shape = build.type_of(x).static_shape()
    kind = draw(st.sampled_from(["unary", "binary", "constant", "shape", "perm", "mean", "matmul"]))
    if kind == "binary":
        alike = [n for n in values if build.type_of(n) == build.type_of(x)]
        return build.emit(draw(st.sampled_from(BINARY)), x, draw(st.sampled_from(alike)))
    if kind == "constant":
        number = draw(st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0]))
        extents = draw(st.sampled_from([(), (1,), shape[-1:], shape]))
        c = build.constant(np.full(extents, number, np.float32))
        operands = draw(st.sampled_from([(x, c), (c, x)]))
        return build.emit(draw(st.sampled_from(BINARY)), *operands)
    if kind == "shape" and int(np.prod(shape)) == 6:
        return build.emit(Reshape(draw(st.sampled_from(SHAPES))), x)
    if kind == "perm":
        return build.emit(Transpose(tuple(draw(st.permutations(range(len(shape)))))), x)
    if kind == "mean":
        return build.emit(ReduceMean((len(shape) - 1,), True), x)
    if kind == "matmul":
        w = build.constant(np.linspace(-1, 1, shape[-1] * 3, dtype=np.float32).reshape(-1, 3))
        return build.emit(MatMul(), x, w) if len(shape) > 1 else build.emit(Tanh(), x)
    return build.emit(draw(st.sampled_from(UNARY)), x)


EXACT = [step for step in PASSES if step is not LowerPrecision]


@settings(max_examples=60)
@given(graphs(), st.permutations(EXACT))
def test_passes_keep_the_meaning(graph: Graph, order: list[type[Any]]) -> None:
    result = graph
    for step in order:
        result = made(step)(result)
        assert_same_meaning(graph, result, 1e-3)


@settings(max_examples=40)
@given(graphs())
def test_text_reads_back(graph: Graph) -> None:
    text = print_graph(graph)
    assert parse_graph(text, constants_by_digest(graph), (MCC,)) == graph
