"""Finished artifacts on disk, found again by the content of the model and the options.

An entry is an artifact and a note of the files that the model refers to (external data), with
their digests: as in ccache's direct mode, the entry is valid while these have not changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from modelcc.artifact.errors import ArtifactError
from modelcc.artifact.file import Artifact, read_artifact
from modelcc.options import Options
from modelcc.runtime.machine import machine_identity

if TYPE_CHECKING:
    from modelcc.ir.graph import Graph

_ARTIFACT = ".mcc"
_NOTE = ".json"
_CHUNK = 1 << 20
_PIECE = 16 << 20
"""Bytes of a file that are hashed on their own: part of what a digest means."""
_THREADS = 4


def compiler_fingerprint() -> str:
    """Changes whenever a file of the installed compiler does."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".ll", ".c", ".h"):
            status = path.stat()
            digest.update(
                f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}".encode()
            )
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of the SHA-256 of each piece of a file, in hexadecimal; pieces in parallel."""
    pieces = range(0, max(1, path.stat().st_size), _PIECE)
    digests = [b""] * len(pieces)
    if len(pieces) == 1:
        return hashlib.sha256(_piece_digest(path, 0)).hexdigest()

    def some(first: int) -> None:
        for n in range(first, len(pieces), _THREADS):
            digests[n] = _piece_digest(path, pieces[n])

    with ThreadPoolExecutor(_THREADS) as threads:
        for done in [threads.submit(some, first) for first in range(_THREADS)]:
            done.result()
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _piece_digest(path: Path, start: int) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        for _ in range(_PIECE // _CHUNK):
            digest.update(file.read(_CHUNK))
    return digest.digest()


HOST_TARGETS = ("native",)
"""Targets whose code depends on nothing but the options, this machine, LLVM and the compiler."""

_SETTLED = 2_000_000_000
"""Nanoseconds after which a change of a file surely changes its time, on any file system."""


def find_compiled(model: object, options: Options, cache: Path) -> tuple[Artifact, Path] | None:
    """The artifact of ``model`` in the folder ``cache``, for targets of ``HOST_TARGETS``."""
    if options.target not in HOST_TARGETS:
        return None
    key = artifact_key(model, options, host_key(), cache)
    return None if key is None else artifact_cache(cache).read(key)


def artifact_cache(cache: Path) -> ArtifactCache:
    """Where in the folder ``cache`` artifacts are."""
    return ArtifactCache(cache / "artifacts", digests=cache / "digests")


def artifact_key(model: object, options: Options, target: str, cache: Path) -> str | None:
    """What determines the artifact, hashed; None for models that have no bytes to hash.

    ``target`` identifies the target and its machine.
    """
    content = _content_digest(model, cache)
    if content is None:
        return None
    parts = (content, options.key(), target, compiler_fingerprint())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def host_key() -> str:
    """Changes with this machine's processor and with LLVM."""
    spec = find_spec("llvmlite")
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    changed = origin.stat().st_mtime_ns if origin is not None else 0
    return f"{machine_identity()} {origin} {changed}"


def _content_digest(model: object, cache: Path) -> str | None:
    match model:
        case str() | Path() if Path(model).is_file():
            # External data lies next to the model, so the folder counts as well.
            path = Path(model).resolve()
            text = f"{path.parent} {known_digest(path, cache / 'digests')}"
            return hashlib.sha256(text.encode()).hexdigest()
        case bytes():
            return hashlib.sha256(model).hexdigest()
        case _:
            return None


def known_digest(path: Path, folder: Path) -> str:
    """As :func:`file_digest`; kept in ``folder`` until the file's status changes.

    As Git does, this trusts size, number and times of a file that was not changed just now.
    """
    status = path.stat()
    facts = [status.st_size, status.st_ino, status.st_dev, status.st_mtime_ns, status.st_ctime_ns]
    note = folder / f"{hashlib.sha256(str(path).encode()).hexdigest()}.json"
    try:
        kept = json.loads(note.read_text())
        if kept["facts"] == facts:
            return str(kept["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or a damaged one, which is made anew
    digest = file_digest(path)
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"facts": facts, "digest": digest})
        replace_file(note, lambda temporary: _write(temporary, text))
    return digest


def external_files(graph: Graph) -> tuple[Path, ...]:
    """Files that constants of ``graph`` are mapped from."""
    bases = (_mapped_file(constant.data) for constant in graph.constants.values())
    return tuple(sorted({path for path in bases if path is not None}))


def _mapped_file(data: object) -> Path | None:
    while isinstance(data, np.ndarray):
        if isinstance(data, np.memmap) and data.filename is not None:
            return Path(str(data.filename))
        data = data.base
    return None


@dataclass(frozen=True)
class ArtifactCache:
    """Artifacts in ``directory``, together at most ``limit`` bytes; the least used go first.

    Any number of processes may use one directory at the same time.  In the folder ``digests``, if
    there is one, those of files are kept until they change.
    """

    directory: Path
    limit: int = 8 << 30
    digests: Path | None = None

    def find(self, key: str) -> Path | None:
        """The artifact of ``key``; None if there is none or a file it was made from changed."""
        artifact, note = self._path(key, _ARTIFACT), self._path(key, _NOTE)
        try:
            files: dict[str, str] = json.loads(note.read_text())
            if any(self._digest(Path(name)) != digest for name, digest in files.items()):
                return None
            os.utime(artifact)
        except (OSError, ValueError):
            return None
        return artifact

    def read(self, key: str) -> tuple[Artifact, Path] | None:
        """The artifact of ``key`` and its file; None if there is none that can be read."""
        found = self.find(key)
        try:
            return None if found is None else (read_artifact(found), found)
        except (ArtifactError, OSError):  # damaged, or removed by another process just now
            return None

    def add(self, key: str, save: Callable[[Path], None], files: Sequence[Path]) -> Path:
        """Keep what ``save`` writes to the path it is given; ``files`` are those it depends on."""
        artifact, note = self._path(key, _ARTIFACT), self._path(key, _NOTE)
        artifact.parent.mkdir(parents=True, exist_ok=True)
        digests = {str(path.resolve()): self._digest(path.resolve()) for path in files}
        replace_file(artifact, save)
        replace_file(note, lambda path: _write(path, json.dumps(digests)))
        self._trim()
        return artifact

    def _digest(self, path: Path) -> str:
        return file_digest(path) if self.digests is None else known_digest(path, self.digests)

    def _path(self, key: str, suffix: str) -> Path:
        return self.directory / key[:2] / (key + suffix)

    def _trim(self) -> None:
        total = 0
        for size, path in _by_last_use(self.directory.glob(f"*/*{_ARTIFACT}")):
            total += size
            if total > self.limit:
                path.with_suffix(_NOTE).unlink(missing_ok=True)
                path.unlink(missing_ok=True)


def replace_file(path: Path, save: Callable[[Path], object]) -> None:
    """Write ``path`` by ``save``, which gets a temporary name: it is seen whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        save(temporary)
        temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _by_last_use(paths: Iterable[Path]) -> list[tuple[int, Path]]:
    found: list[tuple[int, int, Path]] = []
    for path in paths:
        try:
            status = path.stat()
        except FileNotFoundError:  # another process trims too
            continue
        found.append((-status.st_mtime_ns, status.st_size, path))
    return [(size, path) for _, size, path in sorted(found)]
