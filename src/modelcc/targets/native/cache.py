"""Object files on disk, keyed by everything that determines their contents.

An entry is one file: a magic number, the SHA-256 of the object, the object. It is written to a
temporary name and renamed, so that a reader never sees half an entry, whatever other processes
do; one that does not match its checksum (a disk that was full, a bit that flipped) is removed and
counts as absent.
"""

import hashlib
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modelcc.artifact.replacement import replace_contents

_MAGIC = b"mcc-obj2"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
_SUFFIX = ".mccobj"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class ObjectCache:
    """Object files in `directory`; `cache.maintenance` evicts the least recently used ones.

    Any number of processes and threads may use one directory at the same time.
    """

    directory: Path

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`; None when there is none or it is damaged."""
        path = self._path(key)
        try:
            entry = path.read_bytes()
        except OSError:  # none, or unreadable
            return None
        contents = entry[_HEADER:]
        if entry[:_HEADER] != _MAGIC + hashlib.sha256(contents).digest():
            _remove(path)
            return None
        self._touch(path)
        return contents

    def put(self, key: str, contents: bytes) -> None:
        """Stores an object under `key`, replacing any, if possible.

        Failures are reported when the finished model is stored there, too.
        """
        path = self._path(key)
        entry = _MAGIC + hashlib.sha256(contents).digest() + contents
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_contents(path, entry)
        except OSError as error:
            _LOGGER.info("cannot keep an object file in %s: %s", self.directory, error)

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / (key + _SUFFIX)

    def _touch(self, path: Path) -> None:
        try:
            os.utime(path)
        except OSError:
            return  # removed by another process, or not ours: affects the eviction order only


def _remove(path: Path) -> None:
    with suppress(OSError):  # not ours to remove, and harmless
        path.unlink(missing_ok=True)
