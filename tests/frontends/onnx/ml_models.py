"""Models of one operator of other domains than ai.onnx, compiled and by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper

import modelcc
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import run_onnxruntime

ML = "ai.onnx.ml"


def ml_model(
    op_type: str,
    operands: Sequence[Array | None],
    domain: str = ML,
    opset: int = 1,
    outputs: int = 1,
    symbolic: bool = False,
    **attributes: Any,
) -> tuple[ModelProto, dict[str, Array]]:
    """A model of one node and its inputs, the first dimension called n if ``symbolic``."""
    names = ["" if o is None else f"x{i}" for i, o in enumerate(operands)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    feeds = {n: o for n, o in zip(names, operands, strict=True) if o is not None}
    inputs = [
        helper.make_tensor_value_info(
            n,
            helper.np_dtype_to_tensor_dtype(o.dtype),
            ("n", *o.shape[1:]) if symbolic else o.shape,
        )
        for n, o in feeds.items()
    ]
    ends = [onnx.ValueInfoProto(name=r) for r in results]
    graph = helper.make_graph([node], "g", inputs, ends)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, opset)]
    model = helper.make_model(graph, opset_imports=sets)
    model.ir_version = 8
    return model, feeds


def assert_compiled_agrees(
    model: ModelProto, feeds: Mapping[str, Array], rtol: float = 1e-5, atol: float = 1e-5
) -> None:
    """Compiled code gives what onnxruntime gives, with equal dtypes and shapes."""
    net = modelcc.compile(model, threads=1, cache=None)
    ours, theirs = net.run(feeds), run_onnxruntime(model, feeds)
    assert list(ours) == list(theirs)
    for name, expected in theirs.items():
        if isinstance(expected, list):
            assert_maps_agree(ours[name], expected)
            continue
        assert ours[name].dtype == expected.dtype, name
        assert ours[name].shape == expected.shape, name
        if expected.dtype == object:
            assert ours[name].tolist() == expected.tolist(), name
        else:
            np.testing.assert_allclose(ours[name], expected, rtol, atol, err_msg=name)


def assert_maps_agree(ours: Any, theirs: Sequence[Mapping[Any, float]]) -> None:
    """Lists of dicts with the same keys and about the same numbers."""
    assert [sorted(row) for row in ours] == [sorted(row) for row in theirs]
    values = [[[row[key] for key in sorted(row)] for row in rows] for rows in (ours, theirs)]
    np.testing.assert_allclose(values[0], values[1], 1e-5, 1e-6)
