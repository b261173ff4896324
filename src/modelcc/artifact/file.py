"""The ``.mcc`` file: an uncompressed zip archive, each member at an aligned offset.

    manifest.json         see manifest.py
    objects/NAME          object files, linked at load time
    constants             the block of constants
    states/NUMBER         initial values of states, unless they are zeros
    sources/NAME          optional: texts from the compiler, its report

Any zip tool opens it.  Equal contents give equal bytes, and a file with other bytes than its
contents determine is rejected (:mod:`modelcc.artifact.archive`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from os import PathLike
from pathlib import Path
from typing import IO

import numpy as np

from modelcc.artifact.archive import (
    ArchiveError,
    Piece,
    archive_pieces,
    read_contents,
    read_into,
    read_members,
)
from modelcc.artifact.constants import (
    Block,
    block_pieces,
    block_size,
    constant_bytes,
    constant_view,
    digest_of,
)
from modelcc.artifact.errors import ArtifactError
from modelcc.artifact.manifest import Manifest
from modelcc.artifact.manifest_json import ManifestError, manifest_from_json, manifest_to_json
from modelcc.artifact.memory import Memory
from modelcc.artifact.replacement import replace_file
from modelcc.ir.types import Array

AnyPath = str | PathLike[str]

MANIFEST = "manifest.json"
CONSTANTS = "constants"
OBJECTS, STATES, SOURCES = "objects/", "states/", "sources/"
_REBUILD = "compile the model again"
_DIGEST = re.compile("[0-9a-fA-F]{64}")


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled model: manifest, object files by name, constants by name, sources by path, and
    initial values of states by name, unless they are zeros.

    ``block``, if given, holds the constants at the manifest's offsets.
    """

    manifest: Manifest
    objects: Mapping[str, bytes]
    constants: Mapping[str, Array]
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    block: Block | None = None
    states: Mapping[str, Array] = field(default_factory=dict[str, Array])

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of the file that :func:`write_artifact` writes."""
        return digest_of_pieces(archive_pieces(_contents(self)))


def write_artifact(path: AnyPath, artifact: Artifact, durable: bool = True) -> None:
    """Write ``artifact`` to ``path`` atomically: it has either the old or the new content.

    That holds even if the machine crashes, unless not ``durable``: then the file may be truncated,
    which :func:`read_artifact` detects, but there is no wait for the disk.
    """
    replace_file(Path(path), lambda temporary: _write(temporary, artifact), durable)


def _write(path: Path, artifact: Artifact) -> None:
    with path.open("wb") as file:
        for piece in archive_pieces(_contents(artifact)):
            file.write(piece)


def _contents(artifact: Artifact) -> list[tuple[str, Sequence[Piece]]]:
    """Names and contents of the members, in order."""
    manifest = artifact.manifest
    pieces = [piece.data for piece in block_pieces(manifest.constants, artifact.constants)]
    return [
        (MANIFEST, [manifest_to_json(manifest).encode()]),
        *((OBJECTS + name, [artifact.objects[name]]) for name in manifest.objects),
        (CONSTANTS, pieces),
        *(
            (member, [constant_bytes(artifact.states[name]).data])
            for name, member in _given_states(manifest).items()
        ),
        *((SOURCES + name, [text.encode()]) for name, text in sorted(artifact.sources.items())),
    ]


def _given_states(manifest: Manifest) -> dict[str, str]:
    """The members with initial values of states."""
    given = [name for name, state in manifest.states.items() if state.given]
    return {name: f"{STATES}{number:04}" for number, name in enumerate(given)}


def read_artifact(path: AnyPath, verify: bool = False, sha256: str | None = None) -> Artifact:
    """The artifact at ``path``, all of it in memory, so that the file may be deleted or changed.

    Damage is detected: every byte of the file is verified by a checksum, or by its expected value.
    ``verify`` also compares the SHA-256 of each constant with the manifest's.  With ``sha256`` the
    file must have this digest (in hexadecimal, as ``sha256sum`` prints it), which also protects
    from tampering.  Raises ArtifactError, and OSError where the file cannot be opened.
    """
    return held_artifact(path, read_held(path), verify, sha256)


@dataclass(frozen=True)
class Held:
    """Contents of an artifact's file as read: members by name, in order."""

    contents: Mapping[str, Piece]
    block: Block

    def pieces(self) -> Iterator[Piece]:
        """All bytes of the file."""
        return archive_pieces([(name, [data]) for name, data in self.contents.items()])


