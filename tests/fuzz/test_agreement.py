"""Comparing models in two engines: agreement, refusals, and that wrong results would be found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import mlp

pytest.importorskip("onnxruntime")

from fuzz import agreement
from fuzz.agreement import compared, summary
from fuzz.attempt import Limits

LIMITS = Limits(60, 4 << 30)


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def model_of(operator: str, *constants: np.ndarray, **attributes: object) -> onnx.ModelProto:
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
    judge = agreement._judged
    monkeypatch.setattr(
        agreement,
        "_judged",
        lambda path, feeds, got, wanted: judge(
            path, feeds, {name: value * 2 for name, value in got.items()}, wanted
        ),
    )
    found = compared(saved(tmp_path, model_of("Abs")), LIMITS)
    assert found.outcome.kind == "wrong" and found.is_finding
    assert "y" in found.outcome.message


def test_what_another_evaluator_gives_too_is_explained(tmp_path: Path) -> None:
    path = saved(tmp_path, model_of("Mul", np.full(4, 1e30, np.float32)))
    feeds = {"x": np.ones(4, np.float32)}
    wanted = {"y": np.zeros(4, np.float32)}
    got = {"y": np.full(4, 1e30, np.float32)}
    outcome = agreement._judged(path, feeds, got, wanted)
    assert outcome.kind == "explained" and "gives what modelcc gives" in outcome.message
