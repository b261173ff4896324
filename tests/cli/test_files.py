"""Commands never overwrite what they read; those that can take compiled models."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import mlp

import modelcc
from modelcc.artifact.file import read_artifact, write_artifact
from modelcc.artifact.inspection import inspect_artifact
from modelcc.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with its weights in a file beside it, and the same compiled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELCC_CACHE_DIR", "")
    monkeypatch.setenv("MODELCC_NUM_THREADS", "1")
    onnx.save(mlp("batch"), "net.onnx", save_as_external_data=True, location="net.data",
              size_threshold=0)  # fmt: skip
    modelcc.compile("net.onnx", threads=1, cache=None).save("net.mcc")
    return tmp_path


@pytest.mark.parametrize("source", ["net.onnx", "net.data"])
@pytest.mark.parametrize("way", ["name", "symbolic link", "hard link", "other path"])
@pytest.mark.parametrize("option", ["-o", "--emit graph -o", "--page"])
def test_no_link_leads_over_an_input(
    folder: Path, capsys: pytest.CaptureFixture[str], source: str, way: str, option: str
) -> None:
    before = Path(source).read_bytes()
    output = Path("out.bin")
    match way:
        case "name":
            output = Path(source)
        case "symbolic link":
            output.symlink_to(source)
        case "hard link":
            output.hardlink_to(source)
        case _:
            output = Path("..", folder.name, source)
    assert main(["compile", "net.onnx", *option.split(), str(output)]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert Path(source).read_bytes() == before and len(list(folder.iterdir())) <= 4


def test_constants_of_a_text_are_not_overwritten(folder: Path) -> None:
    assert main(["compile", "net.onnx", "--emit", "graph", "-o", "level/"]) == 0
    constants = Path("level/net.graph.npz")
    before = constants.read_bytes()
    text = ["compile", "level/net.graph.mlir", "--from", "graph", "--emit", "tensor"]
    assert main([*text, "-o", "level/net.graph.txt"]) == 2
    assert constants.read_bytes() == before


def test_devices_are_written_and_not_replaced(folder: Path) -> None:
    read, write = os.pipe()
    assert main(["compile", "net.onnx", "-o", f"/dev/fd/{write}"]) == 0
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == Path("net.mcc").read_bytes()


def test_outputs_may_be_written_again(folder: Path) -> None:
    for _ in range(2):
        assert main(["compile", "net.onnx", "--page", "plan.html"]) == 0


def test_an_artifact_is_verified_against_its_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "net.onnx", "--dim", "batch=7", "-o", "seven.mcc"]) == 0
    assert main(["verify", "seven.mcc", "--against", "net.onnx", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agrees"] and found["sizes"] == {"batch": 7} and found["peer"]


def test_an_artifact_of_another_model_differs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = read_artifact("net.mcc")
    name = max(artifact.constants, key=lambda name: artifact.constants[name].size)
    changed = {**artifact.constants, name: artifact.constants[name] + np.float32(1)}
    object.__setattr__(artifact, "constants", changed)
    write_artifact("other.mcc", artifact)
    assert main(["verify", "other.mcc", "--against", "net.onnx"]) == 1
    assert "outputs differ" in capsys.readouterr().out


def test_an_artifact_is_benched_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "net.mcc", "--rounds", "1", "--size", "batch=3", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["engines"]["modelcc"]["seconds"] > 0


def test_a_pinned_file_and_no_other_is_run(folder: Path) -> None:
    digest = hashlib.sha256(Path("net.mcc").read_bytes()).hexdigest()
    assert main(["run", "net.mcc", "--sha256", digest, "--repeat", "1"]) == 0
    assert modelcc.load("net.mcc", threads=1, sha256=digest).digest == digest
    changed = bytearray(Path("net.mcc").read_bytes())
    with pytest.raises(modelcc.ArtifactError, match="and not the 00"):
        modelcc.load("net.mcc", threads=1, sha256="00" * 32)
    changed[-1] ^= 1
    Path("net.mcc").write_bytes(changed)
    with pytest.raises(modelcc.ArtifactError):
        modelcc.load("net.mcc", threads=1, sha256=digest)


def test_an_artifact_is_inspected_without_its_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object) -> None:
        raise AssertionError("code is loaded")

    monkeypatch.setattr("modelcc.runtime.session.load_objects", loaded)
    content = Path("net.mcc").read_bytes()
    facts = inspect_artifact("net.mcc")
    assert facts.bytes == len(content)
    assert facts.digest == hashlib.sha256(content).hexdigest()
    assert [spec.name for spec in facts.manifest.inputs] == ["x"]
    assert facts.members[0].name == "manifest.json"
    assert all(len(part.sha256) == 64 for part in facts.members)
    Path("net.mcc").write_bytes(content[:-1])
    with pytest.raises(modelcc.ArtifactError):
        inspect_artifact("net.mcc")


def test_a_model_survives_its_file(folder: Path) -> None:
    net = modelcc.load("net.mcc", threads=1)
    before = Path("net.mcc").read_bytes()
    os.truncate("net.mcc", 100)
    x = np.ones((2, 6), np.float32)
    assert np.all(np.isfinite(net(x)))
    net.save("again.mcc")
    assert Path("again.mcc").read_bytes() == before


def test_names_that_are_no_unicode(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of any kind, of files and folders, also where models are kept."""
    place = Path(os.fsdecode(b"d\xfe"))
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("MODELCC_CACHE_DIR", os.fsdecode(b"c\xff"))
    model, compiled, inputs = (os.fsdecode(b"b\xff." + s) for s in (b"onnx", b"mcc", b"npz"))
    Path(model).write_bytes(mlp("batch").SerializeToString())
    np.savez(inputs, x=np.ones((2, 6), np.float32))
    for _ in range(2):  # the second time they are found
        assert main(["compile", model]) == 0
        assert main(["run", model, "-i", inputs, "-o", os.fsdecode(b"o\xff.npz")]) == 0
    assert main(["verify", compiled, "--against", model]) == 0
    assert main(["verify", model]) == 0
    assert main(["inspect", compiled, "--json"]) == 0
    assert main(["compile", model, "--emit", "c", "-o", "c/"]) == 0
    assert main(["cache", "--json"]) == 0
