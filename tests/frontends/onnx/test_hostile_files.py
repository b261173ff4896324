"""Models that no exporter writes are refused with a reason."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import modelcc

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
IMPORTS = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]


def calling(levels: int, times: int) -> ModelProto:
    """A model that calls functions within each other, each ``times`` times by the next."""

    def body(op: str, domain: str) -> list[NodeProto]:
        names = ["a", *(f"t{n}" for n in range(times - 1)), "b"]
        return [
            helper.make_node(op, [names[n]], [names[n + 1]], domain=domain) for n in range(times)
        ]

    functions: list[FunctionProto] = [
        helper.make_function(
            "f", f"F{n}", ["a"], ["b"], body(f"F{n - 1}", "f") if n else body("Neg", ""), IMPORTS
        )
        for n in range(levels)
    ]
    node = helper.make_node(f"F{levels - 1}", ["x"], ["y"], domain="f")
    graph = helper.make_graph([node], "g", [X], [Y])
    return helper.make_model(graph, opset_imports=IMPORTS, functions=functions, ir_version=10)


def test_functions_that_multiply_are_refused() -> None:
    with pytest.raises(modelcc.ModelError, match="more than 1,048,576 nodes"):
        modelcc.compile(calling(40, 2), threads=1, cache=None)


def test_functions_in_functions_have_a_greatest_depth() -> None:
    x = np.array([1, -2], np.float32)
    np.testing.assert_array_equal(modelcc.compile(calling(100, 1), threads=1, cache=None)(x), -x)
    for levels in (102, 3000):
        with pytest.raises(modelcc.ModelError, match="more than 100 functions"):
            modelcc.compile(calling(levels, 1), threads=1, cache=None)


@pytest.mark.parametrize("indices", [[-1], [0, 1], [[0], [1]]], ids=str)
def test_sparse_indices_must_fit_their_values(indices: list[Any]) -> None:
    tensor = onnx.SparseTensorProto(dims=[2])
    tensor.values.CopyFrom(numpy_helper.from_array(np.array([5], np.float32), "w"))
    tensor.indices.CopyFrom(numpy_helper.from_array(np.array(indices)))
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [X], [Y], sparse_initializer=[tensor])
    model = helper.make_model(graph, opset_imports=IMPORTS[:1], ir_version=10)
    with pytest.raises(modelcc.ModelError, match="sparse indices"):
        modelcc.compile(model, threads=1, cache=None)


@pytest.mark.parametrize(
    ("node", "kind", "message"),
    [
        ("ReduceSum(x, s)", "float[2, 3]", "gives 1,000,000,000 axes of a tensor that has 2"),
        ("Expand(x, s)", "float[2, 3]", "1,000,000,000 numbers say shapes or axes"),
    ],
)
def test_very_many_sizes_are_refused(node: str, kind: str, message: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g ({kind} x, int64[1000000000] s) => (float[] y) {{ y = {node} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(modelcc.ModelError, match=message):
        modelcc.import_model(model)
