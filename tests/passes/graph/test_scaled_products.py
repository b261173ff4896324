"""Products of floats of 8 bits: scaled behind the sum where machines multiply these."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.driver import compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import F8E4M3FN, F8E5M2, F32, DType, TensorType
from modelcc.ops.generate import Iota
from modelcc.ops.matmul import Gemm
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.passes.graph.scaled_products import ScaledProducts
from modelcc.runtime.devices.device_parts import CODE
from modelcc.runtime.streams.cuda_code import machine_code
from modelcc.targets.cuda.tools import disassemble, find_tool
from tests.machines import chosen_options


def linear(dtype: DType) -> Graph:
    """A layer on floats of 8 bits, as ONNX tells it: a scale for x, one for the weights."""
    rng = np.random.default_rng(2)
    build = GraphBuilder()
    x = build.input("x", TensorType((64, 128), F32))
    scale, other = build.constant(0.05), build.constant(np.full(1, 0.25, np.float32))
    given = build.emit(QuantizeLinear(dtype, 1, 0), x, scale)
    weights = build.constant(rng.standard_normal((32, 128)).astype(dtype.numpy))
    factors = [
        build.emit(DequantizeLinear(1, 0), given, scale),
        build.emit(DequantizeLinear(1, 0), weights, other),
    ]
    bias = build.constant(rng.standard_normal(32).astype(np.float32))
    return build.build([build.emit(Gemm(trans_b=True), *factors, bias)])


@pytest.mark.parametrize("dtype", [F8E4M3FN, F8E5M2], ids=str)
def test_the_same_is_computed(dtype: DType) -> None:
    """By the product of 8 bits, and by a processor, whose packed weights are f32."""
    graph = linear(dtype)
    scaled = ScaledProducts()(graph)
    assert not any(isinstance(node.op, DequantizeLinear) for node in scaled.nodes)
    feeds = {"x": np.random.default_rng(3).standard_normal((64, 128)).astype(np.float32)}
    compiled = compile_model(graph, chosen_options())
    assert not any(c.dtype == dtype for c in compiled.artifact.manifest.constants)
    (want,) = interpret(graph, feeds).values()
    for got in (interpret(scaled, feeds), compiled.target.load(compiled.artifact, 1).run(feeds)):
        (result,) = got.values()
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


def test_nodes_without_operands_stay() -> None:
    build = GraphBuilder()
    graph = build.build(build.add(Iota((3,))))
    assert ScaledProducts()(graph) == graph


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
def test_tensor_cores_multiply_them() -> None:
    artifact = compile_model(linear(F8E4M3FN), chosen_options(target="cuda:sm_89")).artifact
    assert "QMMA.16832.F32.E4M3.E4M3" in disassemble(machine_code(artifact.objects[CODE]))
