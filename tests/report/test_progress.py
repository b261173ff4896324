"""What is told while modelcc works: progress callbacks, bars and log lines."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from small_models import mlp

import modelcc
from modelcc.cli import main


def test_the_callback_hears_of_every_part_of_a_compile() -> None:
    told: list[tuple[str, int, int]] = []
    modelcc.compile(mlp(), threads=1, cache=None, progress=lambda *what: told.append(what))
    order = list(dict.fromkeys(what for what, _, _ in told))
    wanted = ["importing the model", "graph passes", "tensor passes", "scheduling kernels"]
    assert told[0] == ("importing the model", 0, 1)
    assert order[:4] == wanted and "compiling kernels" in order
    for what in order:
        counts = [(done, total) for name, done, total in told if name == what]
        assert [done for done, _ in counts] == sorted(done for done, _ in counts)
        assert len({total for _, total in counts}) == 1 and counts[-1][0] == counts[-1][1]


def test_verify_tells_of_the_interpreter_and_the_peer() -> None:
    told: list[str] = []
    modelcc.verify(mlp(), threads=1, cache=None, progress=lambda what, *_: told.append(what))
    assert told[0] == "importing the model"
    assert {"running the reference interpreter", "running onnxruntime"} <= set(told)


def test_stages_and_the_cache_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(mlp().SerializeToString())
    with caplog.at_level(logging.INFO, "modelcc"):
        modelcc.compile(model, threads=1, cache=tmp_path / "cache")
        assert any("graph/FoldConstants" in message for message in caplog.messages)
        caplog.clear()
        modelcc.compile(model, threads=1, cache=tmp_path / "cache")
        assert [m for m in caplog.messages if "found in the cache" in m]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", "")
    monkeypatch.setenv("MODELCC_NUM_THREADS", "1")
    (tmp_path / "net.onnx").write_bytes(mlp().SerializeToString())
    return tmp_path


def test_verbose_and_quiet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger("modelcc").handlers[:]
    for arguments in (["-v", "compile", "net.onnx"], ["compile", "net.onnx", "-v"]):
        assert main(arguments) == 0
        said = capsys.readouterr()
        assert "modelcc.stages: graph/FoldConstants" in said.err and said.out == ""
    for arguments in (["-q", "compile", "net.onnx"], ["compile", "-q", "net.onnx"]):
        assert main(arguments) == 0
        assert capsys.readouterr() == ("", "")
    assert main(["compile", "-q", "none.onnx"]) == 2
    assert "none.onnx" in capsys.readouterr().err
    assert main(["compile", "net.onnx"]) == 0
    assert capsys.readouterr().err.splitlines()[0].startswith("wrote net.mcc")
    assert logging.getLogger("modelcc").handlers == before


def terminal_output(arguments: list[str], folder: Path, **variables: str) -> str:
    """What the command line draws on a terminal on stderr."""
    ours, theirs = pty.openpty()
    source = str(Path(modelcc.__file__).parents[1])
    variables = {**os.environ, "PYTHONPATH": source, "TERM": "xterm", "COLUMNS": "80"} | variables
    command = [sys.executable, "-m", "modelcc", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    parts: list[bytes] = []
    try:
        while part := os.read(ours, 4096):
            parts.append(part)
    except OSError:  # so Linux tells that the other end is closed
        pass
    os.close(ours)
    process.communicate()
    assert process.returncode == 0
    return b"".join(parts).decode()


def test_bars_are_drawn_on_terminals_from_the_start(folder: Path) -> None:
    drawn = terminal_output(["compile", "net.onnx"], folder)
    parts = ("loading the compiler", "importing the model", "compiling kernels", "wrote net.mcc")
    places = [drawn.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(("options", "variables"), [(["-q"], {}), ([], {"TERM": "dumb"})])
def test_no_bars_where_they_are_not_wanted(
    options: list[str], variables: dict[str, str], folder: Path
) -> None:
    drawn = terminal_output(["compile", "net.onnx", *options], folder, **variables)
    assert "\x1b" not in drawn and "importing" not in drawn
