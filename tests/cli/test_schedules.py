"""``modelcc schedules``: list, export, import and clear, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modelcc.cli import main
from modelcc.tune.database import FILE, Database, Measurement, State

Capture = pytest.CaptureFixture[str]
MACHINE = "native: 256-bit vectors, 16 registers, 1 thread"
TEXT = "tiled(vector=a1v, lanes=8, tile={a1b: 2, a3: 6}, unroll={a2: 4}, parallel=16)"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two choices, one of them measured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    with Database.open(tmp_path / "cache" / FILE) as database:
        crash = Measurement("0" * 16, "rows(lanes=8)", State.crashed)
        database.record(MACHINE, [Measurement("f" * 16, TEXT, State.measured, 2.0, 2.5), crash])
        database.choose(MACHINE, {"f" * 16: TEXT, "0" * 16: "rows(lanes=4)"})
    return tmp_path / "cache"


def listed(capsys: Capture, *arguments: str) -> dict[str, object]:
    assert main(["schedules", "list", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_list(cache: Path, capsys: Capture) -> None:
    facts = listed(capsys)
    unknown = {"gain": None, "seconds": None, "default_seconds": None, "machine": MACHINE}
    known = {"gain": 1.25, "seconds": 2.0, "default_seconds": 2.5, "machine": MACHINE}
    assert facts["database"] == str(cache / FILE)
    assert facts["candidates"] == {"measured": 1, "crashed": 1, "hung": 0}
    assert facts["schedules"] == [
        {"workload": "0" * 16, "schedule": "rows(lanes=4)", **unknown},
        {"workload": "f" * 16, "schedule": TEXT, **known},
    ]
    assert main(["schedules", "list"]) == 0
    said = capsys.readouterr()
    for part in ("f" * 16, "1.25", "rows(lanes=4)", "machine"):
        assert part in said.out
    assert max(map(len, said.out.splitlines()[1:])) <= 80 and TEXT not in said.out
    assert "2 schedules" in said.err and "1 crashed" in said.err


def test_the_best_of_each_workload_where_the_default_is_far_from_it(
    cache: Path, capsys: Capture
) -> None:
    with Database.open(cache / FILE) as database:
        rows = [("e", "a", 1.0, 1.05), ("d", "a", 1.0, 1.2), ("d", "b", 1.0, 1.5), ("d", "c", 3, 2)]
        found = [Measurement(w * 16, s, State.measured, own, d) for w, s, own, d in rows]
        database.record(MACHINE, found)
    for gain, wanted in (
        ("1.1", [("d" * 16, "b", 1.5), ("f" * 16, TEXT, 1.25)]),
        ("1.3", [("d" * 16, "b", 1.5)]),
        ("2", []),
    ):
        shown = listed(capsys, "--best", gain)["schedules"]
        assert isinstance(shown, list)
        keys = ("workload", "schedule", "gain")
        assert [tuple(row[key] for key in keys) for row in shown] == wanted  # type: ignore[index]
    assert main(["schedules", "list", "--best", "fast"]) == 2


def test_schedules_go_elsewhere(cache: Path, capsys: Capture) -> None:
    before = listed(capsys)
    assert main(["schedules", "export", "out.sqlite"]) == 0
    assert main(["schedules", "import", "out.sqlite", "--database", "new/d"]) == 0
    assert "4 rows" in capsys.readouterr().err
    assert listed(capsys, "--database", "new/d") == {**before, "database": "new/d"}
    assert main(["schedules", "import", "out.sqlite"]) == 0
    assert "0 rows" in capsys.readouterr().err
    assert main(["schedules", "clear"]) == 0
    assert "4 rows" in capsys.readouterr().err and listed(capsys)["schedules"] == []
    assert main(["schedules", "import", "out.sqlite"]) == 0 and listed(capsys) == before


@pytest.mark.parametrize("command", ["list", "export", "clear"])
def test_looking_makes_no_file(command: str, tmp_path: Path, cache: Path, capsys: Capture) -> None:
    (cache / FILE).unlink()
    arguments = ["out"] if command == "export" else []
    assert main(["schedules", command, *arguments]) == 0
    assert not (cache / FILE).exists()
    assert main(["schedules", command, *arguments, "--database", "none"]) == 2
    assert "none: there is no such file\n  hint: " in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_wrong_files_are_refused(cache: Path, capsys: Capture) -> None:
    before = listed(capsys)
    Path("text").write_text("hello" * 99)
    for arguments, place in (
        (["import", "text"], "text"),
        (["import", "none"], "none"),
        (["import", "cache"], "cache"),
        (["export", "text"], "text"),
        (["export", "cache"], "cache"),
        (["export", f"cache/{FILE}"], FILE),
        (["export", "none/out"], "none/out"),
        (["list", "--database", "text"], "text"),
        (["clear", "--database", "cache"], "cache"),
    ):
        assert main(["schedules", *arguments]) == 2, arguments
        said = capsys.readouterr().err
        assert f"{place}: " in said and "  hint: " in said
    assert listed(capsys) == before and Path("text").read_text() == "hello" * 99


def test_without_a_cache_the_file_is_to_be_named(
    cache: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELCC_CACHE_DIR", "")
    assert main(["schedules", "list"]) == 2
    assert "--database" in capsys.readouterr().err
    assert len(listed(capsys, "--database", str(cache / FILE))["schedules"]) == 2  # type: ignore[arg-type]
