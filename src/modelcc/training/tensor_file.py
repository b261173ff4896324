"""Arrays by name in a file of the safetensors format, with texts beside them.

The format: the length of a header in 8 bytes, little endian; the header, a JSON object of element
type, shape and place of each tensor; the elements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from modelcc.artifact.json_values import is_object
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array

TYPES: Mapping[str, Any] = MappingProxyType(
    {
        "F64": np.float64,
        "F32": np.float32,
        "F16": np.float16,
        "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "I64": np.int64,
        "I32": np.int32,
        "I16": np.int16,
        "I8": np.int8,
        "U64": np.uint64,
        "U32": np.uint32,
        "U16": np.uint16,
        "U8": np.uint8,
        "BOOL": np.bool_,
    }
)
"""NumPy's types by the format's names."""

_NAMES = MappingProxyType({np.dtype(kind): name for name, kind in TYPES.items()})
_TEXTS = "__metadata__"
_ALIGNMENT = 8


class TensorFileError(ModelError):
    """A file that is damaged, or of another format."""


def write_tensors(path: Path, arrays: Mapping[str, Array], texts: Mapping[str, str]) -> None:
    """Write a file; ``OSError`` if that cannot be done."""
    header: dict[str, Any] = {_TEXTS: dict(texts)}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        if array.dtype not in _NAMES:
            raise TensorFileError(f"safetensors has no elements of {array.dtype}", (name,))
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [start, end]}  # fmt: skip
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays and texts of a file; :class:`TensorFileError` if it is damaged."""
    data = path.read_bytes()
    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        if not is_object(header) or len(data) < 8 + size:
            raise ValueError("the header is cut off")
        texts: Any = header.get(_TEXTS, {})
        entries = {name: entry for name, entry in header.items() if name != _TEXTS}
        body = memoryview(data)[8 + size :]
        arrays = {name: _array(body, entry) for name, entry in entries.items()}
        if sum(array.nbytes for array in arrays.values()) != len(body):
            raise ValueError("the file has another length than its header says")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = f"no whole safetensors file: {error}"
        raise TensorFileError(message, (str(path),), "take another file, and delete it") from error
    return arrays, {str(name): str(text) for name, text in texts.items()}


def _array(body: memoryview, entry: Any) -> Array:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(body):
        raise ValueError("the file has another length than its header says")
    kind = np.dtype(TYPES[entry["dtype"]])
    return np.frombuffer(body[start:end], kind).reshape(entry["shape"])
