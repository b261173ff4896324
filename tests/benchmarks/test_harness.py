"""The harness on a small hand-made model, and the zoo's records; torch is not needed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

from benchmarks.compare import Plan, compare, largest_error
from benchmarks.feeds import feeds_for
from benchmarks.machine import Peaks
from benchmarks.results import HEADINGS, Comparison, cells, markdown, to_json
from benchmarks.workload import workload
from benchmarks.zoo.catalogue import MODELS, find
from benchmarks.zoo.records import input_from_json, input_to_json


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Conv 3x3 (2 to 4 channels), flatten, Gemm to 5; symbolic batch."""
    generator = np.random.default_rng(0)
    kernel = generator.normal(size=(4, 2, 3, 3)).astype(np.float32)
    weight = generator.normal(size=(4 * 6 * 6, 5)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["features"], name="conv"),
        helper.make_node("Flatten", ["features"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "weight"], ["y"], name="gemm"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(kernel, "kernel"), numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    target = tmp_path / "tiny.onnx"
    onnx.save(model, str(target))
    return target


def test_workload_counts_convolution_and_gemm(path: Path) -> None:
    work = workload(onnx.load(str(path)), {"x": np.zeros((2, 2, 8, 8), np.float32)})
    assert work.macs == 2 * (4 * 6 * 6 * 2 * 9 + 144 * 5)
    assert work.constant_bytes == 4 * (72 + 720)


def test_comparison_lists_what_ran_and_what_could_not(path: Path) -> None:
    plan = Plan(("onnxruntime", "torch"), "onnxruntime", rounds=2, seconds=0.001, timeout=60)
    ran, failed = compare(plan, path, Peaks(1, 100.0, 10.0), {})
    assert ran.milliseconds is not None and ran.milliseconds > 0
    assert ran.speedup == 1.0 and ran.error == 0.0
    assert ran.peak_bytes is not None and 1 << 20 < ran.peak_bytes < 1 << 30
    assert failed.milliseconds is None and "Error" in failed.reason
    found = Comparison("here", "now", "onnxruntime", {}, (), (ran, failed))
    assert failed.reason in markdown(found)
    assert json.loads(to_json(found))["rows"][0] == asdict(ran)
    assert len(cells(ran)) == len(cells(failed)) == len(HEADINGS)


def test_sizes_override_symbolic_shapes(path: Path) -> None:
    assert feeds_for(path, {})["x"].shape == (1, 2, 8, 8)
    assert feeds_for(path, {"x": (3, 2, 8, 8)})["x"].shape == (3, 2, 8, 8)


def test_error_is_relative_to_the_largest_expected_value() -> None:
    expected = {"y": np.array([0.0, -4.0], np.float32)}
    assert largest_error({"y": np.array([1.0, -4.0], np.float32)}, expected) == 0.25
    assert largest_error({"y": np.array([np.nan, 0.0], np.float32)}, expected) == np.inf
    assert largest_error({"y": np.zeros(3, np.float32)}, expected) == np.inf
    assert largest_error({}, expected) == np.inf


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_feeds_repeat_and_survive_json(model) -> None:
    first, second = model.feeds(seed=3, batch=2), model.feeds(seed=3, batch=2)
    for item in model.inputs:
        assert first[item.name].shape == item.sizes(2)
        assert first[item.name].dtype == item.dtype
        np.testing.assert_array_equal(first[item.name], second[item.name])
        assert input_from_json(input_to_json(item, None)) == item


def test_unknown_model_is_named() -> None:
    with pytest.raises(KeyError, match="no model 'resnet5'"):
        find("resnet5")
