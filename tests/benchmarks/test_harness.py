"""The harness on a small hand-made model, and the zoo's records; torch is not needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

pytest.importorskip("onnxruntime")
pytest.importorskip("matplotlib")

import modelcc
from benchmarks.compilation import Compilation, compile_apart
from benchmarks.feeds import feeds_for
from benchmarks.machine import Peaks
from benchmarks.peers import COMPILED
from benchmarks.plot import draw
from benchmarks.results import HEADINGS, Comparison, cells, from_json, markdown, to_json
from benchmarks.rows import Row
from benchmarks.side_by_side import Plan, compare, largest_error
from benchmarks.summary import means, standings, summary_lines
from benchmarks.workload import workload
from benchmarks.zoo.catalogue import MODELS, QUICK, STANDARD, find, variant
from benchmarks.zoo.records import Model, input_from_json, input_to_json


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


def test_tables_that_rows_are_taken_from_are_not_read_as_a_whole() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (int64[2] i) => (float[2, 5] y) <float[9, 4] table, float[4, 5] w> {
            x = Gather(table, i)
            y = MatMul(x, w)
        }""")
    arrays = {"table": np.ones((9, 4), np.float32), "w": np.ones((4, 5), np.float32)}
    kept = [numpy_helper.from_array(a, name) for name, a in arrays.items()]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    work = workload(model, {"i": np.zeros(2, np.int64)})
    assert (work.macs, work.constant_bytes) == (2 * 4 * 5, 4 * 20)


def test_comparison_lists_what_ran_and_what_could_not(path: Path) -> None:
    plan = Plan(("onnxruntime", "torch"), "onnxruntime", rounds=2, seconds=0.001, timeout=600)
    ran, failed = compare(plan, path, Peaks(1, 100.0, 10.0), {})
    assert ran.milliseconds is not None and ran.milliseconds > 0
    assert ran.speedup == 1.0 and ran.error == 0.0
    assert ran.peak_bytes is not None and 1 << 20 < ran.peak_bytes < 1 << 30
    assert failed.milliseconds is None and "Error" in failed.reason
    found = Comparison("here", "now", "onnxruntime", {}, (), (ran, failed))
    assert failed.reason in markdown(found)
    assert from_json(json.loads(to_json(found))) == found
    assert len(cells(ran)) == len(cells(failed)) == len(HEADINGS)


def test_modelcc_is_compiled_apart_and_agrees(path: Path, tmp_path: Path) -> None:
    plan = Plan(("modelcc", "onnxruntime"), "onnxruntime", 2, 0.001, 600, tmp_path / "lock")
    ours, theirs = compare(plan, path, Peaks(1, 100.0, 10.0), {})
    assert not ours.reason
    assert ours.error is not None and ours.error < 1e-5
    assert ours.compile_seconds is not None and ours.cached_seconds is not None
    assert ours.cached_seconds > 0 and ours.compile_seconds > 0
    assert theirs.compile_seconds is None
    assert len(ours.rounds) == len(theirs.rounds) == 2


def test_strict_is_compiled_without_fast_algorithms(tmp_path: Path) -> None:
    """The two rows are of different code: a convolution that Winograd's algorithm would compute."""
    w = np.random.default_rng(0).normal(size=(64, 64, 3, 3)).astype(np.float32) / 24
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, 56, 56]) for name in "xy"
    )
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    opsets = [helper.make_opsetid("", 17)]
    model = tmp_path / "conv.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(model))
    found: dict[str, bool] = {}
    for peer, accuracy in COMPILED.items():
        out = tmp_path / f"{peer}.mcc"
        assert isinstance(compile_apart(model, 1, out, 60, accuracy), Compilation)
        found[peer] = bool(modelcc.load(out, threads=1).report().rounding)
    assert found == {"modelcc": True, "modelcc-strict": False}
    ours, strict, _ = compare(
        Plan(("modelcc", "modelcc-strict", "onnxruntime"), "onnxruntime", 2, 0.001, 600),
        model,
        Peaks(1, 100.0, 10.0),
        {},
    )
    assert strict.rounds and strict.compile_seconds is not None
    assert ours.error is not None and strict.error is not None and strict.error != ours.error


def row(model: str, peer: str, milliseconds: float, peak_bytes: int = 1 << 20) -> Row:
    return Row(model, 1, peer, milliseconds, rounds=(milliseconds,) * 3, peak_bytes=peak_bytes)


