"""The database of schedules: what is recorded stays, whatever happens to process and file."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from modelcc.cache.maintenance import clear_cache
from modelcc.ir.errors import ModelError
from modelcc.tune.database import FILE, FORMAT, Database, Measurement, State

M, W = "native: 512-bit vectors", "83f1c2d4a5b69788"
NOBODY = 65534


def measured(schedule: str, seconds: float = 0.5, workload: str = W) -> Measurement:
    return Measurement(workload, schedule, State.measured, seconds, 1.0)


def write(path: Path, *schedules: str, chosen: str = "") -> Path:
    with Database.open(path) as database:
        database.record(M, [measured(text) for text in schedules])
        database.choose(M, {W: chosen})
    return path


def schedules(path: Path) -> list[str]:
    with Database.open(path, write=False) as database:
        return list(database.measurements(M, W))


def sqlite(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """What SQLite itself says to the last of ``statements``."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def refused(path: Path, write: bool = True) -> str:
    with pytest.raises(ModelError) as caught:
        Database.open(path, write)
    assert caught.value.where == (str(path),) and caught.value.hint
    return caught.value.message


def test_what_is_recorded_is_found_again(tmp_path: Path) -> None:
    rows = [measured("b"), Measurement(W, "a", State.crashed), Measurement("v", "a", State.hung)]
    with Database.open(tmp_path / "new" / "d") as database:
        database.record(M, rows)
        database.record("other", [measured("c")])
    with Database.open(tmp_path / "new" / "d", write=False) as database:
        assert database.measurements(M, W) == {"a": rows[1], "b": rows[0]}
        assert database.measurements(M, "v") == {"a": rows[2]}
        assert database.measurements("none", W) == {} and database.machines() == [M, "other"]
        assert database.counts() == {State.measured: 2, State.crashed: 1, State.hung: 1}
        assert [m.gain for m in rows] == [2.0, None, None]
    assert os.listdir(tmp_path / "new") == ["d"]


def test_nothing_is_recorded_twice(tmp_path: Path) -> None:
    with Database.open(tmp_path / "d") as database:
        database.record(M, [measured("a", 1), measured("a", 2)])
        database.record(M, [measured("b", 3), Measurement(W, "a", State.hung)])
        assert database.measurements(M, W) == {"a": measured("a", 1), "b": measured("b", 3)}


