"""ONNX tensors as NumPy arrays: raw data without a copy, external data memory-mapped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from modelcc.ir.errors import ModelError
from modelcc.ir.types import (
    BF16,
    BOOL,
    C64,
    C128,
    F4E2M1,
    F6E2M3,
    F6E3M2,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F16,
    F32,
    F64,
    I2,
    I4,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U2,
    U4,
    U8,
    U16,
    U32,
    U64,
    Array,
    DType,
)

MAX_BYTES = 1 << 40
"""No real model has a larger tensor; it would be a corrupted shape."""

_FLOAT6E2M3, _FLOAT6E3M2 = 27, 28
"""The standard's codes; ``onnx`` names them since 1.23."""

DTYPES: Mapping[int, DType] = MappingProxyType({
    TensorProto.FLOAT: F32, TensorProto.DOUBLE: F64, TensorProto.FLOAT16: F16,
    TensorProto.BFLOAT16: BF16,
    TensorProto.FLOAT8E4M3FN: F8E4M3FN, TensorProto.FLOAT8E4M3FNUZ: F8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: F8E5M2, TensorProto.FLOAT8E5M2FNUZ: F8E5M2FNUZ,
    TensorProto.FLOAT8E8M0: F8E8M0, _FLOAT6E2M3: F6E2M3, _FLOAT6E3M2: F6E3M2,
    TensorProto.FLOAT4E2M1: F4E2M1,
    TensorProto.INT64: I64, TensorProto.INT32: I32, TensorProto.INT16: I16,
    TensorProto.INT8: I8, TensorProto.INT4: I4, TensorProto.INT2: I2,
    TensorProto.UINT64: U64, TensorProto.UINT32: U32, TensorProto.UINT16: U16,
    TensorProto.UINT8: U8, TensorProto.UINT4: U4, TensorProto.UINT2: U2,
    TensorProto.BOOL: BOOL, TensorProto.COMPLEX64: C64, TensorProto.COMPLEX128: C128,
    TensorProto.STRING: STRING,
})  # fmt: skip

_TYPED_FIELDS: Mapping[int, str] = MappingProxyType(
    {
        TensorProto.FLOAT: "float_data",
        TensorProto.COMPLEX64: "float_data",
        TensorProto.DOUBLE: "double_data",
        TensorProto.COMPLEX128: "double_data",
        TensorProto.INT64: "int64_data",
        TensorProto.UINT64: "uint64_data",
        TensorProto.UINT32: "uint64_data",
        TensorProto.STRING: "string_data",
    }
)


def dtype_from_onnx(code: int, where: str) -> DType:
    """The dtype of an ONNX ``elem_type``; :class:`ModelError` if there is none."""
    found = DTYPES.get(code)
    if found is None:
        raise ModelError(
            f"element type {code} is not one modelcc knows",
            (where,),
            "re-export the model with a standard ONNX element type",
        )
    return found


def checked_dims(tensor: TensorProto, dtype: DType, where: str) -> tuple[int, ...]:
    """The dims of ``tensor``, checked to be nonnegative and of a plausible size."""
    dims = tuple(int(d) for d in tensor.dims)
    if any(d < 0 for d in dims):
        raise _corrupt(f"the tensor has negative dims {list(dims)}", where)
    room = math.prod(max(1, d) for d in dims) * dtype.bytes  # NumPy has no larger arrays
    if room > MAX_BYTES:
        raise _corrupt(f"dims {list(dims)} need {room} bytes, beyond any real tensor", where)
    return dims


def _corrupt(message: str, where: str) -> ModelError:
    return ModelError(message, (where,), "the file looks corrupted; export or download it again")


def to_array(
    tensor: TensorProto, folder: Path | None, where: str, raw: memoryview | None = None
) -> Array:
    """The contents of ``tensor``.

    External data is searched under ``folder`` and memory-mapped read-only.  ``raw`` is its raw data
    if that was split off the protobuf.  ``where`` names the tensor in errors: :class:`ModelError`
    for data that does not fit its dims.
    """
    dtype = dtype_from_onnx(tensor.data_type, where)
    dims = checked_dims(tensor, dtype, where)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, dtype, dims, folder, where)
    if raw is not None:
        return _decode(raw, dtype, dims, where)
    if tensor.HasField("raw_data"):
        return _decode(tensor.raw_data, dtype, dims, where)
    return _typed(tensor, dtype, dims, where)


def packed_bytes(dtype: DType, dims: tuple[int, ...]) -> int:
    """Bytes of the ONNX storage, where elements of less than 8 bits are packed."""
    return (math.prod(dims) * dtype.bits + 7) // 8


