"""The ``.mcc`` file: a zip archive, nothing compressed, each member at an aligned offset.

    manifest.json         see manifest.py
    objects/NAME          object files, linked at load time
    constants             the block of constants; can be mapped into memory as it lies
    sources/NAME          optional: dumps of the levels the model went through

Any zip tool opens it.  The same content always gives the same bytes.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO

from modelcc.artifact.constants import (
    Block,
    block_pieces,
    block_size,
    constant_bytes,
    constant_view,
    digest_of,
)
from modelcc.artifact.errors import ArtifactError
from modelcc.artifact.manifest import ALIGNMENT, Manifest
from modelcc.artifact.manifest_json import ManifestError, manifest_from_json, manifest_to_json
from modelcc.ir.types import Array

AnyPath = str | PathLike[str]

_MANIFEST = "manifest.json"
_CONSTANTS = "constants"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_HEADER = 30  # bytes of a member's header before its name
_LARGE = 1 << 31  # bytes above which a member needs 64-bit sizes
_ZIP64 = 20  # bytes that zipfile appends to the extra field of a large member
_PADDING = 0xD935  # id of the extra field for alignment, as in Android packages
_REBUILD = "compile the model again"


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled model: manifest, object files by name, constants by name, sources by path.

    ``block``, if there is one, holds the constants where the manifest says.
    """

    manifest: Manifest
    objects: Mapping[str, bytes]
    constants: Mapping[str, Array]
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    block: Block | None = None


def write_artifact(path: AnyPath, artifact: Artifact, durable: bool = True) -> None:
    """Write ``artifact`` to ``path``, which afterwards has the old or the new content, whole.

    That holds even if the machine stops, unless not ``durable``: then the file may be cut off,
    which :func:`read_artifact` notices, but nobody waits for the disk.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, artifact)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.chmod(name, 0o644)  # as the system gives to new files, most often
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _write(file: IO[bytes], artifact: Artifact) -> None:
    manifest = artifact.manifest
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, file, _MANIFEST, [manifest_to_json(manifest).encode()])
        for name in manifest.objects:
            _add(archive, file, f"objects/{name}", [artifact.objects[name]])
        pieces = (p.data for p in block_pieces(manifest.constants, artifact.constants))
        _add(archive, file, _CONSTANTS, pieces, block_size(manifest.constants))
        for name, text in sorted(artifact.sources.items()):
            _add(archive, file, f"sources/{name}", [text.encode()])


def _add(
    archive: zipfile.ZipFile,
    file: IO[bytes],
    name: str,
    pieces: Iterable[bytes | memoryview],
    size: int = 0,
) -> None:
    """Append a member of ``size`` bytes (0: small) whose data starts at an aligned offset."""
    large = size >= _LARGE
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    start = file.tell() + _HEADER + len(name.encode()) + (_ZIP64 if large else 0) + 4
    padding = -start % ALIGNMENT
    info.extra = _PADDING.to_bytes(2, "little") + padding.to_bytes(2, "little") + bytes(padding)
    with archive.open(info, "w", force_zip64=large) as member:
        for piece in pieces:
            member.write(piece)


def read_artifact(path: AnyPath, verify: bool = False) -> Artifact:
    """The artifact at ``path``, its constants mapped into memory, read when they are used.

    ``verify`` compares the digest of every constant.  Raises ArtifactError, and OSError where the
    file cannot be opened.
    """
    try:
        with Path(path).open("rb") as file, zipfile.ZipFile(file) as archive:
            artifact = _read(path, file, archive)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise ArtifactError(
            path, f"it is no modelcc artifact, or a damaged one ({error})", _REBUILD
        ) from error
    except ManifestError as error:
        raise ArtifactError(path, str(error), _REBUILD) from error
    if verify:
        verify_constants(path, artifact)
    return artifact


def _read(path: AnyPath, file: IO[bytes], archive: zipfile.ZipFile) -> Artifact:
    manifest = manifest_from_json(archive.read(_MANIFEST).decode())
    objects = {name: archive.read(f"objects/{name}") for name in manifest.objects}
    names = [n for n in archive.namelist() if n.startswith("sources/")]
    sources = {n.removeprefix("sources/"): archive.read(n).decode() for n in names}
    block = _mapped(file, archive.getinfo(_CONSTANTS))
    if len(block) < block_size(manifest.constants):
        raise ArtifactError(path, "its constants are cut off", _REBUILD)
    constants = {spec.name: constant_view(block, spec) for spec in manifest.constants}
    return Artifact(manifest, objects, constants, sources)


def _mapped(file: IO[bytes], info: zipfile.ZipInfo) -> memoryview:
    """A stored member's data, mapped read-only."""
    file.seek(info.header_offset)
    header = file.read(_HEADER)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    start = info.header_offset + _HEADER + name + extra
    if header[:4] != b"PK\3\4" or info.compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"bad header of {info.filename}")
    contents = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return contents[start : start + info.file_size]


def verify_constants(path: AnyPath, artifact: Artifact) -> None:
    """Raise ArtifactError, naming the constant, if the bytes of one have changed."""
    for spec in artifact.manifest.constants:
        data = constant_bytes(artifact.constants[spec.name])
        if digest_of(data) != spec.sha256:
            raise ArtifactError(path, f"constant '{spec.name}' is damaged", _REBUILD)