def test_all_of_a_record_is_there_or_nothing(tmp_path: Path) -> None:
    with Database.open(tmp_path / "d") as database:
        with pytest.raises(ModelError):
            database.record(M, [measured("a"), measured(None)])  # type: ignore[arg-type]
        assert not database.measurements(M, W)
        database.record(M, [measured("b")])
    assert schedules(tmp_path / "d") == ["b"]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_seconds_are_numbers(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        measured("a", seconds)


def test_choices_are_replaced_and_taken_back(tmp_path: Path) -> None:
    with Database.open(tmp_path / "d") as database:
        database.choose(M, {"v": "a", "w": "b"})
        database.choose("other", {"v": "z"})
        database.choose(M, {"v": "c", "u": "d", "t": ""})
        assert database.chosen(M) == {"u": "d", "v": "c", "w": "b"}
        database.choose(M, {"v": "", "w": "e"})
        assert database.chosen(M) == {"u": "d", "w": "e"}
        assert database.chosen("other") == {"v": "z"} and database.chosen("none") == {}


def test_clearing_forgets_everything(tmp_path: Path) -> None:
    write(tmp_path / "d", "a", "b", chosen="a")
    with Database.open(tmp_path / "d") as database:
        assert database.clear() == 3
        assert database.machines() == [] and database.chosen(M) == {}


def test_clearing_the_cache_leaves_it(tmp_path: Path) -> None:
    write(tmp_path / FILE, "a")
    clear_cache(tmp_path)
    assert schedules(tmp_path / FILE) == ["a"]


# --- merge and export ---------------------------------------------------------------------------


def test_merging_takes_what_is_lacking(tmp_path: Path) -> None:
    with Database.open(tmp_path / "other") as other:
        other.record(M, [measured("a", 7), measured("c")])
        other.choose(M, {W: "c", "v": "c"})
    with Database.open(write(tmp_path / "d", "a", "b", chosen="b")) as database:
        assert database.merge(tmp_path / "other") == 2
        assert [*database.measurements(M, W)] == ["a", "b", "c"]
        assert database.measurements(M, W)["a"] == measured("a")
        assert database.chosen(M) == {W: "b", "v": "c"}
        assert database.merge(tmp_path / "other") == database.merge(tmp_path / "d") == 0


def test_merging_what_is_not_there_or_damaged_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    write(tmp_path / "bad", "a", "c")
    sqlite(tmp_path / "bad", "UPDATE measurements SET state = 'odd' WHERE schedule = 'c'")
    with Database.open(write(tmp_path / "d", "b")) as database:
        for name in ("none", "text", "bad", "."):
            with pytest.raises(ModelError) as caught:
                database.merge(tmp_path / name)
            assert caught.value.where == (str(tmp_path / name),) and caught.value.hint
        assert [*database.measurements(M, W)] == ["b"]
    assert not (tmp_path / "none").exists()


def test_exports_of_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    texts = [f"tiled({n})" * 20 for n in range(60)]
    for seed in (1, 2):
        random.Random(seed).shuffle(texts)
        with Database.open(tmp_path / f"d{seed}") as database:
            for part in range(0, len(texts), 10 * seed):
                database.record(M, [measured(text) for text in texts[part : part + 10 * seed]])
            database.choose(M, {W: texts[0], f"v{seed}": "a"})
            database.choose(M, {W: "a", f"v{seed}": ""})
            database.export(tmp_path / f"e{seed}")
    assert (tmp_path / "e1").read_bytes() == (tmp_path / "e2").read_bytes()
    assert schedules(tmp_path / "e1") == sorted(texts)
    assert {path.name for path in tmp_path.iterdir()} == {"d1", "d2", "e1", "e2"}


def test_an_export_replaces_an_export_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "old", "z")
    (tmp_path / "photo").write_bytes(b"\xff\xd8\xff" * 99)
    sqlite(tmp_path / "mail", "CREATE TABLE mail (body)", "INSERT INTO mail VALUES ('hello')")
    (tmp_path / "link").symlink_to(tmp_path / "d")
    before = {name: (tmp_path / name).read_bytes() for name in ("photo", "mail")}
    with Database.open(write(tmp_path / "d", "a")) as database:
        database.export(tmp_path / "old")
        for name in ("photo", "mail", "d", "link", ".", "none/e"):
            with pytest.raises(ModelError) as caught:
                database.export(tmp_path / name)
            assert caught.value.where == (str(tmp_path / name),) and caught.value.hint
    assert schedules(tmp_path / "old") == schedules(tmp_path / "d") == ["a"]
    assert before == {name: (tmp_path / name).read_bytes() for name in before}


# --- files that are none of ours ----------------------------------------------------------------


def test_reading_what_is_not_there_makes_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "d", tmp_path / "folder" / "d", Path("/dev/null/d")):
        with Database.open(path, write=False) as database:
            assert database.machines() == [] and database.chosen(M) == {}
            with pytest.raises(ModelError, match="cannot be written"):
                database.choose(M, {W: "a"})
    assert not any(tmp_path.iterdir())


def test_an_empty_file_is_an_empty_database(tmp_path: Path) -> None:
    (tmp_path / "d").touch()
    assert schedules(tmp_path / "d") == [] and (tmp_path / "d").read_bytes() == b""
    assert schedules(write(tmp_path / "d", "a")) == ["a"]


@pytest.mark.parametrize("write_it", [True, False])
def test_folders_devices_and_pipes_are_refused(tmp_path: Path, write_it: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a folder" in refused(tmp_path, write_it)
    assert "no ordinary file" in refused(tmp_path / "pipe", write_it)
    assert "no ordinary file" in refused(Path("/dev/null"), write_it)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="cannot be made") as caught:
        Database.open(tmp_path / "file" / "deep" / "d")
    assert caught.value.where == (str(tmp_path / "file" / "deep"),)


