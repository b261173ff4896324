"""An on-disk cache of compiled artifacts, keyed by the content of the model and the options.

An entry is an artifact and a note with the digests of the files that the model refers to (external
data): as in ccache's direct mode, the entry is valid while these have not changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path

from modelcc.artifact.errors import ArtifactError
from modelcc.artifact.file import Artifact, read_artifact, write_artifact
from modelcc.artifact.json_values import is_object
from modelcc.artifact.replacement import replace_contents, replace_file
from modelcc.cache.file_digests import Seen, file_digest, known_digest, seen
from modelcc.ir.graph import Graph
from modelcc.ir.graph_text import print_graph
from modelcc.options import Options
from modelcc.runtime.caches import system_caches
from modelcc.runtime.machine import machine_identity

_LOGGER = logging.getLogger(__name__)
_ARTIFACT = ".mcc"
_NOTE = ".json"


@lru_cache(1)
def compiler_fingerprint() -> str:
    """Changes with any file of the installed compiler; a digest of those that this process
    found."""
    digest = hashlib.sha256()
    for folder, _, names in sorted(os.walk(Path(__file__).parents[1])):
        for name in sorted(names):
            if name.endswith((".py", ".ll", ".c", ".h")):
                status = os.stat(os.path.join(folder, name))
                digest.update(f"{folder} {name} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


HOST_TARGETS = ("native",)
"""Targets whose code depends only on the options, this machine, LLVM and the compiler."""


def find_compiled(model: object, options: Options, cache: Path) -> Artifact | None:
    """The cached artifact of ``model`` in the folder ``cache``, for targets of ``HOST_TARGETS``."""
    if options.target not in HOST_TARGETS:
        return None
    key = artifact_key(model, options, host_key(), cache)
    return None if key is None else artifact_cache(cache).read(key)


def artifact_cache(cache: Path) -> ArtifactCache:
    """The artifact cache in the folder ``cache``."""
    return ArtifactCache(cache / "artifacts", digests=cache / "digests")


def artifact_key(model: object, options: Options, target: str, cache: Path) -> str | None:
    """A hash of everything that determines the artifact; None for models without bytes to hash.

    ``target`` identifies the target and its machine.
    """
    content = _content_digest(model, cache)
    if content is None:
        return None
    parts = (content, options.key(), target, compiler_fingerprint())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def host_key() -> str:
    """Changes with this machine's processor, its caches, and with LLVM."""
    spec = find_spec("llvmlite")
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    changed = origin.stat().st_mtime_ns if origin is not None else 0
    return f"{machine_identity()} {system_caches()} {origin} {changed}"


def _content_digest(model: object, cache: Path) -> str | None:
    match model:
        case str() | Path() if Path(model).is_file():
            # External data is stored next to the model, so the folder is part of the key.
            path = Path(model).resolve()
            text = f"{path.parent} {known_digest(path, cache / 'digests')}"
            return hashlib.sha256(os.fsencode(text)).hexdigest()
        case bytes():
            return hashlib.sha256(model).hexdigest()
        case Graph():
            return _graph_digest(model)
        case _:
            return None


def _graph_digest(graph: Graph) -> str | None:
    """Digest of its text, which contains digests of constants; None if that is not sufficient.

    The meaning of an op of another package may change without a change of the text.
    """
    return hashlib.sha256(print_graph(graph).encode()).hexdigest() if _is_ours(graph) else None


def _is_ours(graph: Graph) -> bool:
    return all(
        type(node.op).__module__.startswith("modelcc.")
        and all(map(_is_ours, (v for v in node.op.attributes().values() if isinstance(v, Graph))))
        for node in graph.nodes
    )


def seen_model(model: object) -> list[Seen]:
    """The state of the file that ``model`` is, if any, before it is read."""
    match model:
        case str() | Path() if Path(model).is_file():
            return [seen(Path(model))]
        case _:
            return []


def keep(
    artifact: Artifact, key: str, cache: Path, model: Sequence[Seen], files: Sequence[Seen]
) -> None:
    """Stores ``artifact`` under ``key`` in the folder ``cache``, if possible.

    It was compiled from ``model`` and its external ``files``.  If these have changed since they
    were seen, their contents in the artifact are unknown, so it is not stored.
    """
    entries = artifact_cache(cache)
    # A damaged entry is recompiled, so there is no need for fsync.
    save = partial(write_artifact, artifact=artifact, durable=False)
    try:
        digests = entries.digests_of([one.path for one in files])
        changed = [one.path for one in (*model, *files) if not one.unchanged()]
        if changed:
            _LOGGER.warning("%s changed while it was compiled; the result is not kept", changed[0])
            return
        _LOGGER.debug("kept in the cache as %s", entries.add(key, save, digests))
    except OSError as error:
        _LOGGER.warning(
            "compiled models cannot be kept in %s (%s): each run compiles again; set "
            "MODELCC_CACHE_DIR to a folder that can be written, or to nothing for no cache",
            cache,
            error.strerror or error,
        )


@dataclass(frozen=True)
class ArtifactCache:
    """Artifacts in ``directory``.

    Safe for concurrent processes.  The folder ``digests``, if given, caches digests of files until
    they change.
    """

    directory: Path
    digests: Path | None = None

    def find(self, key: str) -> Path | None:
        """The artifact of ``key``; None if there is none or a file it depends on has changed."""
        note = self._path(key, _NOTE)
        try:
            files = _noted_files(note.read_text())
            if any(self._digest(Path(name)) != digest for name, digest in files.items()):
                return None
        except (OSError, ValueError, RecursionError):
            return None
        artifact = self._path(_entry(key, files), _ARTIFACT)
        for path in (artifact, note):
            with suppress(OSError):  # not writable: only affects the order of eviction
                os.utime(path)
        return artifact if artifact.is_file() else None

    def read(self, key: str) -> Artifact | None:
        """The artifact of ``key``; None if there is no readable one."""
        found = self.find(key)
        if found is None:
            return None
        try:
            artifact = read_artifact(found)
        except (ArtifactError, OSError):  # damaged, or concurrently removed
            return None
        _LOGGER.info("found in the cache: %s", found)
        return artifact

    def digests_of(self, files: Iterable[Path]) -> dict[str, str]:
        """The digests of ``files`` by path; OSError if one cannot be read."""
        return {str(path.absolute()): self._digest(path.absolute()) for path in files}

    def add(self, key: str, save: Callable[[Path], None], digests: Mapping[str, str]) -> Path:
        """Stores what ``save`` writes to the path it is given, valid as long as the files it
        depends on have these ``digests``.

        OSError if it cannot be written.
        """
        artifact, note = self._path(_entry(key, digests), _ARTIFACT), self._path(key, _NOTE)
        for path in (artifact, note):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(artifact, save)
        replace_contents(note, json.dumps(digests))
        return artifact

    def _digest(self, path: Path) -> str:
        return file_digest(path) if self.digests is None else known_digest(path, self.digests)

    def _path(self, key: str, suffix: str) -> Path:
        return self.directory / key[:2] / (key + suffix)


def _entry(key: str, digests: Mapping[str, str]) -> str:
    """The file name of an artifact: it depends on the contents of its files, so that a note never
    refers to another artifact, even if a process is killed between writing the two."""
    return hashlib.sha256(f"{key} {sorted(digests.items())}".encode()).hexdigest()


def _noted_files(text: str) -> Mapping[str, str]:
    """Digests by file of a note; ValueError if invalid."""
    noted = json.loads(text)
    if not is_object(noted):
        raise ValueError("a damaged note")
    return {name: str(digest) for name, digest in noted.items()}
