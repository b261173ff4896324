"""Models on integers against the floats they were, and against onnxruntime on the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import modelcc
from conformance.onnx_emission import run_model
from modelcc import ModelError
from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from modelcc.ops.packed_matmul import PackedMatMul
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.quantization.quantising import QuantizedModel, quantised_model
from modelcc.quantization.running import Engine
from modelcc.quantization.samples import Feeds
from modelcc.quantization.settings import QuantizationSettings
from tests.machines import chosen_options
from tests.quantization.graphs import floats, products, residual

IMAGES = floats(24, 3, 8, 8, seed=9)


class Interpreter(Engine):
    """Runs small graphs sooner than they are compiled."""

    def runner(self, graph: Graph, keep: Iterable[str] = ()) -> Callable[[Feeds], dict[str, Array]]:
        outputs = (*graph.outputs, *(n for n in keep if n not in graph.inputs))
        whole = replace(graph, outputs=tuple(dict.fromkeys(outputs)))
        return lambda feeds: {**feeds, **interpret(whole, feeds)}


def quantised(graph: Graph, data: Any, **settings: Any) -> QuantizedModel:
    return quantised_model(graph, data, QuantizationSettings(**settings), Interpreter())


def written(model: QuantizedModel, folder: Path) -> onnx.ModelProto:
    model.save(folder / "q.onnx")
    found = onnx.load(folder / "q.onnx")
    onnx.checker.check_model(found, full_check=True)
    return found


def relative(found: Array, wanted: Array) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def lowered(graph: Graph) -> list[type]:
    """Kinds of ops after all passes on graphs."""
    options = Options(threads=1, cpu="x86-64-v4")
    stages = pipeline(target_of(options, NOWHERE), options, NOWHERE)
    return [type(node.op) for node in run_stages(before_block(stages, "lower"), graph).nodes]


def assert_as_onnxruntime(model: QuantizedModel, feeds: Mapping[str, Array], folder: Path) -> None:
    """It computes what the exported model does, up to the rounding of few values."""
    wanted = run_model(written(model, folder), feeds)
    found = interpret(model.graph, feeds)
    for name, value in zip(model.graph.outputs, wanted, strict=True):
        assert relative(found[name], value) < 2e-2
        assert np.median(np.abs(found[name] - value)) < 1e-5


@pytest.mark.parametrize("activations", ["int8", "uint8", "int16"])
def test_a_network_with_branches(activations: str, tmp_path: Path) -> None:
    graph, test = residual(), floats(4, 3, 8, 8, seed=10)
    model = quantised(graph, IMAGES, activations=activations)
    wanted = interpret(graph, {"x": test})["y"]
    found = interpret(model.graph, {"x": test})["y"]
    assert relative(found, wanted) < (0.05 if activations != "int16" else 0.02)
    report = model.report
    assert report.bytes_after < 0.4 * report.bytes_before
    assert [row.name for row in report.layers] == ["stem", "depthwise", "sum", "head"]
    assert all(row.sqnr is not None and row.sqnr > 25 for row in report.layers)
    assert_as_onnxruntime(model, {"x": test}, tmp_path)
    if activations != "int16":
        kinds = lowered(model.graph)
        assert kinds.count(ConvInteger) == 2 and kinds.count(MatMulInteger) == 1


def test_products_of_weights_and_of_activations(tmp_path: Path) -> None:
    data = {"x": floats(8, 6, 32), "other": floats(8, 16, 6)}
    model = quantised(products(), data, method="minmax", per_channel=False)
    feeds = {"x": floats(2, 6, 32, seed=4), "other": floats(2, 16, 6, seed=5)}
    assert relative(interpret(model.graph, feeds)["y"], interpret(products(), feeds)["y"]) < 0.05
    assert lowered(model.graph).count(MatMulInteger) == 2
    assert_as_onnxruntime(model, feeds, tmp_path)


@pytest.mark.parametrize(("weights", "block", "most"), [("int8", 0, 0.02), ("int4", 8, 0.3)])
def test_weights_alone(weights: str, block: int, most: float, tmp_path: Path) -> None:
    graph, test = residual(), floats(4, 3, 8, 8, seed=10)
    model = quantised(graph, None, activations="none", weights=weights, block=block)
    feeds = {"x": test}
    assert relative(interpret(model.graph, feeds)["y"], interpret(graph, feeds)["y"]) < most
    if block:
        assert PackedMatMul in lowered(model.graph)
        assert model.report.bytes_after < 0.35 * model.report.bytes_before
    assert_as_onnxruntime(model, feeds, tmp_path)


def test_budgets_choose_layers_to_keep() -> None:
    graph = residual()
    rough = quantised(graph, IMAGES, method="minmax", per_channel=False, sensitivity=True)
    assert all(row.alone is not None and row.alone > 0 for row in rough.report.layers)
    wanted = rough.report.error / 2
    exact = quantised(graph, IMAGES, method="minmax", per_channel=False, max_error=wanted)
    assert exact.report.error <= wanted
    kept = [row.name for row in exact.report.layers if row.activations == 32]
    assert 0 < len(kept) < 4
    wanted = quantised(graph, IMAGES).report.error * 0.75
    fine = quantised(graph, IMAGES, max_error=wanted, fallback="int16")
    assert fine.report.error <= wanted
    assert {row.activations for row in fine.report.layers} == {8, 16}
    size = (rough.report.bytes_before + rough.report.bytes_after) // 2
    small = quantised(graph, IMAGES, method="minmax", per_channel=False, max_bytes=size)
    assert small.report.bytes_after <= size and small.report.error < rough.report.error


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_bytes": 100}, r"with every layer quantised, constants take .* \(\d+ bytes\)"),
        ({"max_error": 0, "fallback": "int16"}, r"is 0\.\d+ at least, and the budget is 0"),
        ({"skip": ["nothing"]}, "no node or value 'nothing' to skip"),
        ({"ops": ["Attention"]}, "has no Attention that can be quantised"),
        ({"weights": "int4"}, "for products with floats"),
        ({"method": "guess"}, "method must be one of minmax"),
        ({"percentile": 10}, "percentile must be above 50"),
        ({"skip": ["stem", "depthwise", "head"]}, "nothing to quantise"),
    ],
)
def test_what_cannot_be_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        quantised(residual(), IMAGES, **settings)


def test_ranges_need_data_and_floats() -> None:
    with pytest.raises(ModelError, match="activations needs calibration data"):
        quantised(residual(), None)
    model = quantised(residual(), None, activations="none", block=0)
    with pytest.raises(ModelError, match="is quantised already"):
        quantised(model.graph, IMAGES)
    with pytest.raises(ModelError, match="not finite for some of the calibration data"):
        quantised(residual(), np.full((1, 3, 8, 8), 3e38, np.float32))


def test_it_is_measured_on_compiled_code(tmp_path: Path) -> None:
    settings = QuantizationSettings(method="minmax")
    graph, data = products(), {"x": floats(8, 6, 32), "other": floats(8, 16, 6)}
    expected = quantised_model(graph, data, settings, Interpreter()).report
    options = chosen_options(threads=1, optimize=0)
    model = modelcc.quantize(graph, data, settings=settings, options=options, cache=None)
    for row, wanted in zip(model.report.layers, expected.layers, strict=True):
        assert row.scale == pytest.approx(wanted.scale, rel=1e-4)
        assert row.sqnr == pytest.approx(wanted.sqnr, abs=1)
    with pytest.raises(ModelError, match="no argument 'bits'"):
        modelcc.quantize(graph, data, bits=8)
    with pytest.raises(ModelError, match=r"must end with \.onnx or \.mcc"):
        model.save(tmp_path / "q.bin")
    assert not list(tmp_path.iterdir())
    model.save(tmp_path / "q.mcc")
    feeds = {"x": floats(2, 6, 32, seed=4), "other": floats(2, 16, 6, seed=5)}
    loaded = modelcc.load(tmp_path / "q.mcc").run(feeds)["y"]
    assert relative(loaded, interpret(model.graph, feeds)["y"]) < 2e-2
