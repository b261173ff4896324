"""Graphs that are declared: named dimensions, text, and what onnxruntime makes of their ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import modelcc
from modelcc.ir.errors import ModelError
from modelcc.ir.graph_parser import parse_graph
from modelcc.ops.registry import dialects


def double() -> modelcc.Graph:
    graph = modelcc.Graph("double", dims={"batch": (1, 8)})
    x = graph.input("x", ("batch", 3))
    graph.output((x * 2).sum(axis=1), "y")
    return graph


def test_one_compile_serves_all_sizes_within_the_bounds() -> None:
    net = double().compile(cache=None)
    for batch in (1, 5, 8):
        x = np.random.default_rng(batch).normal(size=(batch, 3)).astype(np.float32)
        np.testing.assert_allclose(net(x), 2 * x.sum(1), 1e-5)
    with pytest.raises(modelcc.InputError, match="batch"):
        net(np.zeros((9, 3), np.float32))


def test_the_text_is_read_back() -> None:
    graph = double()
    assert parse_graph(graph.text(), {}, dialects()) == graph.graph


def test_onnxruntime_runs_it(tmp_path: Path) -> None:
    (path,) = double().export_onnx(tmp_path / "double.onnx")
    session: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 2 * x.sum(1))


def test_names_are_taken_once() -> None:
    graph = double()
    with pytest.raises(ModelError, match="input 'x'"):
        graph.input("x", (1,))
    with pytest.raises(ModelError, match="value 'y'"):
        graph.output(graph.inputs["x"], "y")
    with pytest.raises(ModelError, match="no outputs"):
        modelcc.Graph("empty").compile()
