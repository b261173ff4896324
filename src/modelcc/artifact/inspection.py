"""Facts about an artifact's file, without loading any of its code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from modelcc.artifact.file import AnyPath, digest_of_pieces, held_artifact, read_held
from modelcc.artifact.manifest import Manifest


@dataclass(frozen=True)
class FilePart:
    """A member of the file: its name, bytes and SHA-256 in hexadecimal."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ArtifactFacts:
    """An undamaged artifact: its manifest, its parts, and ``digest``, the SHA-256 of the file as
    ``sha256sum`` prints it."""

    bytes: int
    digest: str
    manifest: Manifest
    members: tuple[FilePart, ...]


def inspect_artifact(path: AnyPath) -> ArtifactFacts:
    """The facts of the artifact at ``path``, none of whose code is linked, called or trusted.

    All of the file is read and checked.  ArtifactError if it is none or damaged, OSError if it
    cannot be opened.
    """
    held = read_held(path)
    manifest = held_artifact(path, held).manifest
    parts = tuple(
        FilePart(name, len(contents), hashlib.sha256(contents).hexdigest())
        for name, contents in held.contents.items()
    )
    size = sum(len(piece) for piece in held.pieces())
    return ArtifactFacts(size, digest_of_pieces(held.pieces()), manifest, parts)
