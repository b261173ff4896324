"""``modelcc check`` for tables of operators."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tflite")

from modelcc.cli.main import main
from tests.frontends.tflite.files import T, constant, one


def saved(folder: Path) -> str:
    """A mean over channels, which Ethos-U takes after a rewrite only."""
    tensors = [T((1, 6, 5, 7), "int8", 0.1, 3), constant([3]), T((1, 6, 5, 1), "int8", 0.07, -9)]
    path = folder / "net.tflite"
    path.write_bytes(one("MEAN", tensors, "ReducerOptions", KeepDims=True))
    return str(path)


def test_what_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", saved(tmp_path), "--target", "ethos-u55"]) == 1
    words = " ".join(capsys.readouterr().out.split())
    assert "0 of 1 taken" in words and "0 MEAN" in words and "--rewrite:" in words


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", saved(tmp_path), "--target", "tflm", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["operators"], facts["taken"], facts["partitions"]) == (1, 1, 1)
    assert facts["nodes"][0]["operator"] == "MEAN" and facts["nodes"][0]["taken"]


def test_a_rewritten_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fits.tflite"
    command = ["check", saved(tmp_path), "--target", "ethos-u55", "--rewrite", str(out)]
    assert main(command) == 0
    assert "3 of 3 taken" in " ".join(capsys.readouterr().out.split())
    assert main(["check", str(out), "--target", "ethos-u55"]) == 0


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("net.onnx", ["--target", "tflm"], "net.onnx is no TFLite file"),
        ("none.tflite", ["--target", "tflm"], "cannot read it"),
        ("net.tflite", ["--target", "cortex-m4", "--rewrite", "o.tflite"], "tables of operators"),
    ],
)
def test_refusals(
    name: str, more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path)
    assert main(["check", str(tmp_path / name), *more]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
