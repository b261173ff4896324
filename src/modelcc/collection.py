"""Python's cyclic garbage collector, at rest while a model is compiled.

Programs are trees of immutable nodes, which reference counts free.  The collector would look
through all of them again and again: a quarter of the compiler's time.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_cycle_collection() -> Generator[None]:
    """Keep the collector off; afterwards it is as it was before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
