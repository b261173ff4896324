"""The cache of artifacts: found by content, invalid when a file it hangs on changes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from modelcc.compile_cache import ArtifactCache, external_files, replace_file
from modelcc.ir.graph import Constant, Graph


def write(contents: bytes) -> object:
    return lambda path: path.write_bytes(contents)


def test_finds_what_was_added(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    assert cache.find("aa11") is None
    path = cache.add("aa11", write(b"one"), ())
    assert cache.find("aa11") == path and path.read_bytes() == b"one"


def test_a_changed_file_invalidates(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"first")
    cache = ArtifactCache(tmp_path / "cache")
    cache.add("aa11", write(b"one"), (weights,))
    assert cache.find("aa11") is not None
    weights.write_bytes(b"other")
    assert cache.find("aa11") is None
    weights.unlink()
    assert cache.find("aa11") is None


def test_the_least_used_goes_first(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, limit=250)
    for number, key in enumerate(("aa", "bb", "cc")):
        path = cache.add(key, write(bytes(100)), ())
        os.utime(path, (number, number))
    assert [cache.find(key) is not None for key in ("aa", "bb")] == [False, True]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_file(target, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert target.read_bytes() == b"old"


def test_mapped_constants_name_their_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(64))
    mapped = np.memmap(path, np.uint8, "r", 0, (64,)).view(np.float32)[4:8]
    constants = {"w": Constant(mapped), "v": Constant(np.zeros(3, np.float32))}
    types = {name: constant.type for name, constant in constants.items()}
    assert external_files(Graph("g", (), ("w",), (), types, constants)) == (path,)
