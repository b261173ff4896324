"""Models of one node, run by onnxruntime and by modelcc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper

import modelcc
from modelcc.ir.types import Array


def one_node(
    op: str,
    shapes: Sequence[Sequence[int | str]],
    arrays: Sequence[Array | None],
    outputs: Sequence[int],
    attributes: Mapping[str, Any],
    opset: int = 18,
) -> ModelProto:
    """``arrays`` are run-time inputs of ``shapes``, None ones absent; ``outputs`` element types."""
    given = [(f"i{k}", a, s) for k, (a, s) in enumerate(zip(arrays, shapes, strict=True))]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        for name, array, shape in given
        if array is not None
    ]
    results = [helper.make_tensor_value_info(f"o{k}", e, None) for k, e in enumerate(outputs)]
    names = [name if array is not None else "" for name, array, _ in given]
    node = helper.make_node(op, names, [r.name for r in results], **attributes)
    graph = helper.make_graph([node], "g", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def by_onnxruntime(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array] | None:
    """The results; None if it refuses the model or the inputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return [np.asarray(result) for result in session.run(None, dict(feeds))]
    except Exception:
        return None


def by_modelcc(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    results = modelcc.compile(model, threads=1, cache=None)(dict(feeds))
    return list(results) if isinstance(results, tuple) else [np.asarray(results)]


def assert_alike(model: ModelProto, feeds: Mapping[str, Array], rtol: float = 1e-4) -> None:
    """What onnxruntime refuses is refused, by a ModelError or RunError; results agree."""
    wanted = by_onnxruntime(model, feeds)
    if wanted is None:
        with pytest.raises((modelcc.ModelError, modelcc.RunError)):
            by_modelcc(model, feeds)
        return
    for found, expected in zip(by_modelcc(model, feeds), wanted, strict=True):
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5)
