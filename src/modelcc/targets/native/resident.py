"""Code of libraries that is in memory and not going to run for a while."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_CODE = "r-xp"


def release_code(folder: Path) -> None:
    """Let the system take back pages of code of the loaded libraries in ``folder``.

    Code never differs from its file, from which the system reads it again where it runs.  Nothing
    happens elsewhere than on Linux.
    """
    if not _MAPS.is_file():
        return
    advise = ctypes.CDLL(None).madvise
    for start, end in _code(folder):
        advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _code(folder: Path) -> Iterator[tuple[int, int]]:
    """Addresses of the code of all libraries in ``folder``."""
    for line in _MAPS.read_text().splitlines():
        addresses, rights, *rest = line.split(maxsplit=5)
        if rights == _CODE and rest[-1].startswith(f"{folder}/"):
            start, end = addresses.split("-")
            yield int(start, 16), int(end, 16)
