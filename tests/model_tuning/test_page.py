"""The page and the rows of a tuning: what won by how much, what was left out and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import onnx
import onnx.parser
import pytest

from modelcc.cli import main
from modelcc.driver import target_of
from modelcc.model_tuning.above import Trial, tasks_of
from modelcc.model_tuning.page import compared, tuning_page
from modelcc.model_tuning.rows import kernel_rows
from modelcc.model_tuning.tuning import Together, Tuning
from modelcc.options import Options
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Parts, Schedule, Tiled
from modelcc.schedule.text import print_schedule
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.database import Database, Measurement, State
from modelcc.tune.measurement import Times, WorkerMeasurer
from modelcc.tune.search import Doubt, SearchResult
from modelcc.tune.turns import Turns

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[24, 40] x, float[40, 36] w, float[40, 24] v) => (float[24, 36] y, float[24, 24] z)
{ y = MatMul(x, w) q = MatMul(x, v) z = Tanh(q) }"""

FASTER = Turns(((2.0, 1.0),) * 15)
SAME = Turns(((1.0, 1.0), (1.0, 1.01)) * 8)


def tasks() -> list[SearchResult]:
    options = Options(cpu="x86-64-v2")
    assert isinstance(target_of(options), CpuTarget)
    found = tasks_of(onnx.parser.parse_model(MODEL), options)
    return [SearchResult(one, 1e-3, one.default) for one in found]


def changed(found: SearchResult, unroll: int) -> Schedule:
    default = found.task.default
    assert isinstance(default, Parts) and isinstance(default.parts[0], Tiled)
    return Parts((replace(default.parts[0], unroll=(("a2", unroll),)),))


@pytest.fixture(scope="module")
def tuning() -> Tuning:
    """One kernel taken, one whose gain was not there again, or only once in an earlier run."""
    first, second, *_ = tasks()
    hostile = replace(first.task, nodes=("<b>&", *(f"n{n}" for n in range(9))))
    best, crash = changed(first, 2), print_schedule(changed(first, 16))
    taken = replace(first, task=hostile, best=best, gain=1.25)
    doubted = replace(second, doubt=Doubt(changed(second, 3), 1.10, 1.01))
    once = replace(second, seconds=2e-3, task=replace(second.task, nodes=("once",)))
    key, other = first.task.key, second.task.key
    known = {
        key: {
            print_schedule(best): Measurement(key, print_schedule(best), State.measured, 0.8, 1.0),
            crash: Measurement(key, crash, State.crashed),
        },
        other: {"tiled()": Measurement(other, "tiled()", State.measured, 0.5, 1.0)},
        "model": {
            "model channels: 8": Measurement("m", "model channels: 8", State.measured, 0.5, 1.0),
            "model channels: 32": Measurement("m", "model channels: 32", State.measured, 1.0, 1.0),
        },
    }
    return Tuning(
        "a <machine>",
        (doubted, taken, once),
        {key: best},
        2e-3,
        1e-3,
        {"model channels": "8"},
        (Trial((("model channels", "8"),), FASTER, True),),
        (Together(2, 1, SAME, False), Together(1, 1, FASTER, True)),
        known,
        distinct=7,
        spent=61.2,
    )


def test_rows_say_what_became_of_each_kernel(tuning: Tuning) -> None:
    rows = kernel_rows(tuning)
    assert [row.verdict for row in rows] == [
        "taken",
        "measured in an earlier run; does not fit any more",
        "1.10 in the search, 1.01 when measured again",
    ]
    assert [row.taken for row in rows] == [True, False, False]
    assert (rows[0].own, rows[0].saved) == (pytest.approx(8e-4), pytest.approx(2e-4))
    assert (rows[0].measured, rows[0].failed) == (1, 1)
    assert (rows[1].best, rows[1].gain) == ("tiled()", 2.0)
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_a_schedule_that_did_not_help_the_model_is_told(tuning: Tuning) -> None:
    rows = kernel_rows(replace(tuning, schedules={}))
    assert "faster by itself; the model was not faster with it" in {row.verdict for row in rows}
    plain = kernel_rows(replace(tuning, schedules={}, known={}, kernels=tuple(tasks())))
    assert {row.verdict for row in plain} == {"nothing else was measured"}


def test_the_page_has_everything(tuning: Tuning) -> None:
    page = tuning_page(tuning, "net & co.onnx", 2, 60)
    for text in ("net &amp; co.onnx", "a &lt;machine&gt;", "2.000 times as fast", "60 s", "61 s",
                 "3 of 7 distinct", "&lt;b&gt;&amp;", "crashed", "model channels: 8", "15 of 15",
                 "tried in an earlier run", "not faster: left out", ">taken<"):  # fmt: skip
        assert text in page, text
    assert page.count("model channels: 32") == page.count("tried in an earlier run") == 1
    assert "<b>&" not in page and "<machine>" not in page


def test_the_page_is_well_formed_and_loads_nothing(tuning: Tuning) -> None:
    empty = replace(tuning, kernels=(), schedules={}, above={}, trials=(), attempts=(), known={})
    for one in (tuning, empty):
        page = tuning_page(one, "m", 1, 5)
        assert not re.search(r"https?:|<script|<link|src=|url\(|@import", page)
        tags = _Tags()
        tags.feed(page)
        assert tags.open == []
    assert "the defaults stay" in tuning_page(empty, "m", 1, 5)


class _Tags(HTMLParser):
    """Elements that are open; each must be closed before those around it."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass


def test_what_differs_is_marked() -> None:
    text = compared(
        "tiled(tile={a0: 2, a1: 6}, parallel=16)", "tiled(tile={a0: 2, a1: 4}, dots=True)"
    )
    assert re.findall(r"<mark>(.*?)</mark>", text) == ["a1: 6", "parallel=16", "a1: 4", "dots=True"]
    assert "<mark>" not in compared("tiled()", "tiled()")


def test_the_page_of_a_run_that_goes_on_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run measured is on it, and counted."""
    begun: list[CanonicalKernel] = []

    class Counted(WorkerMeasurer):
        def times(
            self, kernel: CanonicalKernel, default: Schedule, others: Sequence[Schedule]
        ) -> list[Times]:
            begun.append(kernel)
            return super().times(kernel, default, others)

    # A second of the budget is a batch of candidates, however busy the machine.
    monkeypatch.setattr("modelcc.model_tuning.tuning.WorkerMeasurer", Counted)
    monkeypatch.setattr("modelcc.model_tuning.tuning.monotonic", lambda: float(len(begun)))
    model, page, database = tmp_path / "m.onnx", tmp_path / "p.html", tmp_path / "d.sqlite"
    onnx.save(onnx.parser.parse_model(MODEL), model)
    command = ["tune", str(model), "--threads", "1", "--cpu", "x86-64-v2", "--budget", "5s"]
    command += ["--database", str(database), "--no-cache"]
    assert main(command) == 0
    (key, *_) = [found.task.key for found in tasks()]
    with Database.open(database) as opened:
        (machine,) = opened.machines()
        before = len(opened.measurements(machine, key))
        opened.record(machine, [Measurement(key, "rows(lanes=1)", State.hung)])
    assert main([*command, "--page", str(page)]) == 0
    with Database.open(database) as opened:
        known = opened.measurements(machine, key)
    assert len(known) > before
    text = page.read_text()
    assert "rows(lanes=1)" in text and "hung" in text and f">{key}<" in text
