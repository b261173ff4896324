"""What lies in the folder of caches: how much it is, and taking away what was not used for long.

    artifacts/XX/KEY.mcc    finished models, each with a note KEY.json of the files it depends on
    objects/XX/KEY.mccobj   object files of kernels
    digests/KEY.json        digests of models and weights that were compiled

Only files of these names, and unfinished ones beside them, are ever counted or removed; the
database of schedules (:mod:`modelcc.tune.database`) and what was measured of machines
(``measurements.py``) stay.  Any number of processes may use the folder meanwhile: what is gone is
made again.
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
"""Bytes that the whole folder may take."""

ARTIFACTS, OBJECTS, DIGESTS, TEMPORARIES = "artifacts", "objects", "digests", "temporaries"

_NAMES = {
    ARTIFACTS: re.compile(r"[0-9a-f]{2}/[0-9a-f]+\.(mcc|json)"),
    OBJECTS: re.compile(r"[0-9a-f]{2}/[0-9a-f]+\.mccobj"),
    DIGESTS: re.compile(r"[0-9a-f]+\.json"),
}
_STAMP = "trimmed"
"""A file whose time is that of the last trim."""

_INTERVAL = 60
"""Seconds between trims of a folder that much is compiled into."""

_DIGEST_AGE = 30 * 24 * 3600
"""Seconds after which a digest that nobody asked for is forgotten."""

_DAY = 24 * 3600
"""Seconds after which nobody writes a file any more, where systems cannot tell."""


@dataclass(frozen=True)
class Share:
    """So many files, of so many bytes together."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class CacheUsage:
    """What lies in ``folder``; ``temporaries`` are files that are being written, or were."""

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
    """What is kept or removed as one: files, their bytes, and when they were used last (in ns)."""

    kind: str
    paths: tuple[Path, ...]
    bytes: int
    used: int

    def remove(self) -> bool:
        """Whether the files could be removed."""
        try:
            for path in self.paths:
                path.unlink(missing_ok=True)
        except OSError:
            return False
        return True


def cache_usage(folder: Path) -> CacheUsage:
    """What is in ``folder``: nothing, if there is no such folder."""
    return _usage(folder, _items(folder))


def trim_cache(folder: Path, limit_bytes: int = DEFAULT_LIMIT) -> CacheUsage:
    """Remove what nobody finished, old digests, and then the least recently used until at most
    ``limit_bytes`` are left; what was removed."""
    return _usage(folder, remove_beyond(limit_bytes, [*_items(folder)]))


def clear_cache(folder: Path) -> CacheUsage:
    """Remove everything that no process is writing just now; what was removed."""
    removed = trim_cache(folder, 0)
    (folder / _STAMP).unlink(missing_ok=True)
    for kind in _NAMES:
        for place in (*(folder / kind).glob("*"), folder / kind):
            with suppress(OSError):  # it is not empty, or no folder
                place.rmdir()
    return removed


def trim_now_and_then(folder: Path) -> None:
    """As :func:`trim_cache`, unless that was done a minute ago, or cannot be noted."""
    stamp = folder / _STAMP
    with suppress(OSError):
        if stamp.exists() and 0 <= time.time() - stamp.stat().st_mtime < _INTERVAL:
            return
        stamp.touch()
        trim_cache(folder)


def remove_beyond(limit: int, items: Iterable[Item]) -> list[Item]:
    """Remove what nobody finished, old digests, and all that does not fit into ``limit`` bytes if
    the last used come first; what was removed."""
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
    """What lies in ``directory``, where what is of ``kind`` is kept."""
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
    """Files in ``directory`` and the folders in it, but no deeper."""
    with suppress(OSError):  # it is gone, or nobody may look into it
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):
                    yield from (inner for inner in path.iterdir() if inner.is_file())
            elif path.is_file():
                yield path


def _item(kind: str, paths: list[Path]) -> Iterator[Item]:
    with suppress(FileNotFoundError):  # another process trims, too
        known = [path.stat() for path in paths]
        used = max(status.st_mtime_ns for status in known)
        yield Item(kind, tuple(paths), sum(status.st_size for status in known), used)


def _usage(folder: Path, items: Iterable[Item]) -> CacheUsage:
    shares = dict.fromkeys((*_NAMES, TEMPORARIES), Share())
    for item in items:
        known = shares[item.kind]
        shares[item.kind] = Share(known.files + len(item.paths), known.bytes + item.bytes)
    return CacheUsage(folder, **shares)
