"""What compilation makes of schedules that tuning found, and of those that do not fit any more."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc.driver import target_of
from modelcc.options import Options
from modelcc.report.tables import report_tables
from modelcc.targets.cpu import schedule as scheduling
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.database import FILE, Database
from tests.schedule.test_listing import CPU, MODEL, listing

STALE = ("tiled(vector=old_loop, lanes=4)", "whirl(speed=9)", "row_sums(block=64)")


def chosen(cache: Path, schedule: str) -> str:
    """The key of the only kernel, for which ``schedule`` is now chosen."""
    key = re.search(r"^kernel (\w+): ", listing(), re.MULTILINE)
    target = target_of(Options(cpu=CPU))
    assert key is not None and isinstance(target, CpuTarget)
    with Database.open(cache / FILE) as database:
        database.choose(target.tuning_key, {key[1]: schedule})
    return key[1]


def compiled(cache: Path, **more: Any) -> modelcc.Model:
    return modelcc.compile(MODEL.SerializeToString(), cpu=CPU, threads=1, cache=cache, **more)


@pytest.mark.parametrize("text", STALE)
def test_a_tuned_schedule_that_does_not_fit_gives_way_to_the_default(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = chosen(tmp_path, text)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 36)))
    for _ in ("compiled", "from the cache"):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "modelcc"):
            model = compiled(tmp_path, tuned=True)
        (warning,) = caplog.messages
        assert key in warning and "does not fit" in warning and "tune the model anew" in warning
        (note,) = model.report().notes
        assert report_tables(model.report())
        assert note == warning and note in str(model.report())
        np.testing.assert_allclose(model(x, w), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)
    with pytest.raises(modelcc.ModelError):
        compiled(tmp_path, schedule=f"kernel {key}: {text}\n")


def test_a_tuned_schedule_that_fits_is_used_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen(tmp_path, "tiled()")
    with caplog.at_level(logging.WARNING, "modelcc"):
        model = compiled(tmp_path, tuned=True)
    assert caplog.messages == [] and model.report().notes == ()
    assert compiled(tmp_path).report().notes == ()


def test_a_program_with_a_listing_is_scheduled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text, calls = listing(), list[str]()
    lower = scheduling.schedule_kernel

    def counted(kernel: Any, name: str, *rest: Any) -> Any:
        calls.append(name)
        return lower(kernel, name, *rest)

    defaults = scheduling.schedule_program.__defaults__ or ()
    replaced = tuple(counted if value is lower else value for value in defaults)
    monkeypatch.setattr(scheduling.schedule_program, "__defaults__", replaced)
    modelcc.compile(MODEL, cpu=CPU, threads=1, schedule=text, cache=None)
    assert len(calls) == text.count("\nkernel ") == 1
