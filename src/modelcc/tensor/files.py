"""Named arrays in a safetensors file, with text metadata."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import (
    BF16,
    BOOL,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    DType,
)

LIBRARY = "safetensors"
TYPES: Mapping[str, DType] = MappingProxyType(
    {
        **{t.name.upper(): t for t in (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8)},
        "BOOL": BOOL,
        "F8_E4M3": F8E4M3FN,
        "F8_E5M2": F8E5M2,
    }
)
"""Element types by the format's names."""


class TensorFileError(ModelError):
    """A file that is damaged, or of another format."""


def write_tensors(path: Path, arrays: Mapping[str, Array], texts: Mapping[str, str]) -> None:
    """Write a file; ``OSError`` if that fails.

    :class:`ModelError` without the package safetensors.  The order of texts is unspecified.
    """
    library = _library(f"{LIBRARY}.numpy")
    known = {type.numpy for type in TYPES.values()}
    strange = next((name for name, array in arrays.items() if array.dtype not in known), None)
    if strange is not None:
        message = f"{LIBRARY} has no elements of {arrays[strange].dtype}"
        raise TensorFileError(message, (strange,))
    rows = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    path.write_bytes(library.save(rows, dict(texts) or None))


def read_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Read-only arrays by name, sorted, and texts of a file.

    :class:`TensorFileError` if it is damaged, :class:`ModelError` without the package safetensors.
    """
    library = _library(LIBRARY)
    try:
        with library.safe_open(path, "np") as file:
            texts: dict[str, str] = file.metadata() or {}
        entries: list[tuple[str, Any]] = library.deserialize(path.read_bytes())
        return {name: _array(entry) for name, entry in sorted(entries, key=itemgetter(0))}, texts
    except (library.SafetensorError, KeyError) as error:
        message = f"no whole {LIBRARY} file: {error}"
        raise TensorFileError(message, (str(path),), "take another file, and delete it") from error


def _array(entry: Mapping[str, Any]) -> Array:
    dtype = TYPES[entry["dtype"]].numpy
    return np.frombuffer(bytes(entry["data"]), dtype).reshape(entry["shape"])


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ModelError(f"files of tensors take the package {LIBRARY}", (),
                         "pip install 'modelcc[train]'") from error  # fmt: skip