def read_held(path: AnyPath) -> Held:
    """The members of the file at ``path``, undamaged; raises as :func:`read_artifact`."""
    if Path(path).is_fifo() or Path(path).is_char_device():  # not seekable
        raise ArtifactError(path, "it is a pipe or a device", "copy it to a file first")
    try:
        with Path(path).open("rb") as file:
            return _read(file)
    except ArchiveError as error:
        raise ArtifactError(
            path, f"it is no modelcc artifact, or a damaged one ({error})", _REBUILD
        ) from error
    except MemoryError as error:
        problem = "there is not enough memory to hold it"
        raise ArtifactError(path, problem, "free some, or compile a smaller model") from error


def _read(file: IO[bytes]) -> Held:
    block = Memory(0)
    contents: dict[str, Piece] = {}
    for member in read_members(file):
        if member.name == CONSTANTS:
            block = Memory(member.size)
            read_into(file, member, block.view)
            contents[member.name] = block.view.toreadonly()
        else:
            contents[member.name] = read_contents(file, member)
    return Held(contents, block)


def held_artifact(
    path: AnyPath, held: Held, verify: bool = False, sha256: str | None = None
) -> Artifact:
    """The artifact in ``held``, read from the file at ``path``; raises as :func:`read_artifact`."""
    if sha256 is not None:
        check_digest(path, digest_of_pieces(held.pieces()), sha256)
    try:
        artifact = _artifact(held)
    except ManifestError as error:
        raise ArtifactError(path, str(error), _REBUILD) from error
    if verify:
        verify_constants(path, artifact)
    return artifact


def _artifact(held: Held) -> Artifact:
    manifest = manifest_from_json(_text(held, MANIFEST))
    sources = [name for name in held.contents if name.startswith(SOURCES)]
    states = _given_states(manifest)
    objects = [OBJECTS + name for name in manifest.objects]
    known = [MANIFEST, *objects, CONSTANTS, *states.values(), *sources]
    if list(held.contents) != known:
        raise ManifestError("its members are not those of its manifest")
    if len(held.contents[CONSTANTS]) != block_size(manifest.constants):
        raise ManifestError("its constants are not those of its manifest")
    code = {name: bytes(held.contents[OBJECTS + name]) for name in manifest.objects}
    texts = {name.removeprefix(SOURCES): _text(held, name) for name in sources}
    view = held.block.view.toreadonly()
    constants = {spec.name: constant_view(view, spec) for spec in manifest.constants}
    initial = {name: _state(manifest, name, held.contents[m]) for name, m in states.items()}
    return Artifact(manifest, code, constants, texts, held.block, initial)


def _state(manifest: Manifest, name: str, data: Piece) -> Array:
    before = manifest.states[name].input
    (spec,) = (spec for spec in manifest.inputs if spec.name == before)
    shape = tuple(extent for extent in spec.shape if isinstance(extent, int))
    elements = np.frombuffer(data, np.uint8)
    if elements.size != prod(shape) * spec.dtype.numpy.itemsize:
        raise ManifestError(f"its state {name!r} has {elements.size} bytes")
    return elements.view(spec.dtype.numpy).reshape(shape)


def _text(held: Held, name: str) -> str:
    try:
        return bytes(held.contents.get(name, b"")).decode()
    except UnicodeDecodeError as error:
        raise ManifestError(f"its {name} is no text") from error


def check_digest(path: AnyPath, found: str, wanted: str) -> None:
    """Raise ArtifactError unless the digest ``found`` of the file at ``path`` is ``wanted``."""
    if not _DIGEST.fullmatch(wanted):
        problem = f"{wanted!r} is no SHA-256"
        raise ArtifactError(path, problem, "give 64 hexadecimal digits, as sha256sum prints them")
    if found != wanted.lower():
        problem = f"its SHA-256 is {found}, and not the {wanted.lower()} that was asked for"
        raise ArtifactError(path, problem, "do not use it, unless you know why it has changed")


def digest_of_pieces(pieces: Iterable[Piece]) -> str:
    """SHA-256 in hexadecimal of all ``pieces``, one after the other."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def verify_constants(path: AnyPath, artifact: Artifact) -> None:
    """Raise ArtifactError, naming the constant, if the bytes of one have changed."""
    for spec in artifact.manifest.constants:
        data = constant_bytes(artifact.constants[spec.name])
        if digest_of(data) != spec.sha256:
            raise ArtifactError(path, f"constant '{spec.name}' is damaged", _REBUILD)
