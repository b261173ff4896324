"""Data caches of this machine's processor, from Linux's sysfs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = MappingProxyType({"K": 1 << 10, "M": 1 << 20, "G": 1 << 30})


@dataclass(frozen=True)
class SystemCache:
    """The data cache of a ``level`` (1: nearest) has ``bytes`` and is shared by ``cores``."""

    level: int
    bytes: int
    cores: int


def system_caches(folder: Path = _FOLDER) -> tuple[SystemCache, ...]:
    """Caches of the first core, nearest first; none if Linux does not report them."""
    return tuple(sorted(_caches(folder), key=lambda cache: cache.level))


def _caches(folder: Path) -> Iterator[SystemCache]:
    for index in folder.glob("index*"):
        try:
            if (index / "type").read_text().strip() not in ("Data", "Unified"):
                continue
            level = int((index / "level").read_text())
            size = _bytes((index / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if size > 0:
            yield SystemCache(level, size, _cores(index))


def _bytes(text: str) -> int:
    """Parses ``32K``."""
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)


def _cores(index: Path) -> int:
    """Number of cores that share a cache: eight for ``0-3,8-11``; 1 if unknown."""
    try:
        ranges = (index / "shared_cpu_list").read_text().strip().split(",")
        ends = [(int(a), int(b or a)) for a, _, b in (r.partition("-") for r in ranges)]
    except (OSError, ValueError):
        return 1
    return max(1, sum(b - a + 1 for a, b in ends))
