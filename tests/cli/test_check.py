"""``modelcc check``: exit codes, the table and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from modelcc.cli.main import main
from tests.embedded import embedded, keyword_spotter


def saved(folder: Path) -> str:
    path = folder / "net.onnx"
    onnx.save(keyword_spotter(), path)
    return str(path)


def test_what_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", saved(tmp_path), "--target", "cortex-m4", "--ram", "64K", "--json"]
    assert main(command) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["fits"] and facts["budget"] == {"ram": 64 << 10, "flash": None}
    assert facts["parts"]["arena"] == embedded(keyword_spotter(), "cortex-m4").arena
    assert facts["shortages"] == []


def test_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", saved(tmp_path), "--target", "mcu", "--ram", "100", "--flash", "1K"]
    assert main(command) == 1
    words = " ".join(capsys.readouterr().out.split())
    arena = embedded(keyword_spotter()).arena
    assert f"RAM {arena} of 100 bytes: {arena - 100} too many" in words
    assert f"RAM lacks {arena - 100} bytes; the least is {arena}" in words
    assert "net/" in words  # where the peak is
    assert "flash lacks" in words and "the largest constants" in words


def test_other_targets_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", saved(tmp_path)]) == 2
    assert "'native' is no microcontroller" in capsys.readouterr().err
