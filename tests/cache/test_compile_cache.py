"""The cache of artifacts: found by content, invalid when a file it depends on changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest

import modelcc
from modelcc.cache.compile_cache import ArtifactCache, artifact_key, replace_file
from modelcc.cache.file_digests import file_digest, known_digest
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Range, Sym
from modelcc.ir.types import F32, TensorType
from modelcc.ops.elementwise import Mul
from tests.machines import chosen_options


def write(contents: bytes) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        path.write_bytes(contents)

    return save


def test_finds_what_was_added(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    assert cache.find("aa11") is None
    path = cache.add("aa11", write(b"one"), {})
    assert cache.find("aa11") == path and path.read_bytes() == b"one"


def test_a_changed_file_invalidates(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"first")
    cache = ArtifactCache(tmp_path / "cache")
    cache.add("aa11", write(b"one"), cache.digests_of([weights]))
    assert cache.find("aa11") is not None
    weights.write_bytes(b"other")
    assert cache.find("aa11") is None
    weights.unlink()
    assert cache.find("aa11") is None


def test_files_that_did_not_change_are_read_once(tmp_path: Path) -> None:
    weights, key = tmp_path / "weights.bin", "aa11"
    weights.write_bytes(b"first")
    os.utime(weights, (1e9, 1e9))
    cache = ArtifactCache(tmp_path / "cache", digests=tmp_path / "digests")
    settled = weights.stat().st_ctime_ns + 3_000_000_000
    with mock.patch("modelcc.cache.file_digests.time.time_ns", return_value=settled):
        cache.add(key, write(b"one"), cache.digests_of([weights]))
        with mock.patch("modelcc.cache.file_digests.file_digest", side_effect=AssertionError):
            assert cache.find(key) is not None
        weights.write_bytes(b"other")
        assert cache.find(key) is None


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


def test_digests_are_kept_until_the_file_changes(tmp_path: Path) -> None:
    path, folder = tmp_path / "model", tmp_path / "digests"
    path.write_bytes(b"one")
    first = known_digest(path, folder)
    assert first == file_digest(path) and not folder.exists()  # changed just now: not trusted
    os.utime(path, (1e9, 1e9))
    settled = path.stat().st_ctime_ns + 3_000_000_000
    with mock.patch("modelcc.cache.file_digests.time.time_ns", return_value=settled):
        assert known_digest(path, folder) == first
    (note,) = folder.iterdir()
    note.write_text(note.read_text().replace(first, "kept"))
    assert known_digest(path, folder) == "kept"
    path.write_bytes(b"two")
    assert known_digest(path, folder) == file_digest(path) != first
    note.write_text("damaged")
    assert known_digest(path, folder) == file_digest(path)


def test_every_byte_counts_for_a_digest(tmp_path: Path) -> None:
    path, size = tmp_path / "model", (32 << 20) + 5
    path.write_bytes(bytes(size))
    known = {file_digest(path)}
    for place in (0, (16 << 20) - 1, 16 << 20, size - 1):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"x")
        assert file_digest(path) not in known
        known.add(file_digest(path))
    with path.open("ab") as file:
        file.write(b"\0")
    assert file_digest(path) not in known


FROM_PYTHON = """
net = modelcc.compile(sys.argv[1], cache=sys.argv[2], threads=1)
assert list(net(numpy.float32([-1, 2, -3, 4]))) == [0, 2, 0, 4]
"""
FROM_THE_SHELL = """
os.environ["MODELCC_CACHE_DIR"] = sys.argv[2]
assert main(["run", sys.argv[1], "-o", sys.argv[2] + ".npz"]) == 0
sys.stdout.write("\\n")
"""


@pytest.mark.parametrize("script", [FROM_PYTHON, FROM_THE_SHELL], ids=["python", "shell"])
def test_models_found_in_the_cache_need_no_compiler(tmp_path: Path, script: str) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "relu.onnx")
    before = "import os, sys, modelcc, numpy\nfrom modelcc.cli.main import main\n"
    after = "print(*(n in sys.modules for n in ('modelcc.driver', 'llvmlite', 'onnx')))"
    command = [sys.executable, "-c", before + script + after]
    command += [tmp_path / "relu.onnx", tmp_path / "cache"]
    said = [subprocess.run(command, capture_output=True, text=True).stdout for _ in range(2)]
    assert [text.splitlines()[-1] for text in said] == ["True True True", "False False False"]


def scaled(factor: float, low: int = 1) -> Graph:
    build = GraphBuilder("scaled", {"n": Range(low, None)})
    x = build.input("x", TensorType((Sym("n"), 20), F32))
    return build.build([build.emit(Mul(), x, build.constant(np.full(20, factor, np.float32)))])


def test_a_graph_is_found_by_all_that_it_is(tmp_path: Path) -> None:
    def is_found(graph: Graph) -> bool:
        return not modelcc.compile(graph, cache=tmp_path)._times  # pyright: ignore[reportPrivateUsage]

    assert [is_found(scaled(2.0)), is_found(scaled(2.0))] == [False, True]
    assert not is_found(scaled(3.0)) and not is_found(scaled(2.0, low=2))
    net = modelcc.compile(scaled(3.0), cache=tmp_path)
    assert net(np.ones((2, 20), np.float32)).tolist() == [[3.0] * 20] * 2


def test_graphs_with_ops_of_another_package_are_not_kept(tmp_path: Path) -> None:
    class Own(Mul):
        pass

    Own.__module__ = "elsewhere.ops"
    graph = scaled(2.0)
    own = replace(graph, nodes=tuple(replace(node, op=Own()) for node in graph.nodes))
    assert artifact_key(graph, chosen_options(), "", tmp_path) is not None
    assert artifact_key(own, chosen_options(), "", tmp_path) is None
