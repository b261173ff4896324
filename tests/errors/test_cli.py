"""Every wrong use of the command line gets one message, exit code 2, and leaves nothing behind."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from small_models import mlp, unsupported

from modelcc.cli import main
from tests.errors.cli.cases import CASES, Case


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What :class:`Case` promises."""
    place = tmp_path_factory.mktemp("cli")
    (place / "net.onnx").write_bytes(mlp("batch").SerializeToString())
    (place / "broken.onnx").write_bytes(b"\xff" * 100)
    (place / "unsupported.onnx").write_bytes(unsupported().SerializeToString())
    (place / "text.npy").write_text("1, 2, 3")
    (place / "bad.ll").write_text("define nonsense")
    np.save(place / "x.npy", np.zeros((2, 6), np.float32))
    np.save(place / "wrong.npy", np.zeros(3, np.int64))
    net = str(place / "net.onnx")
    assert main(["compile", net, "-o", str(place / "net.mcc"), "--no-cache"]) == 0
    assert main(["compile", net, "--emit", "graph", "-o", f"{place}/", "--no-cache"]) == 0
    (place / "net.graph.npz").unlink()
    (place / "cut.mcc").write_bytes((place / "net.mcc").read_bytes()[:500])
    return place


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_message(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MODELCC_CACHE_DIR", "")
    before = sorted(folder.rglob("*"))
    assert main(shlex.split(case.arguments)) == 2
    said = capsys.readouterr()
    for fragment in case.says:
        assert fragment in said.err
    assert said.out == ""
    assert "Traceback" not in said.err
    assert sorted(folder.rglob("*")) == before


def test_environment_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODELCC_NUM_THREADS", "all")
    assert main(["targets"]) == 2
    assert "MODELCC_NUM_THREADS is 'all'" in capsys.readouterr().err


def test_our_own_faults_ask_for_a_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("boom")

    monkeypatch.setattr("modelcc.cli.run.load", broken)
    assert main(["run", str(folder / "net.mcc")]) == 3
    said = capsys.readouterr().err
    assert "fault of modelcc" in said and "boom" in said


def test_too_little_memory_is_no_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def greedy(*_: object, **__: object) -> None:
        np.empty(1 << 60, np.uint8)

    monkeypatch.setattr("modelcc.cli.run.load", greedy)
    assert main(["run", str(folder / "net.mcc")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: there is not enough memory: Unable to allocate")
    assert "Traceback" not in said
