"""The accuracy benchmark: inputs, bars, and a crash that is a row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper
from small_models import mlp

import modelcc
from benchmarks.accuracy.__main__ import examine
from benchmarks.accuracy.check import check, relative_errors, truths_of
from benchmarks.accuracy.peer import observed
from benchmarks.accuracy.quantised import same_top, steps_apart
from benchmarks.accuracy.results import Found, markdown, rows, size_rows
from benchmarks.accuracy.signals import bytes_of_text, image
from benchmarks.accuracy.stepping import stepped
from benchmarks.accuracy.subjects import Subject, declared, light, real, zoo
from benchmarks.accuracy.truth import Truth


def folder_with_mlp(folder: Path) -> Path:
    onnx.save(mlp("batch"), folder / "mlp_dynamic.onnx")
    fill = {"mean": 0.0, "deviation": 1.0}
    inputs = [{"name": "x", "shape": ["batch", 6], "dtype": "float32", "fill": fill}]
    (folder / "index.json").write_text(json.dumps({"mlp_dynamic": {"inputs": inputs}}))
    return folder


def test_a_model_is_checked_at_several_sizes(tmp_path: Path) -> None:
    (subject,) = zoo(folder_with_mlp(tmp_path))
    checked, outputs = check(subject, "llvm", truths_of(subject, 3))
    assert [size.shapes["x"] for size in checked.sizes] == [(1, 6), (2, 6), (5, 6)]
    assert all(size.worst < 1e-5 for size in checked.sizes)
    assert all(0 < (size.own or 0) < 1e-6 for size in checked.sizes)
    assert [found["y"].shape for found in outputs] == [(1, 3), (2, 3), (5, 3)]


def test_a_process_that_fails_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"broken": {"inputs": []}}))
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    found = examine("zoo", Subject(tmp_path / "broken.onnx", {}), "llvm", 1, 60)
    assert found.result is None and found.failures[0].startswith("ended with ")
    assert "broken" in markdown([found])


def test_errors_are_relative_and_never_hide() -> None:
    wanted = {"a": np.array([0.0, 4.0], np.float32), "b": np.ones(2, np.float32)}
    got = {"a": np.array([1.0, 4.0], np.float32)}
    assert relative_errors(got, wanted) == {"a": 0.25, "b": float("inf")}
    got["b"] = np.ones(3, np.float32)
    assert relative_errors(got, wanted)["b"] == float("inf")


def test_results_in_64_bits_are_numpys(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((6, 70)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[n, 6] x, int64[n, 70] i) => (float[n, 70] y) {"
        " s = Constant <value_float = 0.1> () h = Cast <to = 1> (x) p = MatMul(h, w)"
        " q = Mul(p, s) l = LayerNormalization(q, gain) y = GatherElements <axis = 1> (l, i) }"
    )
    gain = np.linspace(0.1, 2, 70, dtype=np.float32)
    constants = {"w": w, "gain": gain}
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in constants.items())
    onnx.save(model, tmp_path / "net.onnx")
    x = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)
    places = np.tile(np.arange(70)[::-1], (3, 1))
    found = Truth(tmp_path / "net.onnx").run({"x": x, "i": places})
    q = x.astype(np.float64) @ w.astype(np.float64) * np.float64(np.float32(0.1))
    normal = (q - q.mean(1, keepdims=True)) / np.sqrt(q.var(1, keepdims=True) + np.float32(1e-5))
    wanted = (normal * gain)[:, ::-1]
    assert found is not None and found["y"].dtype == np.float64
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-12, atol=1e-14)


def test_a_model_that_is_not_onnxs_alone_has_no_results_in_64_bits(tmp_path: Path) -> None:
    onnx.save(quantised_lstm(), tmp_path / "lstm.onnx")
    truth = Truth(tmp_path / "lstm.onnx")
    assert truth.run({"x": np.zeros((6, 3, 5), np.float32)}) is None
    assert "DynamicQuantizeLSTM" in truth.problem


def test_rounding_is_compared_with_the_peers() -> None:
    def failures(own: float, peer: float) -> tuple[str, ...]:
        size = {"outputs": {"y": own + peer}, "milliseconds": 1.0, "own": own, "peer": peer}
        made = {"backend": "c", "arena": 1, "bound": 1, "sizes": [size]}
        return Found("net", "zoo", {"backends": [made], "difference": None}).failures

    assert not failures(0.9e-4, 0.9e-4) and not failures(1.9e-4, 1e-4)
    assert failures(2.1e-4, 1e-4) and failures(1.3e-4, 6e-5)
    assert failures(1.5e-2, 1e-2)  # then the results in 64 bits are wrong


def test_bars() -> None:
    unknown = {"own": None, "peer": None}
    size = {"shapes": {"x": [1, 6]}, "outputs": {"y": 2e-4}, "milliseconds": 2.0, **unknown}
    made = {
        "backend": "llvm",
        "device": "",
        "cold": 11.0,
        "cached": 0.1,
        "arena": 120,
        "bound": 100,
    }
    result = {"backends": [{**made, "sizes": [size]}], "difference": None, "static": 1.0}
    found = Found("resnet50", "zoo", result)
    assert [text.split()[1] for text in found.failures] == ["error", "arena", "cold"]
    assert Found("vgg16", "zoo", result).failures == found.failures[:2]
    assert len(list(rows(found))) == 1
    assert next(iter(size_rows(found)))[-1] == "2.00"


def test_inputs_are_what_models_expect() -> None:
    generator = np.random.default_rng(0)
    picture = image((2, 3, 48, 96), generator)
    assert picture.shape == (2, 3, 48, 96) and picture.min() < -0.7 and picture.max() > 0.4
    text = bytes_of_text((3, 2048), generator)
    assert text.min() > 0 and text.max() == 256 and len(np.unique(text, axis=0)) == 3
    assert len(list(light())) == 9


def quantised_net(folder: Path) -> Path:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[n, 4] x) => (float[n, 4] y) <float scale = {0.02}, uint8 zero = {7}> {"
        " q = QuantizeLinear(x, scale, zero) d = DequantizeLinear(q, scale, zero)"
        " r = Relu(d) p = QuantizeLinear(r, scale, zero) y = DequantizeLinear(p, scale, zero) }"
    )
    onnx.save(model, folder / "quantised.onnx")
    return folder


def test_quantised_tensors_are_compared_in_steps(tmp_path: Path) -> None:
    (subject,) = map(declared, real(quantised_net(tmp_path)))
    assert [subject.feeds(n)["x"].shape for n in range(3)] == [(1, 4), (2, 4), (5, 4)]
    feeds = subject.feeds(0)
    free = modelcc.compile(subject.path, cache=None).run(feeds)
    steps = steps_apart(subject.path, feeds, free)
    assert steps is not None and steps.tensors == 2
    assert steps.worst <= 1 and steps.outputs <= 1e-6 and steps.top == 1
    free["y"] = -free["y"]
    wrong = steps_apart(subject.path, feeds, free)
    assert wrong is not None and wrong.top == 0


def test_a_tensor_off_by_more_than_a_step_is_named() -> None:
    made = {
        "backend": "llvm",
        "device": "",
        "cold": 1.0,
        "cached": 0.1,
        "arena": 1,
        "bound": 1,
        "sizes": [],
    }
    whole = {"states": 0, "whole": 0.0, "own": 0.0, "top": 1.0, "sure": 1.0, "given_top": 1.0}
    steps = {"tensors": 2, "worst": 3.0, "where": "q", "differing": 0.1, "outputs": 0.0, **whole}
    found = Found("m", "real", {"backends": [made], "difference": None, "steps": [steps]})
    assert found.failures == ("llvm: steps 3 > 1",)
    line = "| m | 1 | 2 | 0 | 3 | q | 1.0e-01 | 0.0e+00 | 1.0000 | 1.0000 | 1.0000 |  |  |"
    assert line in markdown([found])


def quantised_lstm(hidden: int = 8, inputs: int = 5) -> onnx.ModelProto:
    """Both directions of an LSTM on bytes, begun from given states."""
    rng = np.random.default_rng(0)
    both = (2, 1, hidden)
    operands = {
        "w": rng.integers(0, 256, (2, inputs, 4 * hidden)).astype(np.uint8),
        "r": rng.integers(0, 256, (2, hidden, 4 * hidden)).astype(np.uint8),
        "b": rng.standard_normal((2, 8 * hidden)).astype(np.float32),
        "h": rng.standard_normal((2, 3, hidden)).astype(np.float32),
        **{name: np.array([0.01, 0.02], np.float32) for name in ("w_scale", "r_scale")},
        **{name: np.array([128, 120], np.uint8) for name in ("w_zero", "r_zero")},
    }
    places = ("x", "w", "r", "b", "", "h", "", "", "w_scale", "w_zero", "r_scale", "r_zero")
    layer = helper.make_node(
        "DynamicQuantizeLSTM", places, ["y"], domain="com.microsoft", hidden_size=hidden,
        direction="bidirectional",
    )  # fmt: skip
    values = [helper.make_tensor_value_info("x", 1, ("t", 3, inputs))]
    results = [helper.make_tensor_value_info("y", 1, ("t", *both[:1], 3, hidden))]
    constants = [numpy_helper.from_array(value, name) for name, value in operands.items()]
    graph = helper.make_graph([layer], "g", values, results, constants)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def test_states_that_are_quantised_are_compared_step_by_step(tmp_path: Path) -> None:
    model = quantised_lstm()
    onnx.save(model, tmp_path / "lstm.onnx")
    feeds = {"x": np.random.default_rng(1).standard_normal((6, 3, 5)).astype(np.float32)}
    free = modelcc.compile(tmp_path / "lstm.onnx", cache=None).run(feeds)
    steps = steps_apart(tmp_path / "lstm.onnx", feeds, free)
    assert steps is not None and steps.states == 12 and steps.where == "y"
    assert steps.worst < 0.01 and steps.given_top == 1 and steps.top == 1


def test_a_wrong_step_is_seen() -> None:
    """The layer's operands as they are, but results of other states."""
    model = quantised_lstm()
    x = np.random.default_rng(1).standard_normal((6, 3, 5)).astype(np.float32)
    h = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "h"))
    values = {"x": x, "h": h, **observed(model, {"x": x}, ["y"])}
    (node,) = model.graph.node
    assert stepped(model, node, values).from_whole < 1e-3
    assert stepped(model, node, {**values, "h": h + 1}).from_whole > 1


def test_rows_without_a_sure_greatest_element_do_not_count() -> None:
    wanted = np.array([[1.0, 2.0], [1.0, 1.0001]], np.float32)
    got = np.array([[1.0, 2.0], [1.0001, 1.0]], np.float32)
    other = wanted + np.array([1e-3, 0], np.float32)
    assert same_top(got, wanted, ()) == (0.5, 1.0)
    assert same_top(got, wanted, [other]) == (1.0, 0.5)
