"""``modelcc check`` for devices, none of which has to be there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from small_models import mlp, model

from modelcc.cli.main import main


def top(folder: Path) -> str:
    """``relu(hardmax(x @ w))``, whose search of two rows is no work for many threads."""
    nodes = (
        helper.make_node("MatMul", ["x", "w"], ["h"], "fc"),
        helper.make_node("Hardmax", ["h"], ["v"], "best", axis=1),
        helper.make_node("Relu", ["v"], ["y"], "relu"),
    )
    arrays = {"w": np.ones((6, 200), np.float32)}
    path = folder / "top.onnx"
    path.write_bytes(model(nodes, {"x": (2, 6)}, {"y": (2, 200)}, arrays).SerializeToString())
    return str(path)


@pytest.mark.parametrize("target", ["opencl", "cuda:sm_90a", "webgpu", "metal"])
def test_what_runs_on_the_processor_is_named(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", top(tmp_path), "--target", target, "--ram", "1G", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    host = [row["source"] for row in facts["device"]["host"]]
    assert host and facts["fits"] and facts["memory"] == 1 << 30
    noted = {name for note in facts["notes"] for name in note.split(": ")[-1].split(", ")}
    assert {name for source in host for name in source} == noted
    assert len(facts["device"]["uses"]) == facts["device"]["launches"]


def test_what_does_not_fit_says_what_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mlp.onnx"
    path.write_bytes(mlp("n").SerializeToString())
    command = ["check", str(path), "--target", "cuda", "--dim", "n=1..4096"]
    assert main([*command, "--ram", "100K", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    shortage = facts["shortage"]
    assert (
        shortage["excess"]
        == facts["needed"] - (100 << 10)
        == sum(facts["parts"].values()) - (100 << 10)
    )
    fitting = next(
        change for change in shortage["changes"] if change.startswith("n of at most about")
    )
    most = int(fitting.split("=")[-1].rstrip(")"))
    for size, code in ((most, 0), (most * 5 // 4, 1)):
        command[-1] = f"n=1..{size}"
        assert main([*command, "--ram", "100K"]) == code
    words = " ".join(capsys.readouterr().out.split())
    assert "what helps n of at most about" in words and "weights of 8 bits" in words


def test_a_gpu_of_the_table_has_its_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", top(tmp_path), "--target", "cuda:sm_90a"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "of 80.0 GiB (the H100's): fits" in words and "best" in words
