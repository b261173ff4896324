"""``modelcc tune`` killed at any moment: what it measured stays, and the next call goes on."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import onnx
import onnx.parser
import pytest

import modelcc
from modelcc.tune.database import Database, Measurement

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[24, 40] x, float[40, 36] w, float[36, 24] v, float[24, 80] u) => (float[24, 80] y)
{ p = MatMul(x, w) q = Relu(p) r = MatMul(q, v) s = MatMul(r, u) y = Softmax(s) }"""

TUNE = """
import json, sys
from pathlib import Path
from modelcc.cli.main import main
from modelcc.model_tuning import tuning
from modelcc.schedule.text import print_schedule
from modelcc.schedule.workload import workload_key
from modelcc.tune.database import Database
from modelcc.tune.measurement import WorkerMeasurer

begun = []

class Watched(WorkerMeasurer):
    def times(self, kernel, default, others):
        begun.append(kernel)
        key, texts = workload_key(kernel), list(map(print_schedule, others))
        with Database.open(Path("d.sqlite"), write=False) as database:
            (machine,) = database.machines() or [""]
            known = [text for text in texts if text in database.measurements(machine, key)]
        with open("asked.txt", "a") as file:
            print(json.dumps([len(texts), len(known)]), file=file)
        return super().times(kernel, default, others)

with open("asked.txt", "a") as file:
    print([0, 0], file=file)
tuning.WorkerMeasurer = Watched
tuning.monotonic = lambda: len(begun)
sys.exit(main(["tune", "m.onnx", "--threads", "1", "--cpu", "x86-64-v2", "--budget", sys.argv[1],
               "--database", "d.sqlite"]))
"""
"""Notes how many candidates are measured at a time, and how many of them the database has; none
where a process begins.  A second of the budget is a batch of candidates, however busy the machine.
"""

PATIENCE = 300.0
"""Seconds after which a process hangs, on whatever machine."""

BATCHES = (0, 2, 1)
"""Of candidates whose measuring has begun before a process is killed, some time later."""


def started(folder: Path, budget: str) -> subprocess.Popen[str]:
    """The command, leading a group of its own that its worker is in, too."""
    return subprocess.Popen(
        [sys.executable, "-c", TUNE, budget],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(modelcc.__file__).parent.parent),
            "MODELCC_CACHE_DIR": str(folder / "cache"),
            "MODELCC_JOBS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def group_ends(leader: int) -> bool:
    """Whether all processes of a group end."""
    late = time.monotonic() + PATIENCE
    while time.monotonic() < late:
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def rows(path: Path) -> dict[tuple[str, str], Measurement]:
    """What was measured, by workloads and schedules, from a file that is sound."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with Database.open(path, write=False) as database:
        measured, _ = database.contents()
    return {(one.workload, one.schedule): one for _, one in measured}


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="groups of processes are POSIX")
def test_what_was_measured_stays_and_is_not_measured_again(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    draw, before = random.Random(5), dict[tuple[str, str], Measurement]()
    database = tmp_path / "d.sqlite"
    for batches in BATCHES:
        asked = len(asked_of(tmp_path)) + 1
        running = started(tmp_path, "60s")
        while len(asked_of(tmp_path)) < asked + batches and running.poll() is None:
            time.sleep(0.02)
        time.sleep(draw.random())
        assert running.poll() is None, running.communicate()
        running.kill()
        running.communicate()
        assert running.returncode == -signal.SIGKILL and group_ends(running.pid)
        found = rows(database) if database.exists() else {}
        assert found.items() >= before.items()
        before = found
    running = started(tmp_path, "5s")
    _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said
    assert rows(database).items() >= before.items() and before
    assert again(asked_of(tmp_path)) == []


def again(asked: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What was measured although it was known.

    The last ones of a process are the best of the kernels, each measured once more to be sure.
    """
    found: list[tuple[int, int]] = []
    searching = False
    for count, known in reversed(asked):
        searching = count != 0 and (searching or count > 1 or known == 0)
        if searching and known:
            found.append((count, known))
    return found


def test_what_is_measured_again_is_seen() -> None:
    begin, fresh, best = (0, 0), (6, 0), (1, 1)
    assert again([begin, fresh, fresh, begin, fresh, (1, 0), best, best, begin, best]) == []
    assert again([begin, fresh, best, fresh, begin, best]) == [best]
    assert again([begin, fresh, begin, (6, 2)]) == [(6, 2)]


def asked_of(folder: Path) -> list[tuple[int, int]]:
    """How many candidates were measured each time, and how many of them were known."""
    path = folder / "asked.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [line.strip("[]").split(",") for line in lines]
    return [(int(count), int(known)) for count, known in pairs]
