"""Tensors by name in files, in the format of safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.artifact.replacement import replace_file
from modelcc.ir.errors import ModelError
from modelcc.ir.types import DTYPES
from modelcc.nn.module import Module
from modelcc.nn.state import array_of
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

LIBRARY = "safetensors"
OWN_NAMES: Mapping[str, str] = MappingProxyType(
    {"I8": "i8", "U8": "u8", "I16": "i16", "U16": "u16", "I32": "i32", "U32": "u32", "I64": "i64",
     "U64": "u64", "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "BOOL": "bool"}
)  # fmt: skip
"""Element types of the format by their names there."""


def save(
    tensors: Module | Mapping[str, Any],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the state of a module, or tensors by name; the file is seen whole or not at all.

    :class:`ModelError` without the package safetensors.
    """
    library = _library(f"{LIBRARY}.numpy")
    state = tensors.state_dict() if isinstance(tensors, Module) else tensors
    arrays = {name: np.ascontiguousarray(array_of(value)) for name, value in state.items()}
    data: bytes = library.save(arrays, None if metadata is None else dict(metadata))
    replace_file(Path(path), lambda temporary: temporary.write_bytes(data), durable=True)


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file by name; a module takes them by ``load_state_dict``.

    :class:`ModelError` for a file that is broken, and without the package safetensors.
    """
    library = _library(LIBRARY)
    try:
        found: list[tuple[str, Any]] = library.deserialize(Path(path).read_bytes())
    except library.SafetensorError as error:
        message = f"{os.fspath(path)} is no file of {LIBRARY}: {error}"
        raise ModelError(message, callers_line()) from error
    return {name: _tensor(name, entry) for name, entry in found}


def _tensor(name: str, entry: Mapping[str, Any]) -> Tensor:
    kind = entry["dtype"]
    if kind not in OWN_NAMES:
        raise ModelError(f"tensor {name!r} has elements of {kind}", callers_line(),
                         f"there are {', '.join(OWN_NAMES)}")  # fmt: skip
    dtype = DTYPES[OWN_NAMES[kind]].numpy
    array = np.frombuffer(bytes(entry["data"]), dtype).reshape(entry["shape"])
    return Tensor.of_array(array)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ModelError("files of weights take the package safetensors", callers_line(),
                         "pip install 'modelcc[train]'") from error  # fmt: skip
