"""Whole models: those shared beside the repository and the light ones of the onnx package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from modelcc.frontends.onnx import import_onnx
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import run_onnxruntime

SHARED = Path(__file__).parents[4] / "shared" / "models"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

MODELS = (
    *("basic_pitch", "dnsmos_p808", "dtln_2", "magika_v3_3", "minilm_l6_int8"),
    *("onnx2c_mnist_cntk", "ppocr_cls_v2", "ppocrv4_det", "ppocrv4_rec", "romanizer_decoder"),
    *("tract_keras_example", "ultraface_rfb_320", "ddddocr_det_yolox"),
)
LIGHT_MODELS = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet"),
    "zfnet512",
)


def shared(name: str) -> Path:
    """Path of a shared model; the test is skipped where it is absent."""
    path = SHARED / "onnx" / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    return path


def recorded_feeds(graph: Graph, name: str) -> dict[str, Array]:
    """Random inputs of the shapes with which the model is known to run."""
    entries = json.loads((SHARED / "index.json").read_text())
    recorded = next(e for e in entries if e["name"] == name)["run_ort"]["feed"]
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for value, (shape, dtype) in recorded.items():
        if value not in graph.inputs:
            continue
        if np.issubdtype(np.dtype(dtype), np.integer):
            feeds[value] = rng.integers(0, 2, shape).astype(dtype)
        else:
            feeds[value] = rng.standard_normal(shape).astype(dtype)
    return feeds


@pytest.mark.parametrize("name", MODELS)
def test_shared_model(name: str) -> None:
    """With symbolic dimensions, to 1e-4 of the largest output, or 1e-6 absolutely."""
    path = shared(name)
    graph = import_onnx(path)
    verify_graph(graph)
    feeds = recorded_feeds(graph, name)
    ours, theirs = interpret(graph, feeds), run_onnxruntime(str(path), feeds)
    assert list(ours) == list(theirs)
    for key, expected in theirs.items():
        tolerance = max(1e-6, 1e-4 * float(np.max(np.abs(expected))))
        np.testing.assert_allclose(ours[key], expected, 0, tolerance, err_msg=key)


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_light_model(name: str) -> None:
    """The expected output is the onnx package's own."""
    graph, feeds = _light(onnx.load(LIGHT / f"light_{name}.onnx"))
    expected = onnx.TensorProto()
    expected.ParseFromString((LIGHT / f"light_{name}_output_0.pb").read_bytes())
    (ours,) = interpret(graph, feeds).values()
    np.testing.assert_allclose(ours, numpy_helper.to_array(expected), 1e-3, 1e-7)


def test_squeezenet_before_its_softmax() -> None:
    """The logits are 9.5e9: a unit in their last place decides what softmax makes of them."""
    model = onnx.load(LIGHT / "light_squeezenet.onnx")
    softmax = model.graph.node.pop()
    assert softmax.op_type == "Softmax"
    model.graph.output[0].name = softmax.input[0]
    graph, feeds = _light(model)
    (ours,), (theirs,) = interpret(graph, feeds).values(), run_onnxruntime(model, feeds).values()
    np.testing.assert_allclose(ours, theirs, 1e-6)


def _light(model: onnx.ModelProto) -> tuple[Graph, dict[str, Array]]:
    """The model, and the input that the onnx package's expected outputs belong to."""
    graph = import_onnx(model)
    verify_graph(graph)
    (name,) = graph.inputs
    shape = graph.types[name].static_shape()
    count = int(np.prod(shape))
    return graph, {name: (np.arange(count).reshape(shape) / count).astype(np.float32)}
