"""The object cache: keys, damage, eviction, several processes at once."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from modelcc.targets.native.cache import ObjectCache
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import CodegenOptions, object_key

MACHINE = Machine("x86_64-linux-gnu", "znver4", ("+avx2",), 256)
OPTIONS = CodegenOptions()
KEY = object_key("text", MACHINE, OPTIONS)


def entry_of(cache: Any, key: str):
    return next(cache.directory.glob(f"*/{key}*"))


def test_get_returns_what_was_put(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "new")
    assert cache.get(KEY) is None
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"
    cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"


def test_the_key_depends_on_everything() -> None:
    keys = {
        KEY,
        object_key("text ", MACHINE, OPTIONS),
        object_key("text", replace(MACHINE, cpu="znver5"), OPTIONS),
        object_key("text", replace(MACHINE, features=("+avx",)), OPTIONS),
        object_key("text", MACHINE, replace(OPTIONS, optimize=1)),
        object_key("text", MACHINE, replace(OPTIONS, abi="lp64d")),
    }
    assert len(keys) == 6
    assert object_key("text", replace(MACHINE), CodegenOptions()) == KEY


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "alien"])
def test_a_damaged_entry_is_absent_and_removed(tmp_path: Path, damage: Any) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"object" * 100)
    path = entry_of(cache, KEY)
    entry = path.read_bytes()
    flipped = entry[:-1] + bytes([entry[-1] ^ 1])
    path.write_bytes({"cut": entry[:-3], "flip": flipped, "empty": b"", "alien": b"#!"}[damage])
    assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"


def test_no_temporary_files_remain(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"x")
    assert [path.name for path in tmp_path.rglob(".*")] == []


WRITER = """
import sys
from pathlib import Path
from modelcc.cache.maintenance import trim_cache
from modelcc.targets.native.cache import ObjectCache
cache = ObjectCache(Path(sys.argv[1], "objects"))
wrong = 0
for n in range(200):
    key = f"{n % 17:064x}"
    contents = bytes([n % 17]) * 2000
    found = cache.get(key)
    wrong += found not in (None, contents)
    cache.put(key, contents)
    if n % 10 == 0:
        trim_cache(Path(sys.argv[1]), 20000)
sys.exit(wrong)
"""


def test_processes_share_a_directory(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)]) for _ in range(3)]
    assert [writer.wait(timeout=300) for writer in writers] == [0, 0, 0]
