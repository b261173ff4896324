"""Memory that was freed goes back to the system.

The GNU C library keeps what is freed for later.  Compiling takes some hundred megabytes that
running does not.
"""

from __future__ import annotations

import ctypes
import sys


def release_heap() -> None:
    """Give back what the C library keeps, where it can; a few milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))
