"""Estimates of time: arithmetic or memory, whichever is more; and what they decide."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from modelcc.ir.loop_traversal import parallel_loop
from tests.machines import chosen_options
from tests.planned_functions import planned_functions


def matmul(m: int, k: int, n: int):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])
    w = numpy_helper.from_array(np.ones((k, n), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(
    ("m", "k", "n", "forks"),
    [
        (1, 64, 64, False),  # nothing to do
        (64, 64, 64, False),  # 4 microseconds of arithmetic
        (128, 256, 256, True),  # 130
        (1, 1024, 1024, True),  # 65 of memory, but only 16 of arithmetic
    ],
)
def test_threads_are_started_where_they_pay(m: int, k: int, n: int, forks: bool) -> None:
    functions = planned_functions(matmul(m, k, n), chosen_options())
    assert any(map(parallel_loop, functions)) == forks
