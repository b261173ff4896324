"""Logs of a training run: JSON lines, and events for TensorBoard."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from modelcc.ir.errors import ModelError


@dataclass(frozen=True)
class Record:
    """Values of ``part`` ("train", "validation") after ``step`` steps, in epoch ``epoch``."""

    part: str
    step: int
    epoch: int
    values: Mapping[str, float]


class TrainingLog(Protocol):
    """A sink of records."""

    def start(self, step: int, mark: Any) -> None:
        """Continue after ``step``; ``mark`` is from that point (None: start anew), and later
        records are to be discarded."""
        ...

    def write(self, record: Record) -> None:
        """Write a record."""
        ...

    def mark(self) -> Any:
        """The current position, for a checkpoint, as JSON; flushes all records."""
        ...

    def close(self) -> None:
        """End the log."""
        ...


@dataclass
class JsonLines:
    """A JSON object for each record, in the file ``path``.

    A run that resumes from a checkpoint truncates the file to its state then.
    """

    path: str | os.PathLike[str]
    _file: BinaryIO | None = field(default=None, init=False, repr=False)

    def start(self, step: int, mark: Any) -> None:
        path = Path(self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("r+b" if path.is_file() else "w+b")
        size = self._file.seek(0, os.SEEK_END)
        self._file.truncate(min(int(mark or 0), size))
        self._file.seek(0, os.SEEK_END)

    def write(self, record: Record) -> None:
        assert self._file is not None
        values = {"part": record.part, "step": record.step, "epoch": record.epoch,
                  **record.values, "time": round(time.time(), 3)}  # fmt: skip
        self._file.write(json.dumps(values).encode() + b"\n")
        self._file.flush()

    def mark(self) -> int:
        assert self._file is not None
        return self._file.tell()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass
class TensorBoard:
    """Event files in ``folder``, which TensorBoard draws; needs the extra ``train``."""

    folder: str | os.PathLike[str]
    _writer: Any = field(default=None, init=False, repr=False)

    def start(self, step: int, mark: Any) -> None:
        try:
            package: Any = import_module("tensorboardX")
        except ImportError as error:
            hint = "pip install 'modelcc[train]', or log to JsonLines"
            raise ModelError("no package writes TensorBoard's files", (), hint) from error
        purged = None if mark is None else step + 1
        # File names have a resolution of seconds: resuming within one would overwrite the first.
        suffix = f".{time.time_ns()}"
        self._writer = package.SummaryWriter(
            os.fspath(self.folder), purge_step=purged, filename_suffix=suffix
        )

    def write(self, record: Record) -> None:
        for name, value in record.values.items():
            self._writer.add_scalar(f"{record.part}/{name}", value, record.step)

    def mark(self) -> int:
        self._writer.flush()
        return 0

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
