"""A run that is killed goes on as if it had not been."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.killed_training import killed


def test_killed_runs_end_bit_by_bit_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{root / 'src'}:{root}")
    monkeypatch.setenv("MODELCC_CACHE_DIR", str(tmp_path / "cache"))
    tally = killed(3, 1, tmp_path)
    assert tally.kills == 3
    assert tally.runs >= 1
