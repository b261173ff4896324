"""Sums of many elements are loops, whatever slides along them: code does not grow with them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import modelcc
from modelcc.driver import NOWHERE, target_of
from modelcc.emit.emission import emit
from tests.machines import chosen_options

HEAD = '<ir_version: 8, opset_import: ["" : 13]>'
CASES = {
    "the greatest of rows": ("float[2, {n}, 4] x", "ReduceMax<axes = [1]>(x)", 500),
    "where the least is": ("float[2, {n}, 4] x", "ArgMin<axis = 1>(x)", 500),
    "averages": ("float[1, 8, 3000] x", "AveragePool<kernel_shape = [{n}]>(x)", 500),
    "windows of a plane": ("float[1, 8, 9, 700] x", "MaxPool<kernel_shape = [3, {n}]>(x)", 90),
    "a filter for each channel": (
        "float[1, 16, 3000] x, float[16, 1, {n}] w", "Conv<group = 16>(x, w)", 500,
    ),
}  # fmt: skip


def model(case: str, n: int) -> onnx.ModelProto:
    inputs, body, _ = CASES[case]
    result = "int64" if "Arg" in body else "float"
    text = f"{HEAD} g ({inputs}) => ({result} y) {{ y = {body} }}".replace("{n}", str(n))
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("case", CASES)
def test_code_does_not_grow(case: str) -> None:
    options, n = chosen_options(threads=1), CASES[case][2]
    one, other = (
        emit(model(case, k), None, "loop", target_of(options), options, NOWHERE).contents
        for k in (n, 2 * n)
    )
    assert max(len(one), len(other)) < 20000, "one statement for each element"


@pytest.mark.parametrize("case", CASES)
def test_results_agree_with_onnxruntime(case: str) -> None:
    proto = model(case, CASES[case][2])
    rng = np.random.default_rng(0)
    feeds = {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32)
        for i in proto.graph.input
    }
    net = modelcc.compile(proto, options=chosen_options(), cache=None)
    peer = onnxruntime.InferenceSession(proto.SerializeToString())
    (wanted,) = map(np.asarray, peer.run(None, feeds))
    np.testing.assert_allclose(np.asarray(net.run(feeds)["y"]), wanted, rtol=1e-4, atol=2e-4)
