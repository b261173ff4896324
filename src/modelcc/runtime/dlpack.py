"""Tensors as DLPack passes them between libraries, for memory that NumPy cannot look into.

Structures and capsules are those of DLPack 0.x, which newer consumers and producers understand
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
"""CUDA's stream that others are in order with, as DLPack and CUDA's array interface number them."""

ROCM_STREAM = 0
"""ROCm's, as DLPack numbers it."""

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
"""Kinds of element types that the letter of NumPy's does not tell."""

_KINDS: Mapping[str, int] = MappingProxyType({"i": 0, "u": 1, "f": 2, "c": 5})


class _DltensorFields(ctypes.Structure):
    """``DLTensor``, with its device and element type in place."""

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
    """What a capsule holds; ``kind`` is its element type's, in DLPack's numbers."""

    address: int
    device: tuple[int, int]
    kind: tuple[int, int, int]
    shape: tuple[int, ...]
    contiguous: bool


def dlpack_kind(dtype: NumpyType) -> tuple[int, int, int]:
    """Code, bits and lanes of an element type; BufferError if DLPack has none like it."""
    code = _CODES.get(dtype.name, _KINDS.get(dtype.kind))
    if code is None:
        raise BufferError(f"DLPack has no elements of {dtype}")
    return code, 8 * dtype.itemsize, 1


def read_capsule(capsule: object) -> DlpackTensor:
    """What ``capsule`` holds, which stays its owner; ValueError if it is none, or used up."""
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
    """An exporter for NumPy, which knows no bfloat16 and no floats of 8 bits: where its elements
    are ``dtype``, NumPy gets integers as wide, and ``as_integers`` says so."""

    def __init__(self, exporter: Any, dtype: NumpyType) -> None:
        self._exporter, self._kind = exporter, dlpack_kind(dtype)
        self.as_integers = False

    def __dlpack_device__(self) -> tuple[int, int]:
        """The exporter's."""
        return self._exporter.__dlpack_device__()

    def __dlpack__(self, **_: object) -> object:
        """The exporter's capsule."""
        capsule = self._exporter.__dlpack__()
        tensor = _DlManagedFields.from_address(_pointer(capsule, _NAME)).tensor
        if (tensor.code, tensor.bits, tensor.lanes) == self._kind:
            tensor.code, self.as_integers = _KINDS["u"], True
        return capsule


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether rows follow one another, by ``strides`` in elements."""
    if 0 in shape:
        return True
    return all(n == 1 or strides[i] == prod(shape[i + 1 :]) for i, n in enumerate(shape))


def make_capsule(
    address: int, device: tuple[int, int], dtype: NumpyType, shape: tuple[int, ...], owner: object
) -> object:
    """A capsule with a tensor at ``address``, which keeps ``owner`` until nobody has it any
    more."""
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
    """What lives as long as a tensor is used."""

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
    """The consumer does not need the tensor any more."""
    _drop(_DlManagedFields.from_address(managed).manager_ctx)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule: int) -> None:
    """Nobody has taken the tensor of a capsule that goes; its object may not be referred to."""
    if _is_valid(capsule, _NAME):
        _delete(_pointer_of(capsule, _NAME))
