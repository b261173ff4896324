"""Aligned memory for arenas and constants, in huge pages where the system has them."""

from __future__ import annotations

import ctypes
import mmap

from modelcc.ir.errors import OutOfMemoryError

HUGE_PAGE = 2 << 20
"""Bytes; blocks of at least this size are aligned to it."""

ALIGNMENT = 64


class Memory:
    """``size`` zeroed bytes at ``address``, a multiple of 64; freed with this object."""

    def __init__(self, size: int) -> None:
        """Raises OutOfMemoryError, with the size, if the allocation fails."""
        unit = HUGE_PAGE if size >= HUGE_PAGE else ALIGNMENT
        self.size = size
        self._pages = _mapped(size + unit)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        skipped = -start % unit
        self.address = start + skipped
        self.view = memoryview(self._pages)[skipped : skipped + size]
        if size >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            _ask_for_huge_pages(self._pages, skipped, size)

    def release(self, start: int) -> None:
        """Releases the pages from byte ``start`` on, which stay usable and become zero."""
        inside = self.address - ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        first = -(-(inside + start) // mmap.PAGESIZE) * mmap.PAGESIZE
        if first < len(self._pages) and hasattr(mmap, "MADV_DONTNEED"):
            self._pages.madvise(mmap.MADV_DONTNEED, first, len(self._pages) - first)


def _mapped(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        message = f"the system has no {size:,} bytes of memory for the model"
        raise OutOfMemoryError(message) from error


def _ask_for_huge_pages(pages: mmap.mmap, start: int, size: int) -> None:
    try:
        pages.madvise(mmap.MADV_HUGEPAGE, start, size - size % HUGE_PAGE)
    except OSError:
        return  # a kernel without huge pages: slower, otherwise the same
