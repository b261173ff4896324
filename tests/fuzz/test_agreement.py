"""Comparing models in two engines: agreement, refusals, and that wrong results would be found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from machines import chosen_options
from onnx import TensorProto, helper, numpy_helper
from small_models import mlp

pytest.importorskip("onnxruntime")

from fuzz import agreement
from fuzz.agreement import Trial, compared, summary
from fuzz.attempt import Limits, Outcome
from fuzz.opinions import flat, nan_kept, onnxruntime_runner, opinions, results_moved

LIMITS = Limits(60, 4 << 30)


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def model_of(operator: str, *constants: np.ndarray, **attributes: Any) -> onnx.ModelProto:
    """x: f32[4] through one operator, with constants after it."""
    names = [f"c{n}" for n in range(len(constants))]
    node = helper.make_node(operator, ["x", *names], ["y"], **attributes)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    held = [numpy_helper.from_array(c, n) for c, n in zip(constants, names, strict=True)]
    graph = helper.make_graph([node], "g", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_model_that_is_right_agrees(tmp_path: Path) -> None:
    found = compared(saved(tmp_path, mlp()), LIMITS)
    assert found.outcome.kind == "agreed", found
    assert not found.is_finding
    assert summary([found]).startswith("1 models\n  agreed")


def test_what_onnxruntime_refuses_is_its_refusal(tmp_path: Path) -> None:
    found = compared(saved(tmp_path, model_of("NoSuchOperator")), LIMITS)
    assert found.outcome.kind == "peer-refused"


def test_a_wrong_result_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubled results stand for a miscompile."""
    judge = agreement.judged

    def doubled(path: Path, feeds: Any, got: dict[str, Any], *others: Any) -> Any:
        return judge(path, feeds, {name: value * 2 for name, value in got.items()}, *others)

    monkeypatch.setattr(agreement, "judged", doubled)
    found = compared(saved(tmp_path, model_of("Abs")), LIMITS)
    assert found.outcome.kind == "wrong" and found.is_finding
    assert "y" in found.outcome.message


def test_target_and_sizes_are_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, mlp("batch"))
    nowhere = Trial(chosen_options(target="nowhere"))
    assert "no target 'nowhere'" in compared(path, LIMITS, nowhere).outcome.message

    def shown(path: Path, feeds: dict[str, Any], *others: Any) -> Outcome:
        return Outcome("agreed", message=str(feeds["x"].shape))

    monkeypatch.setattr(agreement, "judged", shown)
    for size in (0, 1, 37):
        found = compared(path, LIMITS, Trial(chosen_options(target="native"), size))
        assert found.outcome.message == f"({size}, 6)", found


def test_what_another_evaluator_gives_too_is_explained(tmp_path: Path) -> None:
    path = saved(tmp_path, model_of("Mul", np.full(4, 1e30, np.float32)))
    feeds = {"x": np.ones(4, np.float32)}
    wanted = {"y": np.zeros(4, np.float32)}
    got = {"y": np.full(4, 1e30, np.float32)}
    outcome = agreement.judged(path, feeds, got, wanted)
    assert outcome.kind == "explained" and "gives what modelcc gives" in outcome.message


def test_what_modelcc_refuses_is_its_refusal(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.STRING, ["n"])
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING, name="texts")
    graph = helper.make_graph([node], "g", [x], [y])
    opsets = [helper.make_opsetid("", 18)]
    found = compared(
        saved(tmp_path, helper.make_model(graph, opset_imports=opsets, ir_version=9)), LIMITS
    )
    assert found.outcome.kind == "refused" and "texts" in found.outcome.message, found


def test_each_result_has_its_own_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = np.ones(1, np.float32), np.full(1, 2, np.float32)
    got, wanted = {"a": one, "b": one}, {"a": two, "b": two}
    said = [("first", {"a": one, "b": two}), ("second", {"a": two, "b": one})]
    monkeypatch.setattr(agreement, "opinions", lambda *_: said)
    outcome = agreement.judged(Path(), {}, got, wanted)
    assert outcome.kind == "explained" and "first" in outcome.message, outcome
    assert "second" in outcome.message
    monkeypatch.setattr(agreement, "opinions", lambda *_: said[:1])
    assert agreement.judged(Path(), {}, got, wanted).message.startswith("b:")


NAN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1, 4] x) => (float[1, 1, 2] y) {
  y = OPERATOR (x)
}"""


@pytest.mark.parametrize("operator", [
    "MaxPool <kernel_shape = [2], strides = [2]>", "MaxPool <kernel_shape = [3]>",
])  # fmt: skip
def test_onnxruntime_told_to_keep_nan_gives_what_numpy_does(operator: str) -> None:
    x = np.array([[[np.nan, 1, 2, 3]]], np.float32)
    model = onnx.parser.parse_model(NAN.replace("OPERATOR", operator))
    (y,) = onnxruntime_runner(nan_kept(model))({"x": x}).values()
    np.testing.assert_array_equal(y, np.array([[[np.nan, 3]]], np.float32))


POOLED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1, 6] x) => (float[1, 1, 6] y) {
  b = Constant <value = float[1, 1, 1] {1.0}> ()
  a = Add(x, b)
  p = MaxPool <kernel_shape = [2], strides = [2]> (a)
  y = Concat <axis = 2> (p, p)
}"""


def test_what_a_pool_makes_of_nan_may_be_anything(tmp_path: Path) -> None:
    """But not what it makes of numbers."""
    path = saved(tmp_path, onnx.parser.parse_model(POOLED))
    x = np.array([[[np.nan, 1, 2, np.nan, 3, 4]]], np.float32)
    for first in (np.nan, 2, 7):
        got = {"y": np.array([[[first, 3, 6] * 2]], np.float32)}
        said = dict(opinions(path, {"x": x}, got))["onnxruntime, whatever MaxPool makes of NaN,"]
        np.testing.assert_array_equal(said["y"], np.array([[[first, 3, 5] * 2]], np.float32))


def test_results_move_by_an_ulp() -> None:
    model = onnx.parser.parse_model(NAN.replace("OPERATOR", "Abs").replace("2] y", "4] y"))
    x = np.array([[[1, -2, 3, 0]]], np.float32)
    (y,) = onnxruntime_runner(results_moved(model, 1))({"x": x}).values()
    np.testing.assert_array_equal(y, np.abs(x) * np.float32(1 + 2.0**-23))
    assert (y != np.abs(x)).sum() == 3


def test_lists_and_dicts_are_compared_by_their_elements() -> None:
    records = [{0: 0.25, 1: 0.75}, {0: 1.0, 1: 0.0}]
    found = flat({"p": records, "x": np.ones(2)})
    assert list(found) == ["p[0][0]", "p[0][1]", "p[1][0]", "p[1][1]", "x"]
    assert found["p[0][1]"] == 0.75
