"""Compiling with a cache that cannot be used, is damaged, or sees its model change."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import modelcc
import modelcc.driver
from modelcc.environment import NOWHERE, read_environment
from modelcc.frontends.onnx.external import external_files
from modelcc.frontends.onnx.loader import load

X = np.ones((1, 8), np.float32)


def product(value: float, location: str = "") -> onnx.ModelProto:
    """8 equal numbers: 8 × ``value``, which is stored in the file ``location`` if there is one."""
    array = np.full((8, 8), value, np.float32)
    weight = numpy_helper.from_array(array, "w")
    if location:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def result(model: onnx.ModelProto | bytes | Path, cache: Path) -> float:
    found = modelcc.compile(model, threads=1, cache=cache)(X)
    assert isinstance(found, np.ndarray) and np.all(found == found[0, 0])
    return float(found[0, 0])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/c", "file"])
def test_a_cache_that_cannot_be_made_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = tmp_path / place
    assert result(product(1).SerializeToString(), folder) == 8
    (message,) = warnings(caplog)
    assert f"cannot be kept in {folder} (" in message and "MODELCC_CACHE_DIR" in message


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, modelcc
Path(sys.argv[2]).mkdir(exist_ok=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
print(modelcc.compile(sys.argv[1], threads=1, cache=sys.argv[2])(np.ones((1, 8), np.float32))[0])
"""


@pytest.mark.parametrize("limit", [0, 2000])
def test_a_full_disk_is_warned_of_once(tmp_path: Path, limit: int) -> None:
    onnx.save(product(1), tmp_path / "m.onnx")
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", LIMITED, tmp_path / "m.onnx", cache, str(limit)]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.stdout.count("8.") == 8, done.stderr
    assert done.stderr.count("cannot be kept") == 1 and len(done.stderr.splitlines()) == 1
    assert not [path for path in cache.rglob(".*") if path.is_file()]


def test_users_without_a_home_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    assert read_environment({}).cache == NOWHERE
    assert read_environment({"XDG_CACHE_HOME": "relative"}).cache == NOWHERE
    assert read_environment({"XDG_CACHE_HOME": "/c"}).cache == Path("/c/modelcc")


def test_a_cache_that_can_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    onnx.save(product(1), tmp_path / "m.onnx")
    assert result(tmp_path / "m.onnx", tmp_path / "cache") == 8

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    monkeypatch.setattr(modelcc.driver, "import_model", refuse)
    assert result(tmp_path / "m.onnx", tmp_path / "cache") == 8
    assert not warnings(caplog)


@pytest.mark.parametrize("text", ["[1]", "7", "null", "", "{", "[" * 100000, '{"a": 5}', "\0"])
def test_damaged_notes_are_made_anew(tmp_path: Path, text: str) -> None:
    model = product(1).SerializeToString()
    assert result(model, tmp_path) == 8
    (note,) = (tmp_path / "artifacts").rglob("*.json")
    note.write_text(text)
    assert result(model, tmp_path) == 8
    assert note.read_text() == "{}"


def test_an_entry_with_a_changed_bit_is_compiled_again(tmp_path: Path) -> None:
    model = product(1).SerializeToString()
    assert result(model, tmp_path) == 8
    (entry,) = (tmp_path / "artifacts").rglob("*.mcc")
    whole = entry.read_bytes()
    with ZipFile(entry) as archive:
        weights = archive.getinfo("constants").header_offset
    for place in (*range(weights, weights + 256, 37), *range(0, len(whole), len(whole) // 9)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        entry.write_bytes(damaged)
        assert result(model, tmp_path) == 8
        assert entry.read_bytes() == whole


def replacing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], before: bool) -> None:
    """Call ``change`` once, while a model is compiled: before or after it is imported."""
    importing = modelcc.driver.import_model

    def changed(*arguments: Any, **named: Any):
        monkeypatch.setattr(modelcc.driver, "import_model", importing)
        if before:
            change()
        graph = importing(*arguments, **named)
        if not before:
            change()
        return graph

    monkeypatch.setattr(modelcc.driver, "import_model", changed)


