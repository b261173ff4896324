"""Padded windows over inputs: vectors of channels, since vectors along rows end at every border."""

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import modelcc
from modelcc.ir.loop import Store
from modelcc.ir.loop_traversal import statements
from tests.machines import chosen_options
from tests.planned_functions import planned_functions

onnxruntime = pytest.importorskip("onnxruntime")


def pooling(
    operator: str, shape: tuple[int, ...], kernel: tuple[int, ...], stride: int
) -> ModelProto:
    pads = [k // 2 for k in kernel]
    node = helper.make_node(
        operator, ["x"], ["y"], kernel_shape=kernel, strides=[stride] * len(kernel),
        pads=[*pads, *pads],
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


CASES = [
    ("MaxPool", (1, 16, 9, 11), (3, 3), 1), ("MaxPool", (2, 20, 8, 8), (5, 5), 2),
    ("AveragePool", (1, 32, 7, 9), (3, 3), 1), ("AveragePool", (2, 40, 30), (5,), 1),
    ("MaxPool", (1, 16, 5, 6, 7), (3, 3, 3), 1), ("AveragePool", (1, 3, 9, 9), (3, 3), 1),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pooling_of_inputs(case: tuple[str, tuple[int, ...], tuple[int, ...], int]) -> None:
    model = pooling(*case)
    x = np.random.default_rng(0).standard_normal(case[1]).astype(np.float32)
    wanted = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})[0]
    np.testing.assert_allclose(modelcc.compile(model, cache=None)(x), wanted, rtol=1e-5, atol=1e-6)


def test_no_point_is_computed_alone() -> None:
    functions = planned_functions(pooling(*CASES[0]), chosen_options())
    found = [s for f in functions for s in statements(f.body)]
    assert all(s.value.lanes > 1 for s in found if isinstance(s, Store))