def _decode(data: bytes | memoryview, dtype: DType, dims: tuple[int, ...], where: str) -> Array:
    expected = packed_bytes(dtype, dims)
    if len(data) != expected:
        needed = f"{dtype}{list(dims)} needs {expected}"
        raise _corrupt(f"raw_data has {len(data)} bytes but {needed}", where)
    if dtype.bits < 8:
        return _unpack(np.frombuffer(data, np.uint8), dtype, dims)
    return np.frombuffer(data, dtype.numpy).reshape(dims)


def _unpack(data: Array, dtype: DType, dims: tuple[int, ...]) -> Array:
    """Elements of few bits, the first one in the least significant bits."""
    count = math.prod(dims)
    if 8 % dtype.bits:  # elements span bytes
        stream = np.unpackbits(data, count=count * dtype.bits, bitorder="little")
        fields = np.packbits(stream.reshape(count, dtype.bits), 1, "little")
    else:
        shifts = np.arange(8 // dtype.bits, dtype=np.uint8) * dtype.bits
        fields = (data[:, None] >> shifts) & ((1 << dtype.bits) - 1)
    return fields.reshape(-1)[:count].view(dtype.numpy).reshape(dims)


def _typed(tensor: TensorProto, dtype: DType, dims: tuple[int, ...], where: str) -> Array:
    name = _TYPED_FIELDS.get(tensor.data_type, "int32_data")
    count = len(getattr(tensor, name))
    per_element = 2 if dtype.kind == "complex" else 1
    expected = packed_bytes(dtype, dims) if dtype.bits < 8 else math.prod(dims) * per_element
    if count != expected:
        raise _corrupt(f"{name} has {count} values but {dtype}{list(dims)} needs {expected}", where)
    try:
        return np.asarray(numpy_helper.to_array(tensor)).reshape(dims)
    except (ValueError, TypeError, OverflowError) as error:
        raise _corrupt(f"the tensor cannot be read: {error}", where) from error


def _external(
    tensor: TensorProto, dtype: DType, dims: tuple[int, ...], folder: Path | None, where: str
) -> Array:
    entries = {e.key: e.value for e in tensor.external_data}
    path = _external_path(entries.get("location", ""), folder, where)
    expected = packed_bytes(dtype, dims)
    offset = _number(entries, "offset", 0, where)
    length = _number(entries, "length", expected, where)
    if length != expected:
        needed = f"{dtype}{list(dims)} needs {expected}"
        raise _corrupt(f"external data of {length} bytes, but {needed}", where)
    size = path.stat().st_size
    if offset + length > size:
        raise ModelError(
            f"external file {path.name} has {size} bytes but the tensor ends at {offset + length}",
            (where,),
            "the file is truncated; copy it again, beside the model",
        )
    if expected == 0:
        return np.empty(dims, dtype.numpy)
    data = np.memmap(path, np.uint8, "r", offset, (expected,))
    if dtype.bits < 8:
        return _unpack(data, dtype, dims)
    return data.view(dtype.numpy).reshape(dims)


def _external_path(location: str, folder: Path | None, where: str) -> Path:
    if folder is None:
        raise ModelError(
            f"its data is in an external file, {location!r}, but the model was given in memory",
            (where,),
            "pass the path of the .onnx file instead of its bytes",
        )
    root = folder.resolve()
    path = root if "\0" in location else (root / location).resolve()
    if not location or path == root or not path.is_relative_to(root):
        raise ModelError(
            f"external data location {location!r} is outside of the model's folder {folder}",
            (where,),
            "put the data file beside the model and store a relative location",
        )
    if not path.is_file():
        raise ModelError(
            f"external data file {location!r} is not in {folder}",
            (where,),
            "copy it there, it belongs to the model",
        )
    return path


def _number(entries: Mapping[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise _corrupt(f"external data has {key} {text!r}, not a number", where)
    return int(text)


def sparse_to_array(tensor: onnx.SparseTensorProto, folder: Path | None, where: str) -> Array:
    """A dense array from a sparse tensor in COO format (linear or per-dimension indices)."""
    values = to_array(tensor.values, folder, where)
    indices = to_array(tensor.indices, folder, where)
    dims = tuple(int(d) for d in tensor.dims)
    if any(d < 0 for d in dims) or math.prod(dims) * values.itemsize > MAX_BYTES:
        raise _corrupt(f"the sparse tensor has dims {list(dims)}", where)
    if indices.shape[:1] != values.shape or (indices < 0).any():
        message = f"{len(indices)} sparse indices, none below 0, do not give {values.size} values"
        raise _corrupt(message, where)
    dense = np.zeros(dims, values.dtype)
    try:
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise _corrupt(f"sparse indices do not fit: {error}", where) from error
    return dense
