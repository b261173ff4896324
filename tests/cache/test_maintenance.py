"""Counting, trimming and clearing the folder of caches, with processes that were killed in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modelcc.cache.maintenance import Share, cache_usage, clear_cache, trim_cache, trim_now_and_then

DYING = """
import os, signal, sys
from pathlib import Path
from modelcc.artifact import replacement
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
replacement.os.replace = die
replacement.replace_file(Path(sys.argv[1]), lambda path: path.write_bytes(bytes(1000)))
"""

WRITING = """
import sys, time
from pathlib import Path
from modelcc.artifact.replacement import replace_file
def save(path):
    path.write_bytes(bytes(1000))
    print("half", flush=True)
    sys.stdin.readline()
replace_file(Path(sys.argv[1]), save)
"""


def write(path: Path, size: int, used: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (used, used))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache with something of every kind, the last ones used last; and the user's own files."""
    now = time.time()
    write(tmp_path / "artifacts/aa/aa11.mcc", 500, now - 50)
    write(tmp_path / "artifacts/aa/aa11.json", 2, now - 50)
    write(tmp_path / "objects/bb/bb22.mccobj", 300, now - 40)
    write(tmp_path / "artifacts/cc/cc33.mcc", 400, now - 30)
    write(tmp_path / "digests/dd44.json", 100, now - 20)
    write(tmp_path / "artifacts/aa/holiday.jpg", 70, now - 99)
    write(tmp_path / "model.mcc", 70, now - 99)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def kill_while_writing(folder: Path) -> None:
    place = folder / "artifacts/aa/aa99.mcc"
    subprocess.run([sys.executable, "-c", DYING, str(place)])
    assert cache_usage(folder).temporaries == Share(1, 1000)


def test_everything_is_counted(folder: Path) -> None:
    found = cache_usage(folder)
    assert (found.artifacts, found.objects, found.digests) == (
        Share(3, 902), Share(1, 300), Share(1, 100)
    )  # fmt: skip
    assert (found.files, found.bytes) == (5, 1302)
    assert cache_usage(folder / "nothing").files == 0


def test_the_least_recently_used_of_all_kinds_go_first(folder: Path) -> None:
    assert trim_cache(folder, 1302).files == 0
    removed = trim_cache(folder, 801)
    assert (removed.artifacts, removed.objects) == (Share(2, 502), Share())
    assert cache_usage(folder).bytes == 800
    assert trim_cache(folder, 500).objects == Share(1, 300)
    assert files(folder) == {"cc33.mcc", "dd44.json", "holiday.jpg", "model.mcc"}


def test_what_killed_processes_left_goes_at_once(folder: Path) -> None:
    kill_while_writing(folder)
    removed = trim_cache(folder)
    assert (removed.temporaries, removed.files) == (Share(1, 1000), 1)
    assert cache_usage(folder).temporaries == Share()


def test_what_is_being_written_stays(folder: Path) -> None:
    place = folder / "artifacts/aa/aa99.mcc"
    command = [sys.executable, "-c", WRITING, str(place)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "half\n"
        assert clear_cache(folder).temporaries == Share()
        writer.communicate("\n")
    assert place.stat().st_size == 1000


def test_digests_that_nobody_asks_for_go(folder: Path) -> None:
    old = write(folder / "digests/ee55.json", 10, time.time() - 40 * 86400)
    assert trim_cache(folder).digests == Share(1, 10) and not old.exists()


def test_clearing_takes_all_but_what_is_not_ours(folder: Path) -> None:
    kill_while_writing(folder)
    trim_now_and_then(folder)
    assert clear_cache(folder).bytes == 1302
    assert files(folder) == {"holiday.jpg", "model.mcc"}
    assert not (folder / "objects").exists()


def test_trimming_is_not_repeated_within_a_minute(folder: Path) -> None:
    trim_now_and_then(folder)
    kill_while_writing(folder)
    trim_now_and_then(folder)
    assert cache_usage(folder).temporaries.files == 1
    os.utime(folder / "trimmed", (1e9, 1e9))
    trim_now_and_then(folder)
    assert cache_usage(folder).temporaries.files == 0
