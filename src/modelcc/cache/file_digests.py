"""Digests of model files, and detection of changes."""

from __future__ import annotations

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modelcc.artifact.replacement import replace_contents

_CHUNK = 1 << 20
_PIECE = 16 << 20
"""Bytes per piece, hashed separately: part of the definition of the digest."""
_THREADS = 4

_SETTLED = 2_000_000_000
"""Nanoseconds after which a change of a file certainly changes its mtime, on any file system."""


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


def known_digest(path: Path, folder: Path) -> str:
    """As :func:`file_digest`; cached in ``folder``, if possible, until the file's stat changes.

    As in Git, size, inode and times are trusted unless the file was changed very recently.
    """
    facts = _facts(path)
    note = folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"
    try:
        kept = json.loads(note.read_text())
        if kept["facts"] == facts and isinstance(kept["digest"], str):
            with suppress(OSError):  # not writable: only affects the order of eviction
                os.utime(note)
            return kept["digest"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass  # missing or damaged, recomputed
    digest = file_digest(path)
    if _is_settled(facts):
        text = json.dumps({"facts": facts, "digest": digest})
        with suppress(OSError):  # callers that store more report it
            folder.mkdir(parents=True, exist_ok=True)
            replace_contents(note, text)
    return digest


@dataclass(frozen=True)
class Seen:
    """The state of a file when :func:`seen` was called."""

    path: Path
    facts: tuple[int, ...]
    digest: str

    def unchanged(self) -> bool:
        """Whether it is still the same file with the same contents."""
        try:
            return tuple(_facts(self.path)) == self.facts and (
                not self.digest or file_digest(self.path) == self.digest
            )
        except OSError:
            return False


def seen(path: Path) -> Seen:
    """State to detect changes of the file: its stat, and its digest if a very recent change might
    leave that unchanged."""
    facts = _facts(path)
    return Seen(path, tuple(facts), "" if _is_settled(facts) else file_digest(path))


def _facts(path: Path) -> list[int]:
    status = path.stat()
    return [
        status.st_size, status.st_ino, status.st_dev, status.st_mtime_ns, status.st_ctime_ns
    ]  # fmt: skip


def _is_settled(facts: list[int]) -> bool:
    return time.time_ns() - max(facts[-2:]) > _SETTLED
