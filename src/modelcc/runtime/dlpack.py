"""Tensor exchange by DLPack, for memory that NumPy cannot access.

Structures and capsules are those of DLPack 0.x, which newer consumers and producers support
(https://dmlc.github.io/dlpack/latest/python_spec.html).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

from modelcc.ir.types import NumpyType

CPU, CUDA, ROCM, CUDA_MANAGED = 1, 2, 10, 13
"""Kinds of devices."""

LEGACY_STREAM = 1
"""CUDA's legacy default stream, as DLPack and the CUDA array interface number it."""

ROCM_STREAM = 0
"""ROCm's default stream, as DLPack numbers it."""

_NAME = b"dltensor"

_CODES: Mapping[str, int] = MappingProxyType(
    {
        "bool": 6,
        "bfloat16": 4,
        "float8_e4m3fn": 10,
        "float8_e4m3fnuz": 11,
        "float8_e5m2": 12,
        "float8_e5m2fnuz": 13,
    }
)
"""DLPack type codes that NumPy's kind letters do not determine."""

_KINDS: Mapping[str, int] = MappingProxyType({"i": 0, "u": 1, "f": 2, "c": 5})


class _DltensorFields(ctypes.Structure):
    """``DLTensor``, with its device and element type inlined."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DlManagedFields(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = (
        ("tensor", _DltensorFields),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class DlpackTensor:
    """The tensor of a capsule; ``kind`` is its element type in DLPack's codes."""

    address: int
    device: tuple[int, int]
    kind: tuple[int, int, int]
    shape: tuple[int, ...]
    contiguous: bool


def dlpack_kind(dtype: NumpyType) -> tuple[int, int, int]:
    """Code, bits and lanes of an element type; BufferError if DLPack has no equivalent."""
    code = _CODES.get(dtype.name, _KINDS.get(dtype.kind))
    if code is None:
        raise BufferError(f"DLPack has no elements of {dtype}")
    return code, 8 * dtype.itemsize, 1


def read_capsule(capsule: object) -> DlpackTensor:
    """The tensor of ``capsule``, which remains its owner; ValueError if it is not one, or
    consumed."""
    managed = _DlManagedFields.from_address(_pointer(capsule, _NAME))
    tensor = managed.tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    return DlpackTensor(
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device_id),
        (tensor.code, tensor.bits, tensor.lanes),
        shape,
        strides is None or is_contiguous(shape, strides),
    )


class NumpyExporter:
    """An exporter for NumPy, which lacks bfloat16 and 8-bit floats: for such a ``dtype`` NumPy gets
    integers of the same width, and ``as_integers`` is set."""

    def __init__(self, exporter: Any, dtype: NumpyType) -> None:
        self._exporter, self._kind = exporter, dlpack_kind(dtype)
        self.as_integers = False

    def __dlpack_device__(self) -> tuple[int, int]:
        """The exporter's device."""
        return self._exporter.__dlpack_device__()

    def __dlpack__(self, **_: object) -> object:
        """The exporter's capsule."""
        capsule = self._exporter.__dlpack__()
        tensor = _DlManagedFields.from_address(_pointer(capsule, _NAME)).tensor
        if (tensor.code, tensor.bits, tensor.lanes) == self._kind:
            tensor.code, self.as_integers = _KINDS["u"], True
        return capsule


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the layout is row-major contiguous, by ``strides`` in elements."""
    if 0 in shape:
        return True
    return all(n == 1 or strides[i] == prod(shape[i + 1 :]) for i, n in enumerate(shape))


def make_capsule(
    address: int, device: tuple[int, int], dtype: NumpyType, shape: tuple[int, ...], owner: object
) -> object:
    """A capsule with a tensor at ``address``, which keeps ``owner`` alive until its last use."""
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    tensor = _DltensorFields(address, *device, len(shape), *dlpack_kind(dtype), extents, None, 0)
    held = _ExportedTensor(_DlManagedFields(tensor), extents, owner)
    held.managed.manager_ctx = id(held)
    held.managed.deleter = ctypes.cast(_delete, ctypes.c_void_p).value
    capsule = _new(ctypes.addressof(held.managed), _NAME, _destroy)
    _keep(held)
    return capsule


@dataclass
class _ExportedTensor:
    """The objects kept alive while a tensor is in use."""

    managed: _DlManagedFields
    extents: Any
    owner: object


_keep = ctypes.pythonapi.Py_IncRef
_keep.argtypes, _keep.restype = (ctypes.py_object,), None
_drop = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", ctypes.pythonapi))
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(managed: int) -> None:
    """Deleter called by the consumer."""
    _drop(_DlManagedFields.from_address(managed).manager_ctx)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule: int) -> None:
    """Destructor of an unconsumed capsule; it must not create references to the capsule."""
    if _is_valid(capsule, _NAME):
        _delete(_pointer_of(capsule, _NAME))
