"""Artifact files: round trip, reproducibility, alignment, damage, other versions."""

import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from constant_tables import constant_table
from hypothesis import given, settings
from hypothesis import strategies as st

from modelcc.artifact import archive
from modelcc.artifact.archive import (
    ArchiveError,
    archive_pieces,
    read_contents,
    read_into,
    read_members,
)
from modelcc.artifact.errors import ArtifactError
from modelcc.artifact.file import Artifact, read_artifact, write_artifact
from modelcc.artifact.manifest import (
    FORMAT,
    DimSpec,
    LibrarySpec,
    MachineSpec,
    Manifest,
    TensorSpec,
)
from modelcc.artifact.manifest_json import ManifestError, manifest_from_json, manifest_to_json
from modelcc.ir.index import Sym, floordiv, maximum
from modelcc.ir.types import F32, I64

N = Sym("n")
BLAS = LibrarySpec(
    "blas", ("p/libblas.so",), ("", "p_"), ("sgemm",), (("set_threads", 1),), "p", "1.0"
)
WEIGHTS = {
    "w": np.arange(100, dtype=np.float32).reshape(4, 25),
    "half": np.ones((3,), ml_dtypes.bfloat16),
    "tied": np.arange(100, dtype=np.float32).reshape(100),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float32),
    "transposed": np.arange(6, dtype=np.int8).reshape(2, 3).T,
}