def settle(path: Path) -> None:
    """Make ``path`` look as if it had not been changed for long, as far as that is possible."""
    os.utime(path, (1e9, 1e9))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("kind", ["model", "weights"])
def test_files_that_change_while_they_are_compiled_are_not_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    in_place: bool,
    before: bool,
) -> None:
    model, weights = tmp_path / "m.onnx", tmp_path / "w.bin"
    one, two = (np.full((8, 8), v, np.float32).tobytes() for v in (1, 2))
    if kind == "model":
        one, two = product(1).SerializeToString(), product(2).SerializeToString()
    else:
        model.write_bytes(product(0, "w.bin").SerializeToString())
    path = model if kind == "model" else weights
    path.write_bytes(one)
    settle(path)

    def change() -> None:
        new = path if in_place else tmp_path / "new"
        new.write_bytes(two)
        settle(new)
        os.replace(new, path)

    replacing(monkeypatch, change, before)
    assert result(model, tmp_path / "cache") in (8, 16)
    (message,) = warnings(caplog)
    assert message.startswith(f"{path} changed while it was compiled")
    for contents, expected in ((two, 16), (one, 8), (two, 16)):
        path.write_bytes(contents)
        assert result(model, tmp_path / "cache") == expected


def test_every_file_beside_a_model_counts(tmp_path: Path) -> None:
    """Also those that only the importer reads: here the shape of a Reshape."""
    model = product(1)
    shape = numpy_helper.from_array(np.array([2, 4]), "s")
    shape.ClearField("raw_data")
    shape.data_location = TensorProto.EXTERNAL
    shape.external_data.add(key="location", value="s.bin")
    model.graph.initializer.append(shape)
    model.graph.node.append(helper.make_node("Reshape", ["y", "s"], ["z"]))
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    model.graph.output.append(output)
    onnx.save(model, tmp_path / "m.onnx")
    assert external_files(load(tmp_path / "m.onnx")) == ()
    for extents in ((2, 4), (4, 2)):
        (tmp_path / "s.bin").write_bytes(np.array(extents).tobytes())
        assert external_files(load(tmp_path / "m.onnx")) == (tmp_path / "s.bin",)
        net = modelcc.compile(tmp_path / "m.onnx", threads=1, cache=tmp_path / "cache")
        assert net(X)[1].shape == extents


def test_a_link_that_leads_elsewhere_is_another_model(tmp_path: Path) -> None:
    onnx.save(product(0, "w.bin"), tmp_path / "m.onnx")
    for value in (1, 2):
        np.full((8, 8), value, np.float32).tofile(tmp_path / f"w{value}")
        settle(tmp_path / f"w{value}")
    for value in (1, 2, 1):
        (tmp_path / "w.bin").unlink(missing_ok=True)
        (tmp_path / "w.bin").symlink_to(f"w{value}")
        assert result(tmp_path / "m.onnx", tmp_path / "cache") == 8 * value


def test_an_entry_whose_note_was_not_written_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer dies between the artifact of new weights and its note; the old ones come back."""
    onnx.save(product(0, "w.bin"), tmp_path / "m.onnx")
    weights, cache = tmp_path / "w.bin", tmp_path / "cache"
    one, two = (np.full((8, 8), v, np.float32).tobytes() for v in (1, 2))
    weights.write_bytes(one)
    assert result(tmp_path / "m.onnx", cache) == 8
    weights.write_bytes(two)
    replace = os.replace

    def die(source: Path, target: Path) -> None:
        if target.suffix == ".json":
            raise OSError(5, "killed")
        replace(source, target)

    with monkeypatch.context() as dying:
        dying.setattr(os, "replace", die)
        assert result(tmp_path / "m.onnx", cache) == 16
    weights.write_bytes(one)
    assert result(tmp_path / "m.onnx", cache) == 8