def test_standing_is_against_the_fastest_that_keeps_precision() -> None:
    rows = (
        row("a", "modelcc", 2.0, 3 << 20),
        row("a", "onnxruntime", 4.0, 4 << 20),
        row("a", "openvino", 3.0, 6 << 20),
        row("a", "openvino-default", 1.0, 1 << 20),
        row("mlp_b8", "modelcc", 1.0),
        row("mlp_b8", "openvino", 6.0),
        row("b", "modelcc", 1.0),
        Row("b", 1, "openvino", reason="cannot"),
        row("efficientnet_b0", "modelcc", 1.0),
        row("efficientnet_b0", "openvino", 6.0),
    )
    found = standings(rows)
    assert [one.ours.model for one in found] == ["a", "mlp_b8", "efficientnet_b0"]
    assert (found[0].best.peer, found[0].faster, found[0].memory) == ("openvino", 1.5, 0.75)
    assert means(found) == {(1, 1): pytest.approx(3.0), (1, 8): pytest.approx(6.0)}


def test_tables_show_strict_beside_ours() -> None:
    """It is no other engine: the best is one of the others, and it has a mean of its own."""
    rows = (
        replace(row("a", "modelcc", 2.0), error=2e-6),
        replace(row("a", "modelcc-strict", 2.5), error=1e-6),
        row("a", "onnxruntime", 5.0),
        row("mlp_b8", "modelcc", 1.0),
        row("mlp_b8", "openvino", 6.0),
    )
    found = standings(rows)
    assert (found[0].best.peer, found[0].faster, found[0].strict_faster) == ("onnxruntime", 2.5, 2)
    assert found[1].strict is None and found[1].strict_faster is None
    assert means(found, strict=True) == {(1, 1): pytest.approx(2.0)}
    headings, _, line, *_ = summary_lines(rows)[2:]
    cell = dict(zip(headings.split(" | "), line.split(" | "), strict=True))
    assert (cell["modelcc ms"], cell["strict ms"], cell["best peer ms"]) == ("2", "2.5", "5")
    assert (cell["× faster"], cell["strict × faster"]) == ("**2.50**", "**2.00**")
    assert (cell["max error"], cell["strict error"]) == ("2.0e-06", "1.0e-06")
    text = "\n".join(summary_lines(rows))
    assert "batch 1 on 1 core(s): 2.500, strict 2.000." in text
    assert "batch 8 on 1 core(s): 6.000." in text


def test_plot_shows_every_engine_but_ours(tmp_path: Path) -> None:
    rows = (row("a", "modelcc", 2.0), row("a", "openvino", 3.0))
    draw(Comparison("here", "now", "openvino", {}, (Peaks(1, 1.0, 1.0),), rows), tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    assert (
        "openvino" in text
        and "strict" not in text
        and "1.50 × faster" in text
        and "<!-- a -->" in text
    )
    rows += (row("a", "modelcc-strict", 2.4),)
    draw(Comparison("here", "now", "openvino", {}, (Peaks(1, 1.0, 1.0),), rows), tmp_path / "q.svg")
    text = (tmp_path / "q.svg").read_text()
    assert "modelcc-strict" in text and "1.50 ×, strict 1.25 × faster" in text


def test_file_stems_name_model_and_batch() -> None:
    assert variant("resnet50") == (find("resnet50"), 1)
    assert variant("bert_base_b8") == (find("bert_base"), 8)
    assert variant("mlp_dynamic") == (find("mlp"), None)
    assert all(variant(stem) for stem in (*STANDARD, *QUICK))
    assert variant("yolov8n_small")[0].inputs[0].sizes(1) == (1, 3, 64, 64)


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
def test_feeds_repeat_and_survive_json(model: Model) -> None:
    first, second = model.feeds(seed=3, batch=2), model.feeds(seed=3, batch=2)
    for item in model.inputs:
        assert first[item.name].shape == item.sizes(2)
        assert first[item.name].dtype == item.dtype
        np.testing.assert_array_equal(first[item.name], second[item.name])
        assert input_from_json(input_to_json(item, None)) == item


def test_unknown_model_is_named() -> None:
    with pytest.raises(KeyError, match="no model 'resnet5'"):
        find("resnet5")
