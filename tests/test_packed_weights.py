"""Products by blocked weights of few bits, compiled to kernels that read them packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.program import Launch, Program
from modelcc.ir.types import U32, Array
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options

OPTIONS = chosen_options(threads=1)
DOMAINS = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]


def model(nodes: list[Any], rows: int | str, inner: int, constants: list[Any]) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, inner])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=DOMAINS, ir_version=10)


def of_bits(
    bits: int, block: int, rows: int | str, inner: int = 128, columns: int = 96, zeros: bool = True
) -> ModelProto:
    """One MatMulNBits with a bias."""
    rng = np.random.default_rng(0)
    blocks = -(-inner // block)
    scales = rng.uniform(0.01, 0.02, columns * blocks).astype(np.float32)
    operands = {
        "w": rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": scales,
        "z": rng.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8),
        "b": rng.standard_normal(columns).astype(np.float32),
    }
    names = ["x", "w", "s", "z" if zeros else "", "", "b"]
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft",
        K=inner, N=columns, bits=bits, block_size=block,
    )  # fmt: skip
    kept = [numpy_helper.from_array(v, n) for n, v in operands.items() if n in names]
    return model([node], rows, inner, kept)


def of_blocks(code: int, axis: int, rows: int = 3) -> ModelProto:
    """MatMul by a blocked DequantizeLinear, transposed if blocks go along the second axis.

    96 columns are whole panels of one, two and three vectors: none is padded.
    """
    rng = np.random.default_rng(0)
    shape, few = ((64, 96), (2, 96)) if axis == 0 else ((96, 64), (96, 2))
    dtype = helper.tensor_dtype_to_np_dtype(code)
    low, high = (-8, 8) if code == TensorProto.INT4 else (0, 16)
    constants = [
        numpy_helper.from_array(rng.integers(low, high, shape).astype(dtype), "w"),
        numpy_helper.from_array(rng.uniform(0.01, 0.02, few).astype(np.float32), "s"),
        numpy_helper.from_array(rng.integers(low, high, few).astype(dtype), "z"),
    ]
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=axis, block_size=32)]
    if axis == 1:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "d" if axis == 0 else "t"], ["y"]))
    return model(nodes, rows, 64, constants)


def scheduled(net: ModelProto) -> Program:
    stages = before_block(pipeline(target_of(OPTIONS), OPTIONS, BuildConfig()), "loop")
    return run_stages(stages, net)


def assert_agrees(net: ModelProto, rows: int, inner: int) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((rows, inner)).astype(np.float32)}
    (expected,) = run_onnxruntime(net, feeds).values()
    (got,) = modelcc.compile(net, threads=1, cache=None).run(feeds).values()
    assert np.abs(got - expected).max() <= 2e-6 * np.abs(expected).max()


def product(net: ModelProto, x: Array) -> Array:
    """What :func:`of_blocks` means, in f64: onnxruntime rounds its x to 8 bits."""
    w, s, z = (numpy_helper.to_array(t).astype(np.float64) for t in net.graph.initializer)
    axis = 0 if len(w) == 64 else 1
    weights = (w - np.repeat(z, 32, axis)) * np.repeat(s, 32, axis)
    return x @ (weights if axis == 0 else weights.T)


def assert_packed(net: ModelProto, bits: int, elements: int) -> None:
    """One kernel, and no constant that holds the weights in more than their bits."""
    program = scheduled(net)
    assert sum(isinstance(step, Launch) for step in program.steps) == 1
    words = [n for n in program.constants if program.types[n].dtype == U32]
    sizes = {n: c.nbytes for n, c in program.constants.items()}
    assert sum(sizes[n] for n in words) <= elements * bits // 8 * 1.4
    assert max(size for n, size in sizes.items() if n not in words) <= elements // 2


@pytest.mark.parametrize("rows", [1, "n"])
@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 32), (2, 64)])
def test_products_of_few_bits(bits: int, block: int, rows: int | str) -> None:
    net = of_bits(bits, block, rows)
    assert_agrees(net, 5 if rows == "n" else int(rows), 128)
    assert_packed(net, bits, 128 * 96)


def test_without_zero_points() -> None:
    net = of_bits(4, 32, 2, zeros=False)
    assert_agrees(net, 2, 128)
    assert_packed(net, 4, 128 * 96)


def test_a_last_block_that_is_not_whole() -> None:
    """Such weights are decoded when the model is compiled."""
    assert_agrees(of_bits(4, 32, 3, inner=112), 3, 112)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("code", [TensorProto.INT4, TensorProto.UINT4])
def test_blocked_weights_of_the_standard(code: int, axis: int) -> None:
    net = of_blocks(code, axis)
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    got, expected = modelcc.compile(net, threads=1, cache=None)(x), product(net, x)
    assert np.abs(got - expected).max() <= 1e-6 * np.abs(expected).max()
    assert_packed(net, 4, 96 * 64)
