"""What tuning chose, taken to another database; several processes on one; Ctrl-C at any moment."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import onnx.parser
import pytest

import modelcc
from modelcc.cli import main
from modelcc.driver import target_of
from modelcc.options import Options
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.database import FILE, Database, Measurement, State
from modelcc.tune.model_rows import model_key
from tests.model_tuning.test_killing import MODEL, PATIENCE, group_ends, rows, started

GROUPS = pytest.mark.skipif(not hasattr(os, "killpg"), reason="groups of processes are POSIX")
CPU = ["--threads", "1", "--cpu", "x86-64-v2"]
MOMENTS = (0.0, 0.5, 1.5, 3.0, 5.0)
"""Seconds after which, or a little later, a run that has opened its database is interrupted.

Before that, Python may lose the signal in a callback of its own while it imports modules.
"""


def compiled(cache: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> bytes:
    monkeypatch.setenv("MODELCC_CACHE_DIR", str(cache))
    assert main(["compile", "m.onnx", *CPU, *more, "-o", "a.mcc"]) == 0
    return Path("a.mcc").read_bytes()


def tuned(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice for each kernel that has another schedule, and one for the model as a whole."""
    options = Options(cpu="x86-64-v2", threads=1)
    target = target_of(options)
    assert isinstance(target, CpuTarget)
    monkeypatch.setenv("MODELCC_CACHE_DIR", "")
    Path("l.txt").write_text("model contractions: apart\n")
    command = ["compile", "m.onnx", *CPU, "--schedule", "l.txt", "--emit", "schedule"]
    assert main([*command, "-o", "e.txt"]) == 0
    lines = [line for line in Path("e.txt").read_text().splitlines() if line.startswith("kernel ")]
    chosen = dict(line.removeprefix("kernel ").split(": ", 1) for line in lines)
    first = next(key for key in chosen if "unroll" in chosen[key])
    chosen[first] = "tiled(vector=a1, lanes=4, tile={a1b: 1, a0: 2})"
    with Database.open(database) as opened:
        own = Measurement(first, chosen[first], State.measured, 1.0, 2.0)
        opened.record(target.tuning_key, [own])
        whole = {f"model {model_key('m.onnx')} contractions": "apart"}
        opened.choose(target.tuning_key, chosen | whole)


def test_choices_mean_the_same_in_another_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    for name in ("here", "there", "fresh"):
        Path(name).mkdir()
    tuned(Path("here", FILE), monkeypatch)
    plain, wanted = (compiled(Path("here"), monkeypatch, *o) for o in ((), ("--tuned",)))
    assert plain != wanted
    assert main(["schedules", "export", "e.sqlite"]) == 0
    with Database.open(Path("there", FILE)) as other:
        other.choose("another machine", {"w": "tiled()"})
    for name in ("there", "fresh"):
        monkeypatch.setenv("MODELCC_CACHE_DIR", name)
        assert compiled(Path(name), monkeypatch, "--tuned") == plain
        assert main(["schedules", "import", "e.sqlite"]) == 0
        assert compiled(Path(name), monkeypatch, "--tuned") == wanted
        assert "does not fit" not in capsys.readouterr().err
    with Database.open(Path("there", FILE), write=False) as other:
        assert other.chosen("another machine") == {"w": "tiled()"}


@GROUPS
def test_two_that_tune_at_once_do_no_harm(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    both = [started(tmp_path, "5s") for _ in range(2)]
    for running in both:
        _, said = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0 and "Traceback" not in said, said
    assert rows(tmp_path / "d.sqlite")
    with Database.open(tmp_path / "d.sqlite", write=False) as database:
        (machine,) = database.machines()
        chosen = database.chosen(machine)
        known = {key: database.measurements(machine, key) for key in chosen}
    kernels = {key: text for key, text in chosen.items() if not key.startswith("model ")}
    assert all(text in known[key] for key, text in kernels.items())
    assert main(["compile", str(tmp_path / "m.onnx"), *CPU, "-o", str(tmp_path / "a.mcc")]) == 0


@GROUPS
@pytest.mark.parametrize("seconds", MOMENTS)
def test_control_c_leaves_a_word_and_a_sound_database(tmp_path: Path, seconds: float) -> None:
    """The terminal sends the signal to the whole group."""
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "modelcc", "tune", "m.onnx", *CPU, "--database", "d.sqlite"]
    source = str(Path(modelcc.__file__).parent.parent)
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source, "MODELCC_CACHE_DIR": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Shells have background jobs ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        while running.poll() is None and not (tmp_path / "d.sqlite").exists():
            time.sleep(0.02)
        time.sleep(seconds + random.Random(seconds).random() / 2)
        os.killpg(running.pid, signal.SIGINT)
        told, said = running.communicate(timeout=PATIENCE)
    assert (running.returncode, told, said.split()) == (130, "", ["interrupted"])
    assert group_ends(running.pid)
    rows(tmp_path / "d.sqlite")
    assert not list(tmp_path.glob("d.sqlite-*"))
    shutil.rmtree(tmp_path)
