"""Maps as inputs, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper

import modelcc
from modelcc.runtime.errors import InputError

KINDS = {str: TensorProto.STRING, int: TensorProto.INT64, float: TensorProto.FLOAT}


def _model(op: str, key: type, value: type, result: type, **attributes: Any) -> ModelProto:
    """``op`` of a map, then Identity."""
    nodes = [
        helper.make_node(op, ["m"], ["t"], domain="ai.onnx.ml", **attributes),
        helper.make_node("Identity", ["t"], ["y"]),
    ]
    map_type = helper.make_map_type_proto(
        KINDS[key], helper.make_tensor_type_proto(KINDS[value], None)
    )
    graph = helper.make_graph(
        nodes, "g", [helper.make_value_info("m", map_type)],
        [helper.make_tensor_value_info("y", KINDS[result], [1, "n"])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


CASES = [
    (
        _model("DictVectorizer", str, float, float, string_vocabulary=["b", "a", "z"]),
        ({"a": 1.5, "b": 2.0}, {"z": -1.0, "q": 9.0}),
    ),
    (
        _model("DictVectorizer", int, float, float, int64_vocabulary=[3, 1]),
        ({1: 0.5}, {3: 2.5, 1: 1.0}),
    ),
    (_model("CastMap", int, float, float, cast_to="TO_FLOAT"), ({4: 1.0, 2: 3.0}, {7: 0.5})),
    (
        _model("CastMap", int, float, float, map_form="SPARSE", max_map=4),
        ({2: 1.0}, {0: 2.0, 3: 4.0}),
    ),
]


@pytest.mark.parametrize(("model", "maps"), CASES)
def test_agrees_with_onnxruntime(model: ModelProto, maps: tuple[Any, ...], tmp_path: Path) -> None:
    modelcc.compile(model, threads=1, cache=None).save(tmp_path / "net.mcc")
    net = modelcc.load(tmp_path / "net.mcc")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for given in maps:
        (expected,) = map(np.asarray, session.run(None, {"m": given}))
        found = net(m=given)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected)


def test_texts_of_a_map_are_read_as_numbers() -> None:
    """onnxruntime's Python interface takes no such maps."""
    model = _model("CastMap", int, str, float, cast_to="TO_FLOAT")
    net = modelcc.compile(model, threads=1, cache=None)
    np.testing.assert_array_equal(net(m={1: "2", 0: "1.5"}), np.array([[1.5, 2]], np.float32))


def test_other_arguments_are_refused() -> None:
    net = modelcc.compile(CASES[0][0], threads=1, cache=None)
    with pytest.raises(InputError, match="a dict is wanted, not a list"):
        net(m=[1.0])
