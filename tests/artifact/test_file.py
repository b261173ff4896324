"""Artifact files: round trip, reproducibility, alignment, damage, other versions."""

import json
import zipfile
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelcc.artifact import file as artifact_file
from modelcc.artifact.constants import constant_table
from modelcc.artifact.errors import ArtifactError
from modelcc.artifact.file import Artifact, read_artifact, verify_constants, write_artifact
from modelcc.artifact.manifest import FORMAT, DimSpec, MachineSpec, Manifest, TensorSpec
from modelcc.artifact.manifest_json import ManifestError, manifest_from_json, manifest_to_json
from modelcc.ir.index import Sym, maximum
from modelcc.ir.types import F32, I64

N = Sym("n")
WEIGHTS = {
    "w": np.arange(100, dtype=np.float32).reshape(4, 25),
    "half": np.ones((3,), ml_dtypes.bfloat16),
    "tied": np.arange(100, dtype=np.float32).reshape(100),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float32),
    "transposed": np.arange(6, dtype=np.int8).reshape(2, 3).T,
}


def sample(weights=WEIGHTS):
    manifest = Manifest(
        name="tiny",
        entry="tiny_run",
        inputs=(TensorSpec("x", F32, (N, 4)), TensorSpec("größe", I64, ())),
        outputs=(TensorSpec("y", F32, (N + 1, 3)),),
        machine=MachineSpec("x86_64-unknown-linux-gnu", "znver5", ("+avx2", "-amx-tile")),
        dims=(DimSpec("n", 1, 64), DimSpec("m")),
        definitions=(("at0", maximum(64 * N, 12 * N + 100)),),
        arena=Sym("at0") + 64 * N,
        constants=constant_table(weights),
        objects=("program.o", "kernels.o"),
        options="abc",
        versions={"modelcc": "0.1.0", "llvm": "22"},
    )
    objects = {"program.o": b"\x7fELF" + bytes(range(256)), "kernels.o": b"code"}
    return Artifact(manifest, objects, weights, {"graph.mlir": "module {\n}\n"})


@pytest.fixture
def path(tmp_path):
    write_artifact(tmp_path / "tiny.mcc", sample())
    return tmp_path / "tiny.mcc"


def test_round_trip(path):
    written, read = sample(), read_artifact(path, verify=True)
    assert read.manifest == written.manifest
    assert (read.objects, read.sources) == (written.objects, written.sources)
    assert list(read.constants) == list(WEIGHTS)
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(read.constants[name], array)
        assert read.constants[name].dtype == array.dtype


def test_a_model_without_constants(tmp_path):
    write_artifact(tmp_path / "a.mcc", sample({}))
    assert read_artifact(tmp_path / "a.mcc", verify=True).constants == {}


def test_same_content_gives_same_bytes(path, tmp_path):
    write_artifact(tmp_path / "again.mcc", sample())
    assert (tmp_path / "again.mcc").read_bytes() == path.read_bytes()


def test_constants_are_aligned_in_the_file_and_kept_once(path):
    content = path.read_bytes()
    specs = {spec.name: spec for spec in sample().manifest.constants}
    start = content.index(WEIGHTS["w"].tobytes())
    assert start % 64 == 0 and content.count(WEIGHTS["w"].tobytes()) == 1
    assert specs["tied"].offset == specs["w"].offset
    assert all(spec.offset % 64 == 0 for spec in specs.values())
    addresses = [a.ctypes.data for a in read_artifact(path).constants.values() if a.size]
    assert all(address % 64 == 0 for address in addresses)


def test_members_with_64_bit_sizes_are_aligned_too(tmp_path, monkeypatch):
    monkeypatch.setattr(artifact_file, "_LARGE", 0)
    write_artifact(tmp_path / "a.mcc", sample())
    constants = read_artifact(tmp_path / "a.mcc", verify=True).constants
    assert all(a.ctypes.data % 64 == 0 for a in constants.values() if a.size)


def test_other_zip_readers_open_it(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "manifest.json"
        assert json.loads(archive.read("manifest.json"))["format"] == FORMAT


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_truncated_files_are_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    write_artifact(folder / "a.mcc", sample())
    content = (folder / "a.mcc").read_bytes()
    (folder / "a.mcc").write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ArtifactError, match=r"a\.mcc: it is no modelcc artifact, or a damaged"):
        read_artifact(folder / "a.mcc")


def test_changed_bytes_are_noticed(path):
    content = bytearray(path.read_bytes())
    content[content.index(WEIGHTS["w"].tobytes()) + 5] ^= 1
    path.write_bytes(content)
    artifact = read_artifact(path)
    with pytest.raises(ArtifactError, match="constant 'w' is damaged; compile the model again"):
        verify_constants(path, artifact)
    content[content.index(b"\x7fELF") + 9] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="program"):
        read_artifact(path)


def test_newer_formats_are_refused(tmp_path):
    newer = replace(sample(), manifest=replace(sample().manifest, format=FORMAT + 1))
    write_artifact(tmp_path / "a.mcc", newer)
    with pytest.raises(ArtifactError, match=f"version {FORMAT + 1}, and this modelcc reads"):
        read_artifact(tmp_path / "a.mcc")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08\x12\x07pytorch")
    with pytest.raises(ArtifactError, match="no modelcc artifact"):
        read_artifact(tmp_path / "model.onnx")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("hello", "world")
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        read_artifact(tmp_path / "a.zip")
    with pytest.raises(FileNotFoundError):
        read_artifact(tmp_path / "nothing.mcc")


@pytest.mark.parametrize("key", ["name", "inputs", "arena", "machine", "constants", "dims"])
def test_manifests_with_missing_parts_are_refused(key):
    data = json.loads(manifest_to_json(sample().manifest))
    del data[key]
    with pytest.raises(ManifestError, match=f"damaged.*{key}"):
        manifest_from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"format": "new"}'])
def test_text_that_is_no_manifest_is_refused(text):
    with pytest.raises(ManifestError):
        manifest_from_json(text)


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(artifact_file.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_artifact(path, sample({}))
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["tiny.mcc"]
