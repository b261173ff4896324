"""Turns between measurements that run on one machine at the same time."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusively(path: Path | None) -> Generator[None]:
    """Holds the lock of the file `path`, as flock(1) does; None: nothing to wait for."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
