"""Atomic replacement of files, and detection of files abandoned by killed writers."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

PREFIX = ".new-"
"""Prefix of names of unfinished files."""


def replace_file(path: Path, save: Callable[[Path], object], durable: bool = False) -> None:
    """Write ``path`` by ``save``, which gets a temporary name, atomically.

    With ``durable`` that holds even if the machine crashes; otherwise there is no wait for the
    disk.  Special files (``/dev/null``, a pipe) get the finished contents.
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
        temporary.chmod(0o644)  # the usual default for new files
        os.replace(temporary, path)
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def replace_contents(path: Path, contents: str | bytes | memoryview) -> None:
    """As :func:`replace_file`, of text in UTF-8 or bytes."""
    data = contents.encode() if isinstance(contents, str) else contents
    replace_file(path, lambda temporary: temporary.write_bytes(data))


def _copy_finished(path: Path, save: Callable[[Path], object]) -> None:
    """Via a regular file: some formats seek back to write lengths, devices and pipes cannot."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder, f"contents{path.suffix}")
        save(temporary)
        with temporary.open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)


def is_abandoned(path: Path) -> bool:
    """Whether ``path`` is a temporary file of :func:`replace_file` without a live writer."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is locked, or has just been finished
        return False
    return True


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
