"""The state of a module in a file, in the format of safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from modelcc.artifact.replacement import replace_file
from modelcc.nn.module import Module
from modelcc.nn.state import array_of
from modelcc.tensor.files import read_tensors, write_tensors
from modelcc.tensor.tensor import Tensor


def save(
    tensors: Module | Mapping[str, Any],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes the state of a module, or tensors by name, atomically.

    :class:`~modelcc.ir.errors.ModelError` without the package safetensors.
    """
    state = tensors.state_dict() if isinstance(tensors, Module) else tensors
    arrays = {name: array_of(value) for name, value in state.items()}
    write = partial(write_tensors, arrays=arrays, texts=metadata or {})
    replace_file(Path(path), write, durable=True)


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file by name, for a module's ``load_state_dict``.

    :class:`~modelcc.tensor.files.TensorFileError` for a damaged file, and
    :class:`~modelcc.ir.errors.ModelError` without the package safetensors.
    """
    arrays, _ = read_tensors(Path(path))
    return {name: Tensor.of_array(array) for name, array in arrays.items()}
