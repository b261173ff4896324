"""Where bytes of any signs are multiplied, operands keep theirs, and what is computed stays."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.types import F32, I8, U8, DType, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.elementwise import Cast
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.passes.graph.canonical_quantization import CanonicalQuantization
from modelcc.passes.graph.integer_contractions import IntegerContractions

BYTES = list(product((U8, I8), (U8, I8), (False, True)))


def quantised(build: GraphBuilder, name: str, dtype: DType, zero: int) -> str:
    """Bytes of floats, and floats of these bytes."""
    numbers = build.constant(0.05), build.constant(np.asarray(zero, dtype.numpy))
    there = build.emit(QuantizeLinear(dtype), name, *numbers)
    return build.emit(DequantizeLinear(), there, *numbers)


def attention_scores(left: DType, right: DType, zeros: bool) -> Graph:
    """A product of two activations, of which each is quantised, with or without zero points."""
    build = GraphBuilder("scores")
    at = {U8: 117, I8: -11 if zeros else 0}
    a, b = build.input("a", TensorType((3, 20), F32)), build.input("b", TensorType((20, 5), F32))
    factors = (quantised(build, name, t, at[t]) for name, t in ((a, left), (b, right)))
    return build.build([build.emit(MatMul(), *factors)])


@pytest.mark.parametrize(("left", "right", "zeros"), BYTES, ids=str)
@pytest.mark.parametrize("signs", [False, True])
def test_products_mean_the_same(left: DType, right: DType, zeros: bool, signs: bool) -> None:
    graph = attention_scores(left, right, zeros)
    found = IntegerContractions(signs=signs)(CanonicalQuantization(signs)(graph))
    verify_graph(found)
    rng = np.random.default_rng(7)
    feeds = {
        v: rng.uniform(-8, 8, n).astype(np.float32) for v, n in (("a", (3, 20)), ("b", (20, 5)))
    }
    (wanted,) = interpret(graph, feeds).values()
    (given,) = interpret(found, feeds).values()
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)
    (node,) = (node for node in found.nodes if isinstance(node.op, MatMulInteger))
    if signs:
        assert len(node.inputs) == 2  # zero points have left the product
        types = [found.types[name].dtype for name in node.inputs]
        assert types == [U8 if dtype == U8 or zeros else I8 for dtype in (left, right)]


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("zero", [0, 9])
def test_symmetric_bytes_stay_signed(signs: bool, zero: int) -> None:
    """So that pads and what relu cuts off are zeros."""
    build = GraphBuilder("bytes")
    real = quantised(build, build.input("x", TensorType((4,), F32)), I8, zero)
    graph = build.build([build.emit(Relu(), real)])
    found = CanonicalQuantization(signs)(graph)
    (node,) = (node for node in found.nodes if isinstance(node.op, DequantizeLinear))
    assert found.types[node.inputs[0]].dtype == (I8 if signs and not zero else U8)


def test_constants_become_signed() -> None:
    """Most of their zero points are 0 then."""
    build = GraphBuilder("weights")
    real = quantised(build, build.input("x", TensorType((3, 8), F32)), U8, 128)
    weights = np.random.default_rng(2).integers(0, 256, (8, 4)).astype(np.uint8)
    numbers = build.constant(0.1), build.constant(np.asarray(128, np.uint8))
    factor = build.emit(DequantizeLinear(), build.constant(weights), *numbers)
    graph = build.build([build.emit(Cast(F32), build.emit(MatMul(), real, factor))])
    found = IntegerContractions(signs=True)(CanonicalQuantization(True)(graph))
    (node,) = (node for node in found.nodes if isinstance(node.op, MatMulInteger))
    assert found.types[node.inputs[1]].dtype == I8
    x = {"x": np.random.default_rng(1).uniform(-5, 5, (3, 8)).astype(np.float32)}
    (wanted,), (given,) = interpret(graph, x).values(), interpret(found, x).values()
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)
