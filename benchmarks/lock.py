"""Mutual exclusion of measurements on one machine."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusively(path: Path | None) -> Generator[None]:
    """Holds the lock of the file `path`, as flock(1) does; None: no lock."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
