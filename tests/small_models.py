"""Small ONNX models for tests of the whole compiler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from modelcc.ir.types import Array


def mlp(batch: int | str = 2) -> ModelProto:
    """``y = relu(x @ w0 + b0) @ w1``, x of 6 features, y of 3."""
    arrays = _mlp_weights()
    nodes = (
        helper.make_node("MatMul", ["x", "w0"], ["h0"], "fc0"),
        helper.make_node("Add", ["h0", "b0"], ["h1"], "bias0"),
        helper.make_node("Relu", ["h1"], ["h2"], "relu0"),
        helper.make_node("MatMul", ["h2", "w1"], ["y"], "fc1"),
    )
    return model(nodes, {"x": (batch, 6)}, {"y": (batch, 3)}, arrays)


def mlp_result(x: Array) -> Array:
    """What :func:`mlp` computes, by NumPy."""
    w0, b0, w1 = _mlp_weights().values()
    return np.maximum(x @ w0 + b0, 0) @ w1


def _mlp_weights() -> dict[str, Array]:
    generator = np.random.default_rng(7)
    shapes = {"w0": (6, 20), "b0": (20,), "w1": (20, 3)}
    return {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def two_outputs() -> ModelProto:
    """``total = a + b``, ``product = a * b`` of vectors of 5."""
    nodes = (
        helper.make_node("Add", ["a", "b"], ["total"], "add"),
        helper.make_node("Mul", ["a", "b"], ["product"], "mul"),
    )
    return model(nodes, {"a": (5,), "b": (5,)}, {"total": (5,), "product": (5,)}, {})


def computed_gather() -> ModelProto:
    """``y = table[i + 1]`` with positions that are computed in the same kernel."""
    generator = np.random.default_rng(3)
    table = generator.standard_normal((40, 3)).astype(np.float32)
    arrays = {"table": table, "one": np.array([1], np.int64)}
    nodes = (
        helper.make_node("Cast", ["x"], ["i"], "cast", to=TensorProto.INT64),
        helper.make_node("Add", ["i", "one"], ["j"], "next"),
        helper.make_node("Gather", ["table", "j"], ["y"], "rows", axis=0),
    )
    return model(nodes, {"x": ("n",)}, {"y": ("n", 3)}, arrays)


def unsupported() -> ModelProto:
    """Two nodes of kinds that there are not."""
    nodes = (
        helper.make_node("NoSuchOp", ["x"], ["h"], "first"),
        helper.make_node("NorThis", ["x"], ["y"], "second"),
    )
    return model(nodes, {"x": (2, 6)}, {"y": (2, 6)}, {})


def model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, tuple[int | str, ...]],
    outputs: dict[str, tuple[int | str, ...]],
    arrays: dict[str, np.ndarray],
) -> ModelProto:
    """A model of f32 tensors, opset 17."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
