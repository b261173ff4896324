"""Bad input of tuning: each refused with the place and the reason, and what was there stays."""

from __future__ import annotations

import os
import shlex
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import onnx
import onnx.parser
import pytest

import modelcc.tune.sqlite_file
from modelcc.cli import main
from modelcc.tune.database import FILE, Database, Measurement, State

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[24, 40] x, float[40, 36] w) => (float[24, 36] y) { y = MatMul(x, w) }"""
BUDGET = "--budget 5s --threads 1 --cpu x86-64-v2"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With ``m.onnx``, its ``s.txt``, a database ``d`` with a choice, and others that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", str(tmp_path / "cache"))
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    assert main(shlex.split("compile m.onnx --cpu x86-64-v2 --emit schedule -o s.txt")) == 0
    with Database.open(Path("d")) as database:
        rows = [Measurement("w", f"tiled(lanes={n})", State.measured, 1, 2) for n in range(200)]
        database.record("m", rows)
        database.choose("m", {"w": "tiled(lanes=2)"})
    whole = Path("d").read_bytes()
    Path("cut").write_bytes(whole[: len(whole) // 2])
    Path("changed").write_bytes(whole[:100] + b"\xff" * 400 + whole[500:])
    Path("text").write_text("no database\n" * 50)
    Path("folder").mkdir()
    for name, pragma in (("newer", "user_version = 9"), ("foreign", "application_id = 7")):
        Path(name).write_bytes(whole)
        with closing(sqlite3.connect(name)) as connection:
            connection.execute(f"PRAGMA {pragma}")
    text = Path("s.txt").read_text()
    key = next(line for line in text.splitlines() if line.startswith("kernel")).split(":")[0]
    Path("machine.txt").write_text(text.replace("128-bit", "512-bit"))
    Path("workload.txt").write_text(text.replace(key, "kernel 0123456789abcdef"))
    Path("kind.txt").write_text(f"{key}: row_blocks(rows=8)\n")
    Path("cut.txt").write_text(text[: text.rindex("{")])
    Path("binary.txt").write_bytes(b"\xff\xfe\0" * 40)
    return tmp_path


def contents(folder: Path) -> dict[str, object]:
    """Bytes of files, but rows of the database ``d``: opening it to write counts in its head."""
    files = [p for p in folder.rglob("*") if p.is_file() and "cache" not in p.parts]
    found: dict[str, object] = {str(path): path.read_bytes() for path in files if path.name != "d"}
    with Database.open(folder / "d", write=False) as database:
        return {**found, "d": database.contents()}


SCHEDULES = (
    ("machine.txt", ("'512-bit vectors", "this is '128-bit", "hint: delete its line")),
    ("workload.txt", ("line ", "no kernel of this model has the key 0123456789abcdef", "hint:")),
    ("kind.txt", ("kernel is not two contractions", "MatMul#0", "hint:")),
    ("cut.txt", ("line ", "this is no schedule at column")),
    ("binary.txt", ("binary.txt",)),
    ("folder", ("folder", "Is a directory")),
    ("none.txt", ("none.txt", "No such file")),
)


@pytest.mark.parametrize(("name", "says"), SCHEDULES)
def test_schedules_that_do_not_fit(
    name: str, says: tuple[str, ...], folder: Path, capsys: Capture
) -> None:
    before = contents(folder)
    command = f"compile m.onnx --cpu x86-64-v2 --schedule {name} -o a.mcc"
    assert main(shlex.split(command)) == 2
    said = capsys.readouterr().err
    assert all(text in said for text in says) and "Traceback" not in said
    assert contents(folder) == before


DATABASES = (
    ("cut", "damaged"),
    ("changed", "damaged"),
    ("text", "this is no database of schedules"),
    ("m.onnx", "this is no database of schedules"),
    ("folder", "this is a folder"),
    ("newer", "a newer modelcc wrote it (version 9, this one knows 2)"),
    ("foreign", "database of another program"),
)
COMMANDS = (
    f"tune m.onnx {BUDGET} --database {{0}} --page p.html -o o.txt",
    "schedules list --database {0}",
    "schedules import {0} --database d",
    "schedules export {0} --database d",
    "schedules clear --database {0}",
)


# What is an export by its head is to be replaced by another one.
MEETINGS = [
    (command, *database)
    for command in COMMANDS
    for database in DATABASES
    if "export" not in command or database[0] != "changed"
]


@pytest.mark.parametrize(("command", "name", "says"), MEETINGS)
def test_files_that_are_no_database(
    command: str, name: str, says: str, folder: Path, capsys: Capture
) -> None:
    before = contents(folder)
    assert main(shlex.split(command.format(name))) == 2
    said = capsys.readouterr().err
    assert f"{name}: " in said and says in said and "hint: " in said and "Traceback" not in said
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["cut", "text", "newer", "foreign"])
def test_compiling_as_tuned_does_not_go_on_without_the_database(
    name: str, folder: Path, capsys: Capture
) -> None:
    place = folder / "cache" / FILE
    place.parent.mkdir(exist_ok=True)
    place.write_bytes((folder / name).read_bytes())
    assert main(shlex.split("compile m.onnx --tuned -o a.mcc")) == 2
    said = capsys.readouterr().err
    assert FILE in said and "hint: " in said and "Traceback" not in said
    assert not Path("a.mcc").exists() and place.read_bytes() == (folder / name).read_bytes()


def test_a_database_that_another_process_writes(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelcc.tune.sqlite_file, "WAIT", 0.1)
    before = contents(folder)
    with closing(sqlite3.connect("d", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for command in COMMANDS[:2]:
            assert main(shlex.split(command.format("d"))) == 2
            said = capsys.readouterr().err
            assert "d: another process has been writing it" in said and "hint: " in said
        other.execute("ROLLBACK")
    assert contents(folder) == before


TUNES = (
    ("--budget 4.9s", "a budget of 4.9 s is too small", "hint: give at least 5 s"),
    ("--budget 0", "a budget of 0 s is too small", "hint:"),
    ("--budget nan", "'nan' is no time", "90s, 3m or 1h"),
    ("--budget -3s", "'-3s' is no time", "90s, 3m or 1h"),
    ("--budget 1e9h", "'1e9h' is no time", "90s, 3m or 1h"),
    (f"{BUDGET} --schedule s.txt", "starts from the schedules that a model has by default", "hint"),
    (f"{BUDGET} --tuned", "starts from the schedules that a model has by default", "hint"),
    (f"{BUDGET} --page folder", "cannot write folder: it is a folder", "hint"),
    (f"{BUDGET} -o folder", "cannot write folder: it is a folder", "hint"),
    (f"{BUDGET} --page none/p.html", "there is no folder none", ""),
    (f"{BUDGET} --page m.onnx", "m.onnx", "would be overwritten"),
    (f"{BUDGET} -o d --database d", "d is the file d that is read", "would be overwritten"),
    (f"{BUDGET} -o new --database ./new", "are the same file", "hint"),
    (f"{BUDGET} -o o.txt --page o.txt", "are the same file", "hint"),
    ("--budget 5s --cpu x86-64-v3,+avx512f,-avx512f", "unknown processor", "hint: choose one of"),
    ("--budget 5s --cpu znver4,-avx2", "unknown processor 'znver4,-avx2'", "did you mean 'znver4'"),
    ("--budget 5s --target nowhere", "nowhere", ""),
    ("--budget 5s --target cuda:sm_80", "target 'cuda' are not measured", "hint: those of native"),
)


@pytest.mark.parametrize(("arguments", "says", "more"), TUNES)
def test_wrong_arguments_are_refused_before_any_work(
    arguments: str, says: str, more: str, folder: Path, capsys: Capture
) -> None:
    before = contents(folder)
    assert main(shlex.split(f"tune m.onnx {arguments}")) == 2
    said = capsys.readouterr().err
    assert says in said and more in said and "Traceback" not in said
    assert contents(folder) == before


@pytest.fixture
def closed() -> Generator[Path]:
    """A folder with a model that a user for whom rights count can only read."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        onnx.save(onnx.parser.parse_model(MODEL), place / "m.onnx")
        with Database.open(place / "d") as database:
            database.choose("m", {"w": "tiled(lanes=2)"})
        root = os.geteuid() == 0
        (place / "d").chmod(0o444)
        place.chmod(0o555)
        if root:
            os.seteuid(65534)
        yield place
        if root:
            os.seteuid(0)
        place.chmod(0o755)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--database {0}/d", "d: it cannot be written"),
        ("--database {0}/new", "new: it, or the journal beside it, cannot be opened"),
        ("--database {0}/deep/new", "cannot be made (Permission denied)"),
        ("--database {1}/d -o {0}/o.txt", "this user may not write in its folder"),
        ("--database {1}/d --page {0}/p.html", "this user may not write in its folder"),
    ],
)
def test_what_can_only_be_read(arguments: str, says: str, closed: Path, capsys: Capture) -> None:
    with tempfile.TemporaryDirectory() as own:
        before = contents(closed)
        command = f"tune {closed}/m.onnx --no-cache {BUDGET} {arguments.format(closed, own)}"
        assert main(shlex.split(command)) == 2
        said = capsys.readouterr().err
        assert says in said and "hint: " in said and "Traceback" not in said
        assert contents(closed) == before
