"""Files that are seen whole or not at all, and what is left of those whose writer was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

PREFIX = ".new-"
"""Begins the names of files that are not finished."""


def replace_file(path: Path, save: Callable[[Path], object], durable: bool = False) -> None:
    """Write ``path`` by ``save``, which gets a temporary name: it is seen whole or not at all.

    That holds even if the machine stops, if ``durable``; nobody waits for the disk otherwise.
    What is no file (``/dev/null``, a pipe) gets the finished contents.
    """
    if _is_special(path):
        _copy_finished(path, save)
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=PREFIX, suffix=path.suffix)
    temporary = Path(name)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # until it is closed, or this process ends
        save(temporary)
        if durable:
            os.fsync(handle)
        temporary.chmod(0o644)  # as the system gives to new files, most often
        os.replace(temporary, path)
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def replace_contents(path: Path, contents: str | bytes | memoryview) -> None:
    """As :func:`replace_file`, of text in UTF-8 or bytes."""
    data = contents.encode() if isinstance(contents, str) else contents
    replace_file(path, lambda temporary: temporary.write_bytes(data))


def _copy_finished(path: Path, save: Callable[[Path], object]) -> None:
    """Some formats go back to write lengths, which a device or a pipe cannot do."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder, f"contents{path.suffix}")
        save(temporary)
        with temporary.open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)


def is_abandoned(path: Path) -> bool:
    """Whether ``path`` is a temporary file of :func:`replace_file` that nobody writes any more."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody holds it, or it has just been finished
        return False
    return True


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
