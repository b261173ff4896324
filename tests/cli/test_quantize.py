"""``modelcc quantize``: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import mlp

import modelcc
from modelcc.cli import main
from modelcc.ir.graph_interpreter import interpret


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and samples of its input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", "")
    monkeypatch.setenv("MODELCC_NUM_THREADS", "1")
    onnx.save(mlp("batch"), "net.onnx")
    x = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
    np.savez("data.npz", x=x)
    np.savez("wrong.npz", x=x[:, :5])
    return tmp_path


def test_a_model_its_report_and_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["quantize", "net.onnx", "--calibration", "data.npz", "--report", "report.json"]
    assert main([*args, "--max-error", "0.05"]) == 0
    printed = capsys.readouterr()
    assert "fc0" in printed.out and "8 x 8" in printed.out and "wrote net.int8.onnx" in printed.err
    report = json.loads(Path("report.json").read_text())
    assert report["error"] <= 0.05 and report["runs"] == 1
    x = np.load("data.npz")["x"]
    wanted, found = (modelcc.import_model(p) for p in ("net.onnx", "net.int8.onnx"))
    values = [interpret(g, {"x": x})["y"] for g in (wanted, found)]
    assert np.abs(values[1] - values[0]).max() < 0.05 * np.abs(values[0]).max()


def test_weights_alone_and_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["quantize", "net.onnx", "--activations", "none", "--weights", "int4", "--json"]
    assert main([*args, "-q"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["weights"] for row in printed["layers"]] == [4, 4] and not printed["outputs"]
    assert Path("net.int4.onnx").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--calibration wrong.npz", "axis 1: expected 6, got 5"),
        ("--calibration nowhere", "cannot read nowhere"),
        ("", "needs calibration data"),
        ("--calibration data.npz --max-bytes 10", "more than the budget of 10"),
        ("--calibration data.npz --max-bytes ten", "'ten' is no size"),
        ("--calibration data.npz -o out.bin", "must end with .onnx or .mcc"),
        ("--calibration data.npz -o net.onnx", "would be overwritten"),
        ("--calibration data.npz --report data.npz", "would be overwritten"),
    ],
)
def test_what_is_wrong_leaves_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    before = sorted(folder.iterdir())
    assert main(["quantize", "net.onnx", *arguments.split()]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert sorted(folder.iterdir()) == before