def sample(weights: Mapping[str, Any] = WEIGHTS) -> Artifact:
    manifest = Manifest(
        name="tiny",
        entry="tiny_run",
        inputs=(
            TensorSpec("x", F32, (N, 4)),
            TensorSpec("größe", I64, ()),
            TensorSpec("s", F32, (3,)),
        ),
        outputs=(TensorSpec("y", F32, (N + 1, 3)), TensorSpec("t", F32, (3,))),
        machine=MachineSpec("x86_64-unknown-linux-gnu", "znver5", ("+avx2", "-amx-tile")),
        dims=(DimSpec("n", 1, 64), DimSpec("m")),
        definitions=(("at0", maximum(64 * N, 12 * N + 100)),),
        arena=Sym("at0") + 64 * N,
        constants=constant_table(weights),
        objects=("program.o", "kernels.o"),
        libraries=(BLAS,),
        options="abc",
        versions={"modelcc": "0.1.0", "llvm": "22"},
        aliases={"t": "s"},
    )
    objects = {"program.o": b"\x7fELF" + bytes(range(256)), "kernels.o": b"code"}
    return Artifact(manifest, objects, weights, {"graph.mlir": "module {\n}\n"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_artifact(tmp_path / "tiny.mcc", sample())
    return tmp_path / "tiny.mcc"


def test_round_trip(path: Path) -> None:
    written, read = sample(), read_artifact(path, verify=True)
    assert read.manifest == written.manifest
    assert (read.objects, read.sources) == (written.objects, written.sources)
    assert list(read.constants) == list(WEIGHTS)
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(read.constants[name], array)
        assert read.constants[name].dtype == array.dtype


def test_a_model_without_constants(tmp_path: Path) -> None:
    write_artifact(tmp_path / "a.mcc", sample({}))
    assert read_artifact(tmp_path / "a.mcc", verify=True).constants == {}


def test_same_content_gives_same_bytes(path: Path, tmp_path: Path) -> None:
    write_artifact(tmp_path / "again.mcc", sample())
    assert (tmp_path / "again.mcc").read_bytes() == path.read_bytes()


def test_constants_are_aligned_in_the_file_and_kept_once(path: Path) -> None:
    content = path.read_bytes()
    specs = {spec.name: spec for spec in sample().manifest.constants}
    start = content.index(WEIGHTS["w"].tobytes())
    assert start % 64 == 0 and content.count(WEIGHTS["w"].tobytes()) == 1
    assert specs["tied"].offset == specs["w"].offset
    assert all(spec.offset % 64 == 0 for spec in specs.values())
    addresses = [a.ctypes.data for a in read_artifact(path).constants.values() if a.size]
    assert all(address % 64 == 0 for address in addresses)


def written_by_zipfile(path: Path, contents: Sequence[tuple[str, Any]], limit: int):
    """The archive of these members as Python's library writes it, aligned in the same way."""
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as zipped:
        for name, content in contents:
            large = len(content) > limit
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            padding = -(file.tell() + 30 + len(name.encode()) + 20 * large + 4) % 64
            info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
            with zipped.open(info, "w", force_zip64=large) as member:
                member.write(content)


CONTENTS = [("a", b"x" * 99), ("größe/b", b""), ("c.o", bytes(range(256)) * 9), ("d", b"y")]


@pytest.mark.parametrize("limit", [zipfile.ZIP64_LIMIT, 2000, 200, 90, 0])
def test_archives_are_what_zipfile_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", limit)
    monkeypatch.setattr(archive, "LARGE", limit + 1)
    path = tmp_path / "a.zip"
    written_by_zipfile(path, CONTENTS, limit)
    pieces = archive_pieces([(name, [content[:7], content[7:]]) for name, content in CONTENTS])
    assert path.read_bytes() == b"".join(pieces)
    with path.open("rb") as file:
        members = read_members(file)
        assert [(m.name, read_contents(file, m)) for m in members] == CONTENTS
        assert all(member.start % 64 == 0 for member in members)


def test_large_contents_are_checked_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_CHUNK", 100)
    content = np.random.default_rng(0).bytes(1234)
    (tmp_path / "a").write_bytes(b"".join(archive_pieces([("a", [content])])))
    target = bytearray(len(content))
    with (tmp_path / "a").open("r+b") as file:
        (member,) = read_members(file)
        read_into(file, member, memoryview(target))
        assert target == content
        file.seek(member.start + 150)
        file.write(bytes([content[150] ^ 4]))
        file.flush()
        with pytest.raises(ArchiveError, match="'a' is damaged"):
            read_into(file, member, memoryview(target))
        file.truncate(member.start + 700)
        with pytest.raises(ArchiveError, match="cut off"):
            read_into(file, member, memoryview(target))


def test_other_zip_readers_open_it(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "manifest.json"
        assert json.loads(archive.read("manifest.json"))["format"] == FORMAT


@settings(max_examples=60)
@given(st.data())
def test_truncated_files_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    write_artifact(folder / "a.mcc", sample())
    content = (folder / "a.mcc").read_bytes()
    (folder / "a.mcc").write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ArtifactError, match=r"a\.mcc: it is no modelcc artifact, or a damaged"):
        read_artifact(folder / "a.mcc")


def test_a_changed_bit_anywhere_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(ArtifactError, match="compile the model again"):
            read_artifact(path)


def test_the_part_that_has_changed_is_named(path: Path) -> None:
    content = path.read_bytes()
    places = {"constants": WEIGHTS["w"].tobytes(), "objects/program.o": b"\x7fELF"}
    for name, start in places.items():
        changed = bytearray(content)
        changed[content.index(start) + 3] ^= 1
        path.write_bytes(changed)
        with pytest.raises(ArtifactError, match=f"'{name}' is damaged.*; compile"):
            read_artifact(path)


def test_constants_other_than_the_manifest_says_are_noticed(tmp_path: Path) -> None:
    artifact = sample()
    artifact.constants["w"][0, 0] = 5
    write_artifact(tmp_path / "a.mcc", artifact)
    artifact.constants["w"][0, 0] = 0
    read_artifact(tmp_path / "a.mcc")
    with pytest.raises(ArtifactError, match="constant 'w' is damaged; compile the model again"):
        read_artifact(tmp_path / "a.mcc", verify=True)


def test_archives_of_other_tools_are_refused(path: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(path) as old:
        contents = {info.filename: old.read(info) for info in old.infolist()}
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "b.mcc", "w", kind) as new:
            for name, content in contents.items():
                new.writestr(name, content)
            new.writestr("sources/bomb", bytes(20 << 20))
        with pytest.raises(ArtifactError, match="no modelcc artifact, or a damaged one"):
            read_artifact(tmp_path / "b.mcc")


def test_a_file_that_is_cut_off_after_it_was_read_does_no_harm(path: Path, tmp_path: Path) -> None:
    artifact = read_artifact(path)
    os.truncate(path, 100)
    write_artifact(tmp_path / "again.mcc", artifact)
    assert artifact.digest == read_artifact(tmp_path / "again.mcc").digest


def test_the_digest_is_that_of_the_file(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert sample().digest == read_artifact(path).digest == digest
    assert read_artifact(path, sha256=digest.upper()).manifest == sample().manifest
    with pytest.raises(ArtifactError, match=f"its SHA-256 is {digest}, and not the 0000"):
        read_artifact(path, sha256="0" * 64)
    with pytest.raises(ArtifactError, match="'0000' is no SHA-256; give 64 hexadecimal digits"):
        read_artifact(path, sha256="0000")


def test_newer_formats_are_refused(tmp_path: Path) -> None:
    newer = replace(sample(), manifest=replace(sample().manifest, format=FORMAT + 1))
    write_artifact(tmp_path / "a.mcc", newer)
    with pytest.raises(ArtifactError, match=f"version {FORMAT + 1}, and this modelcc reads"):
        read_artifact(tmp_path / "a.mcc")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08\x12\x07pytorch")
    with pytest.raises(ArtifactError, match="no modelcc artifact"):
        read_artifact(tmp_path / "model.onnx")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("hello", "world")
    with pytest.raises(ArtifactError, match="was not written by modelcc"):
        read_artifact(tmp_path / "a.zip")
    pieces = archive_pieces([("hello", [b"world"])])
    (tmp_path / "a.zip").write_bytes(b"".join(pieces))
    with pytest.raises(ArtifactError, match="it has no readable manifest"):
        read_artifact(tmp_path / "a.zip")
    with pytest.raises(FileNotFoundError):
        read_artifact(tmp_path / "nothing.mcc")


@pytest.mark.parametrize("key", ["name", "inputs", "arena", "machine", "constants", "dims"])
def test_manifests_with_missing_parts_are_refused(key: str) -> None:
    data = json.loads(manifest_to_json(sample().manifest))
    del data[key]
    with pytest.raises(ManifestError, match=f"damaged.*{key}"):
        manifest_from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"format": "new"}'])
def test_text_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        manifest_from_json(text)


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def fail(*_: object):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_artifact(path, sample({}))
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["tiny.mcc"]


def edited(change: Callable[[dict[str, Any]], object]):
    data = json.loads(manifest_to_json(sample().manifest))
    change(data)
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "list": lambda m: m.update(versions=[]),
    "number for a text": lambda m: m.update(name=5),
    "truth for a number": lambda m: m["dims"][0].update(low=True),
    "fraction for a number": lambda m: m["dims"][0].update(low=1.0),
    "unknown part": lambda m: m.update(more=1),
    "text for a list": lambda m: m.update(objects="ab"),
    "no type": lambda m: m["inputs"][0].update(dtype="f33"),
    "same input twice": lambda m: m["inputs"][1].update(name="x"),
    "same object twice": lambda m: m.update(objects=["program.o", "program.o"]),
    "object elsewhere": lambda m: m.update(objects=["../program.o", "kernels.o"]),
    "negative extent": lambda m: m["outputs"][0].update(shape=[-1, 3]),
    "unknown dimension": lambda m: m["outputs"][0].update(shape=["k", 3]),
    "definition of later ones": lambda m: m["definitions"][0].update(value="at1"),
    "division by nothing": lambda m: m.update(arena="n // 0"),
    "no expression": lambda m: m.update(arena="n n"),
    "deep expression": lambda m: m.update(arena="(" * 9999 + "n" + ")" * 9999),
    "long number": lambda m: m.update(arena="9" * 5000),
    "empty range": lambda m: m["dims"][0].update(low=5, high=4),
    "size of a constant": lambda m: m["constants"][0].update(size=0),
    "shape of a constant": lambda m: m["constants"][0].update(shape=[4, 26]),
    "place before the block": lambda m: m["constants"][0].update(offset=-64),
    "place that is not aligned": lambda m: m["constants"][0].update(offset=4),
    "overlapping constants": lambda m: m["constants"][1].update(offset=0),
    "texts as constants": lambda m: m["constants"][0].update(dtype="string"),
    "no features": lambda m: m["machine"].update(features=None),
    "interface of a number": lambda m: m.update(interface=7),
    "place of no input": lambda m: m.update(aliases={"t": "r"}),
    "place of another type": lambda m: m.update(aliases={"t": "größe"}),
    "place of two outputs": lambda m: m.update(
        outputs=[m["outputs"][1] | {"name": n} for n in "tu"], aliases={"t": "s", "u": "s"}
    ),
    "state in two arrays": lambda m: m.update(
        aliases={},
        interface={
            "inputs": {"x": "x", "größe": "größe"},
            "outputs": {"y": "y"},
            "strings": [],
            "texts": [],
            "steps": [],
            "states": {"s": {"input": "s", "output": "t", "given": False}},
        },
    ),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
def test_manifests_that_make_no_sense_are_refused(edit: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ManifestError, match="its manifest is damaged"):
        manifest_from_json(edited(edit))


def test_long_expressions_that_do_not_nest_deep_are_read() -> None:
    """As an arena's size is where many tensors may be the last one in it."""
    arena = Sym("at0") + maximum(*(64 * floordiv(5 * N + k, k) + k for k in range(2, 200)))
    assert str(arena).count("(") > 100
    manifest = replace(sample().manifest, arena=arena)
    assert manifest_from_json(manifest_to_json(manifest)) == manifest


def test_a_manifest_nested_without_end_is_refused() -> None:
    with pytest.raises(ManifestError, match="no readable manifest"):
        manifest_from_json("[" * 100000)


def test_constants_and_members_must_be_those_of_the_manifest(path: Path) -> None:
    with zipfile.ZipFile(path) as old:
        contents = {info.filename: old.read(info) for info in old.infolist()}
    more = {**contents, "objects/more.o": b""}
    longer = {**contents, "constants": contents["constants"] + bytes(64)}
    no_text = {**contents, "manifest.json": b"\xff"}
    for changed in (more, longer, no_text):
        pieces = archive_pieces([(name, [content]) for name, content in changed.items()])
        path.write_bytes(b"".join(pieces))
        with pytest.raises(ArtifactError, match="compile the model again"):
            read_artifact(path)
