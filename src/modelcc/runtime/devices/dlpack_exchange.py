"""Tensors of libraries with DLPack's C exchange API: read without capsules.

Structures are those of DLPack 1.3 (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

from modelcc.ir.types import NumpyType
from modelcc.runtime.dlpack import LEGACY_STREAM, dlpack_kind, is_contiguous
from modelcc.runtime.signature import Shape

_ATTRIBUTE, _NAME = "__dlpack_c_exchange_api__", b"dlpack_exchange_api"
_MAJOR = 1
_FIELDS = Struct("=QQiIQQQ")
"""``DLTensor``: address, device, rank, element type, extents, strides, offset."""

_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_TENSOR = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)


_ROWS: Sequence[Any] = [ctypes.c_int64 * rank for rank in range(9)]
"""Types of extents and strides, by the rank."""

_MOST_SHAPES = 1024
"""Maximum number of cached shapes known to be contiguous."""


class _FunctionTable(ctypes.Structure):
    """``DLPackExchangeAPI``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("tensor", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


@dataclass(frozen=True, eq=False)
class DlpackFunctions:
    """A library's functions: ``tensor(object, place)`` writes a ``DLTensor``, valid as long as the
    object, without synchronisation; ``stream(kind, number)`` returns its current stream on a
    device, 0 if it has none."""

    tensor: Callable[[object, int], int]
    stream: Callable[[int, int], int]


def exchange_of(kind: type) -> DlpackFunctions | None:
    """The functions of a tensor type; None if it has none of a known version."""
    capsule = getattr(kind, _ATTRIBUTE, None)
    if capsule is None:
        return None
    try:
        place = _capsule_pointer(capsule, _NAME)
    except (TypeError, ValueError):  # not a capsule of this name
        return None
    while place:
        table = _FunctionTable.from_address(place)
        if table.major == _MAJOR and table.tensor and table.stream:
            return DlpackFunctions(_TENSOR(table.tensor), _current_stream(_STREAM(table.stream)))
        place = table.previous
    return None


def _current_stream(ask: Callable[[int, int, int], int]) -> Callable[[int, int], int]:
    """The current stream of a GPU by kind and number; RuntimeError if there is none."""

    def current(kind: int, index: int) -> int:
        found = ctypes.c_void_p()
        if ask(kind, index, ctypes.addressof(found)):
            raise RuntimeError(f"GPU {index} has no current stream")
        return found.value or 0

    return current


class ExchangeReader:
    """Reads tensors on one ``device`` (in DLPack's codes), one thread at a time; those without a
    stream use ``default_stream``."""

    def __init__(self, device: tuple[int, int], default_stream: int = LEGACY_STREAM) -> None:
        self._device = device[1] << 32 | device[0]
        self._where, self._default = device, default_stream
        self._exchanges: dict[type, DlpackFunctions | None] = {}
        self._held = ctypes.create_string_buffer(_FIELDS.size)
        self._place = ctypes.addressof(self._held)
        self._dense: set[tuple[Shape, Shape]] = set()

    def exchange(self, kind: type) -> DlpackFunctions | None:
        """The functions of a tensor type, cached."""
        if kind not in self._exchanges:
            self._exchanges[kind] = exchange_of(kind)
        return self._exchanges[kind]

    def stream(self, exchange: DlpackFunctions) -> int:
        """The library's current stream on the device."""
        return exchange.stream(*self._where) or self._default

    def read(self, exchange: DlpackFunctions, value: Any, element: int) -> tuple[int, Shape] | None:
        """Address and shape of a contiguous tensor on the device with an ``element`` type as from
        :func:`element_kind`; None otherwise, or if it requires gradients, which its library refuses
        to export."""
        try:
            if getattr(value, "requires_grad", False) or exchange.tensor(value, self._place):
                return None
        except Exception:  # exporters may raise anything
            return None
        address, device, rank, kind, extents, strides, offset = _FIELDS.unpack(self._held)
        if device != self._device or kind != element or not 0 <= rank < len(_ROWS):
            return None
        shape: Shape = tuple(_ROWS[rank].from_address(extents)[:]) if rank else ()
        if rank and strides:
            both = shape, tuple(_ROWS[rank].from_address(strides)[:])
            if both not in self._dense and not self._is_contiguous(*both):
                return None
        return address + offset, shape

    def _is_contiguous(self, shape: Shape, strides: Shape) -> bool:
        """Computed once per shape."""
        if not is_contiguous(shape, strides):
            return False
        if len(self._dense) >= _MOST_SHAPES:
            self._dense.clear()
        self._dense.add((shape, strides))
        return True


def element_kind(dtype: NumpyType) -> int:
    """An element type as encoded in a ``DLTensor``; BufferError if DLPack has no equivalent."""
    code, bits, lanes = dlpack_kind(dtype)
    return code | bits << 8 | lanes << 16


def element_kinds(dtypes: Sequence[NumpyType]) -> tuple[int, ...] | None:
    """Those of several; None if DLPack lacks one."""
    try:
        return tuple(map(element_kind, dtypes))
    except BufferError:
        return None
