"""Files that models are read from."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from modelcc.ir.errors import ModelError


@contextmanager
def open_model(path: Path) -> Generator[BinaryIO]:
    """The file at ``path``, opened for reading; :class:`ModelError` if it does not exist or is
    unreadable."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder", (), "give the path of the model's file")
    if path.exists() and not path.is_file():  # it has no size, and can be read but once
        raise ModelError(f"{path} is a pipe or a device", (), "write the model to a file first")
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"cannot read {path}: {reason}", (), "check the path") from error
