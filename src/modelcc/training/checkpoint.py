"""Checkpoints: files from which training resumes exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from modelcc.artifact.replacement import PREFIX, is_abandoned, replace_file
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.tensor.files import TensorFileError, read_tensors, write_tensors
from modelcc.training.progress import Progress, from_json, to_json

FORMAT = "modelcc.training/1"
"""The only metadata entry of a file, so that equal checkpoints are equal files."""
SUFFIX = ".safetensors"
BEST = f"best{SUFFIX}"
PATTERN = f"step-*{SUFFIX}"


@dataclass(frozen=True)
class Checkpoint:
    """``values`` of a step (parameters, buffers, random keys, optimiser state), the ``progress``,
    the identity of the ``data`` and the ``marks`` of logs."""

    values: Mapping[str, Array]
    progress: Progress
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    marks: tuple[Any, ...] = ()


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write ``path`` atomically, even if the process or the machine is killed."""
    parts = {
        "progress": to_json(checkpoint.progress),
        "data": dict(checkpoint.data),
        "marks": checkpoint.marks,
        "sha256": _digest(checkpoint.values),
    }
    save = partial(write_tensors, arrays=checkpoint.values, texts={FORMAT: json.dumps(parts)})
    replace_file(path, save, durable=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in the file ``path``; :class:`TensorFileError` if it is none."""
    values, texts = read_tensors(path)
    if FORMAT not in texts:
        raise TensorFileError("no checkpoint of this version", (str(path),))
    try:
        parts: Any = json.loads(texts[FORMAT])
        progress = from_json(parts["progress"])
        if parts["sha256"] != _digest(values):
            raise ValueError("its tensors are not those that were written")
        return Checkpoint(values, progress, parts["data"], tuple(parts["marks"]))
    except (KeyError, TypeError, ValueError) as error:
        raise TensorFileError(f"a damaged checkpoint: {error}", (str(path),)) from error


def _digest(values: Mapping[str, Array]) -> str:
    """Of names, types, shapes and elements: the format has no checksum."""
    found = sha256()
    for name, array in sorted(values.items()):
        found.update(f"{name} {array.dtype.name} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a training run in ``folder``: the last ``keep`` of them."""

    folder: Path
    keep: int = 2

    def paths(self) -> list[Path]:
        """Files of checkpoints, the oldest first."""
        return sorted(self.folder.glob(PATTERN))

    def newest(self) -> Path | None:
        """The file to resume from, if there is one."""
        return next(reversed(self.paths()), None)

    def add(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, and remove the oldest ones beyond ``keep``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{checkpoint.progress.step:010}{SUFFIX}"
        write_checkpoint(path, checkpoint)
        for old in self.paths()[: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def add_best(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint as the best so far."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(self.folder / BEST, checkpoint)

    def best(self) -> Checkpoint | None:
        """The best one, if there is one."""
        path = self.folder / BEST
        return read_checkpoint(path) if path.is_file() else None

    def clean(self) -> None:
        """Remove temporary files of killed writers."""
        for path in self.folder.glob(f"{PREFIX}*"):
            if is_abandoned(path):
                path.unlink(missing_ok=True)


def require_same_data(path: Path, checkpoint: Checkpoint, data: Mapping[str, Any]) -> None:
    """:class:`ModelError` if a checkpoint was made with data in another order."""
    names = sorted(checkpoint.data.keys() | data.keys())
    pairs = ((name, checkpoint.data.get(name), data.get(name)) for name in names)
    differ = [f"{name} {before} then, {now} now" for name, before, now in pairs if before != now]
    if differ:
        raise ModelError(f"it was made with other data: {', '.join(differ)}", (str(path),),
                         "go on with the same batches, or begin in another folder")  # fmt: skip