@pytest.mark.parametrize("write_it", [True, False])
def test_databases_of_others_and_of_the_future_stay_as_they_are(
    tmp_path: Path, write_it: bool
) -> None:
    sqlite(tmp_path / "mail", "CREATE TABLE mail (body)")
    sqlite(tmp_path / "named", "PRAGMA application_id = 7")
    sqlite(tmp_path / "numbered", "PRAGMA user_version = 1")
    sqlite(write(tmp_path / "newer", "a"), f"PRAGMA user_version = {FORMAT.version + 1}")
    for path in sorted(tmp_path.iterdir()):
        before = path.read_bytes()
        message = refused(path, write_it)
        assert ("newer modelcc" if path.name == "newer" else "another program") in message
        assert path.read_bytes() == before


@pytest.mark.parametrize("write_it", [True, False])
def test_text_and_cut_files_are_refused_as_they_are(tmp_path: Path, write_it: bool) -> None:
    write(tmp_path / "d", *(f"tiled({n})" * 20 for n in range(200)))
    whole = (tmp_path / "d").read_bytes()
    for contents in (b"text", b"\0" * 9000, whole[:50], whole[:5000], whole[: len(whole) // 2]):
        (tmp_path / "d").write_bytes(contents)
        with pytest.raises(ModelError) as caught, Database.open(tmp_path / "d", write_it) as found:
            found.contents()
        assert caught.value.where == (str(tmp_path / "d"),) and "damaged" in caught.value.message
        assert (tmp_path / "d").read_bytes() == contents


def test_changed_bytes_do_no_harm(tmp_path: Path) -> None:
    """Contents may be others then, for texts have no checksums; every fault is a ModelError."""
    write(tmp_path / "d", *(f"tiled({n})" * 20 for n in range(50)), chosen="a")
    whole = (tmp_path / "d").read_bytes()
    draw = random.Random(0)
    for _ in range(150):
        damaged = bytearray(whole)
        for place in draw.choices((range(200), range(len(whole))), k=2):
            damaged[draw.choice(place)] = draw.randrange(256)
        (tmp_path / "d").write_bytes(damaged)
        try:
            with Database.open(tmp_path / "d", write=False) as database:
                database.contents()
                database.chosen(M)
        except ModelError as error:
            assert error.where == (str(tmp_path / "d"),) and error.hint


@contextmanager
def nobody() -> Generator[Path]:
    """A folder of a user for whom rights count, as which the process runs while it lasts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid():
            yield folder
            folder.chmod(0o755)
            return
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield folder
            folder.chmod(0o755)
        finally:
            os.seteuid(0)


def test_what_can_only_be_read_is_read_and_not_written() -> None:
    with nobody() as folder:
        path = write(folder / "d", "a")
        path.chmod(0o444)
        assert schedules(path) == ["a"] and "cannot be written" in refused(path)
        folder.chmod(0o555)
        assert schedules(path) == ["a"] and "cannot be written" in refused(path)
        path.chmod(0o644)
        assert schedules(path) == ["a"] and "cannot be" in refused(path)
        assert "cannot be opened" in refused(folder / "new")
        with Database.open(path, write=False) as database, pytest.raises(ModelError) as caught:
            database.export(folder / "e")
        assert "Permission denied" in caught.value.message
        path.chmod(0)
        assert "may not read" in refused(path) and "may not read" in refused(path, write=False)
        folder.chmod(0)
        assert "Permission denied" in refused(path) and "Permission" in refused(path, write=False)


# --- several processes --------------------------------------------------------------------------

KILLING = """
import os, random, signal, sys, time
from pathlib import Path
from modelcc.tune.database import Database, Measurement, State

def record(name, path, told):
    for count in range(0, 10**9, 7):
        with Database.open(path) as database:
            batch = [f"{name} {n}" for n in range(count, count + 7)]
            database.record("m", [Measurement("w", s, State.measured, 1.0, 1.0) for s in batch])
            database.choose("m", {name: batch[-1]})
        os.write(told, bytes(7))

def start(name, path):
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        record(name, path, writing)
    finally:
        os._exit(1)

def kill(child, reading, records):
    first = os.read(reading, 7) if records else b""
    time.sleep(draw.random() * 0.06)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "it ended by itself"
    with open(reading, "rb") as pipe:
        return len(first) + len(pipe.read())

draw, path, told = random.Random(int(sys.argv[2])), Path(sys.argv[1]), {}
for turn in range(20):
    running = [(name, start(name, path)) for name in (f"a{turn}", f"b{turn}")]
    for name, process in running:
        # A busy machine may take longer than that to come to the first record.
        told[name] = kill(*process, records=turn % 2 == 1)
    with Database.open(path, write=False) as database:
        assert database.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found, chosen = database.measurements("m", "w"), database.chosen("m")
    for name, count in told.items():
        mine = sum(text.startswith(name + " ") for text in found)
        last = -1 if name not in chosen else int(chosen[name].split()[1])
        assert mine in (count, count + 7) and count <= last + 1 <= mine and mine % 7 == 0
print(sum(told.values()))
"""


def python(code: str, *arguments: object) -> str:
    """Output of ``code`` in a fresh interpreter."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_killed_at_any_moment_leave_what_they_had_recorded(tmp_path: Path) -> None:
    assert int(python(KILLING, tmp_path / "d", 12)) > 0
    assert sqlite(tmp_path / "d", "PRAGMA integrity_check") == [("ok",)]


HALF = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("PRAGMA cache_spill = 1")
connection.execute("BEGIN IMMEDIATE")
for n in range(2000):
    connection.execute("INSERT INTO choices VALUES ('m', ?, ?)", (f"w{n}", "s" * 99))
connection.execute("DELETE FROM measurements")
print(os.path.getsize(sys.argv[1]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def half_written(path: Path) -> Path:
    """A database whose writer was killed when the half of a transaction was in the file."""
    write(path, "a")
    size = path.stat().st_size
    done = subprocess.run([sys.executable, "-c", HALF, str(path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL and int(done.stdout) > 2 * size
    assert path.with_name(f"{path.name}-journal").exists()
    return path


@pytest.mark.parametrize("write_it", [True, False])
def test_what_a_killed_process_wrote_half_is_undone(tmp_path: Path, write_it: bool) -> None:
    with Database.open(half_written(tmp_path / "d"), write_it) as database:
        assert [*database.measurements(M, W)] == ["a"] and database.machines() == [M]
    assert os.listdir(tmp_path) == ["d"]


def test_half_written_files_that_can_only_be_read_are_refused(tmp_path: Path) -> None:
    half_written(tmp_path / "d")
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with nobody() as folder:
        for name, data in contents.items():
            (folder / name).write_bytes(data)
        path = folder / "d"
        path.chmod(0o444)
        folder.chmod(0o555)
        with pytest.raises(ModelError) as caught:
            schedules(path)
        assert "cannot be" in caught.value.message and "right to write" in str(caught.value)
        path.chmod(0o644)
        folder.chmod(0o755)
        assert schedules(path) == ["a"]


def test_a_writer_waits_for_another_and_says_when_it_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelcc.tune.sqlite_file.WAIT", 0.05)
    path = write(tmp_path / "d", "a")
    other = sqlite3.connect(path, isolation_level=None)
    with closing(other), Database.open(path) as database:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ModelError, match="another process") as caught:
            database.record(M, [measured("b")])
        assert caught.value.where == (str(path),)
        assert schedules(path) == ["a"]
        other.execute("COMMIT")
        database.record(M, [measured("b")])
    assert schedules(path) == ["a", "b"]


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    write(tmp_path / "d", "a")
    code = """
import resource, sys
from pathlib import Path
from modelcc.ir.errors import ModelError
from modelcc.tune.database import Database, Measurement, State
with Database.open(Path(sys.argv[1])) as database:
    resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))
    try:
        rows = [Measurement("w", f"{n}" * 99, State.crashed) for n in range(999)]
        database.record("m", rows)
    except ModelError as error:
        print(error)
"""
    assert str(tmp_path / "d") in python(code, tmp_path / "d")
    assert schedules(tmp_path / "d") == ["a"]
    with Database.open(tmp_path / "d") as database:
        assert database.machines() == [M]
