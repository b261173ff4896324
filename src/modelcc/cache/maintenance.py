"""Size and eviction of the cache folder.

    artifacts/XX/KEY.mcc    finished models, each with a note KEY.json of the files it depends on
    objects/XX/KEY.mccobj   object files of kernels
    digests/KEY.json        digests of models and weights that were compiled

Only files of these names, and their temporaries, are ever counted or removed; the database of
schedules (:mod:`modelcc.tune.database`) and measurements of machines (``measurements.py``) stay.
Safe for concurrent processes: evicted entries are recomputed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modelcc.artifact.replacement import is_abandoned

DEFAULT_LIMIT = 8 << 30
"""Limit on the whole folder in bytes."""

ARTIFACTS, OBJECTS, DIGESTS, TEMPORARIES = "artifacts", "objects", "digests", "temporaries"

_NAMES = {
    ARTIFACTS: re.compile(r"[0-9a-f]{2}/[0-9a-f]+\.(mcc|json)"),
    OBJECTS: re.compile(r"[0-9a-f]{2}/[0-9a-f]+\.mccobj"),
    DIGESTS: re.compile(r"[0-9a-f]+\.json"),
}
_STAMP = "trimmed"
"""A file whose mtime is that of the last trim."""

_INTERVAL = 60
"""Minimum seconds between trims of a folder in heavy use."""

_DIGEST_AGE = 30 * 24 * 3600
"""Seconds after which an unused digest is evicted."""

_DAY = 24 * 3600
"""Seconds after which a temporary file counts as abandoned, where the system cannot tell."""


@dataclass(frozen=True)
class Share:
    """Number of files, and their bytes together."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class CacheUsage:
    """Contents of ``folder``; ``temporaries`` are files being written, or abandoned."""

    folder: Path
    artifacts: Share = Share()
    objects: Share = Share()
    digests: Share = Share()
    temporaries: Share = Share()

    @property
    def files(self) -> int:
        """Number of all files."""
        return sum(share.files for share in self._shares)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(share.bytes for share in self._shares)

    @property
    def _shares(self) -> tuple[Share, ...]:
        return self.artifacts, self.objects, self.digests, self.temporaries


@dataclass(frozen=True)
class Item:
    """A unit of eviction: files, their bytes, and when they were last used (in ns)."""

    kind: str
    paths: tuple[Path, ...]
    bytes: int
    used: int

    def remove(self) -> bool:
        """Removes the files; returns whether that succeeded."""
        try:
            for path in self.paths:
                path.unlink(missing_ok=True)
        except OSError:
            return False
        return True


def cache_usage(folder: Path) -> CacheUsage:
    """Contents of ``folder``; empty if it does not exist."""
    return _usage(folder, _items(folder))


def trim_cache(folder: Path, limit_bytes: int = DEFAULT_LIMIT) -> CacheUsage:
    """Removes abandoned files, old digests, and then the least recently used entries until at most
    ``limit_bytes`` are left; returns what was removed."""
    return _usage(folder, remove_beyond(limit_bytes, [*_items(folder)]))


def clear_cache(folder: Path) -> CacheUsage:
    """Removes everything that no process is writing; returns what was removed."""
    removed = trim_cache(folder, 0)
    (folder / _STAMP).unlink(missing_ok=True)
    for kind in _NAMES:
        for place in (*(folder / kind).glob("*"), folder / kind):
            with suppress(OSError):  # not empty, or not a folder
                place.rmdir()
    return removed


def trim_now_and_then(folder: Path) -> None:
    """As :func:`trim_cache`, unless that was done within a minute, or cannot be recorded."""
    stamp = folder / _STAMP
    with suppress(OSError):
        if stamp.exists() and 0 <= time.time() - stamp.stat().st_mtime < _INTERVAL:
            return
        stamp.touch()
        trim_cache(folder)


def remove_beyond(limit: int, items: Iterable[Item]) -> list[Item]:
    """Removes abandoned files, old digests, and the least recently used entries beyond ``limit``
    bytes; returns what was removed."""
    now, total = time.time_ns(), 0
    removed: list[Item] = []
    for item in sorted(items, key=lambda item: (-item.used, item.paths)):
        if item.kind == TEMPORARIES:
            dead = all(map(is_abandoned, item.paths)) or now - item.used > _DAY * 10**9
        else:
            total += item.bytes
            dead = total > limit or (item.kind == DIGESTS and now - item.used > _DIGEST_AGE * 10**9)
        if dead and item.remove():
            removed.append(item)
    return removed


def items_of(directory: Path, kind: str) -> Iterator[Item]:
    """Items of ``directory``, which holds files of ``kind``."""
    name = _NAMES[kind]
    whole: dict[Path, list[Path]] = {}
    for path in _walk(directory):
        if path.name.startswith("."):
            yield from _item(TEMPORARIES, [path])
        elif name.fullmatch(path.relative_to(directory).as_posix()):
            whole.setdefault(path.with_suffix(""), []).append(path)
    for paths in whole.values():
        yield from _item(kind, sorted(paths))


def _items(folder: Path) -> Iterator[Item]:
    for kind in _NAMES:
        yield from items_of(folder / kind, kind)


def _walk(directory: Path) -> Iterator[Path]:
    """Files in ``directory`` and its immediate subfolders."""
    with suppress(OSError):  # it is gone, or not readable
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):
                    yield from (inner for inner in path.iterdir() if inner.is_file())
            elif path.is_file():
                yield path


def _item(kind: str, paths: list[Path]) -> Iterator[Item]:
    with suppress(FileNotFoundError):  # removed by another process
        known = [path.stat() for path in paths]
        used = max(status.st_mtime_ns for status in known)
        yield Item(kind, tuple(paths), sum(status.st_size for status in known), used)


def _usage(folder: Path, items: Iterable[Item]) -> CacheUsage:
    shares = dict.fromkeys((*_NAMES, TEMPORARIES), Share())
    for item in items:
        known = shares[item.kind]
        shares[item.kind] = Share(known.files + len(item.paths), known.bytes + item.bytes)
    return CacheUsage(folder, **shares)
