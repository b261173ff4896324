"""Pools with automatic pads, of windows that overlap and of strides that step over elements."""

from __future__ import annotations

from itertools import product as cartesian

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from modelcc.frontends.onnx import import_onnx
from modelcc.ir.graph_interpreter import interpret
from tests.frontends.onnx.onnx_models import floats, run_onnxruntime

MODES = ("SAME_UPPER", "SAME_LOWER")


def _pools(operator: str, mode: str, size: int | str, dilation: int) -> ModelProto:
    """All kernels up to 3 with all strides up to 5, of one axis."""
    places = list(cartesian((1, 2, 3), range(1, 6)))
    graph = helper.make_graph(
        [
            helper.make_node(
                operator,
                ["x"],
                [f"y{kernel}{stride}"],
                auto_pad=mode,
                kernel_shape=[kernel],
                strides=[stride],
                dilations=[dilation],
            )
            for kernel, stride in places
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, size])],
        [helper.make_tensor_value_info(f"y{k}{s}", TensorProto.FLOAT, [1, 2, None])
         for k, s in places],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operator", ["AveragePool", "LpPool"])
def test_onnxruntime_pools_alike(operator: str, mode: str, named: bool) -> None:
    for size in range(1, 10):
        model = _pools(operator, mode, "n" if named else size, 1)
        feeds = {"x": floats(1, 2, size)}
        wanted = run_onnxruntime(model, feeds)
        for name, y in interpret(import_onnx(model), feeds).items():
            message = f"{size} {name}"
            np.testing.assert_allclose(y, wanted[name], rtol=1e-5, atol=1e-6, err_msg=message)


@pytest.mark.parametrize("mode", MODES)
def test_results_are_as_long_as_the_standard_says(mode: str) -> None:
    """onnxruntime's are shorter: it pads for windows without dilations."""
    size, dilation = 8, 2
    x = floats(1, 2, size)
    found = interpret(import_onnx(_pools("MaxPool", mode, size, dilation)), {"x": x})
    for kernel, stride in cartesian((1, 2, 3), range(1, 6)):
        count, reach = -(-size // stride), (kernel - 1) * dilation + 1
        total = (count - 1) * stride + reach - size
        if total < 0:
            continue
        before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        wide = np.pad(x, ((0, 0), (0, 0), (before, total - before)), constant_values=-np.inf)
        taps = [wide[:, :, t * dilation :][:, :, : (count - 1) * stride + 1 : stride]
                for t in range(kernel)]  # fmt: skip
        np.testing.assert_array_equal(found[f"y{kernel}{stride}"], np.max(taps, 0))
