"""Matrix products by cuBLASLt, NVIDIA's library (its C interface is cublasLt.h's)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from modelcc.runtime.errors import RunError
from modelcc.runtime.streams.vendor_library import ELEMENT_BYTES, LibraryCalls, Plans

COMPUTE_F32, COMPUTE_TF32 = 68, 77
"""``cublasComputeType_t``: f32 sums, with operands exact or rounded to TF32."""

TYPES: Mapping[str, int] = MappingProxyType({"f32": 0, "f16": 2, "bf16": 14})
"""``cudaDataType`` of elements."""

NO_EPILOGUE, RELU, BIAS, GELU = 1, 2, 4, 32
"""``cublasLtEpilogue_t``; a bias can be combined with one of the others, by adding them.  GELU is
the tanh approximation."""

_TRANS_A, _TRANS_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MAX_WORKSPACE = 1
_MIN_ALIGNMENTS = 5, 6, 7, 8
"""Alignments of both operands, the addend, and the result, for which the library assumes 256."""

MOST_ALIGNED = 256
"""Bytes; no algorithm needs more."""

_place, _word, _int64, _size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
SIGNATURES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "cublasLtCreate": (_place,),
        "cublasLtMatmulDescCreate": (_place, _word, _word),
        "cublasLtMatmulDescSetAttribute": (_place, _word, _place, _size),
        "cublasLtMatrixLayoutCreate": (_place, _word, ctypes.c_uint64, ctypes.c_uint64, _int64),
        "cublasLtMatrixLayoutSetAttribute": (_place, _word, _place, _size),
        "cublasLtMatmulPreferenceCreate": (_place,),
        "cublasLtMatmulPreferenceSetAttribute": (_place, _word, _place, _size),
        "cublasLtMatmulAlgoGetHeuristic": (*(_place,) * 7, _word, _place, _place),
        "cublasLtMatmul": (*(_place,) * 14, _size, _place),
        "cublasLtMatmulDescDestroy": (_place,),
        "cublasLtMatrixLayoutDestroy": (_place,),
        "cublasLtMatmulPreferenceDestroy": (_place,),
        "cublasLtDestroy": (_place,),
    }
)
"""Parameters of the functions that are called; all return a status."""


class HeuristicResult(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``, which begins with a ``cublasLtMatmulAlgo_t``."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int32),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int32 * 4),
    )


@dataclass(frozen=True)
class _Plan:
    """The descriptors of a product: its operation, layouts of its operands and result, and the
    algorithm."""

    description: Any
    layouts: tuple[Any, ...]
    found: HeuristicResult


class CublasLt:
    """The library on one GPU, whose context is current when it is created and used; ``function``
    gives the addresses of its symbols."""

    def __init__(self, function: Callable[[str], int]) -> None:
        self._call = call = LibraryCalls("cuBLASLt", SIGNATURES, function)
        self._handle = call.made("cublasLtCreate")
        self._preference = call.made("cublasLtMatmulPreferenceCreate")
        self._plans = Plans(self._forget)

    def close(self) -> None:
        """Frees what the library holds."""
        self._plans.clear()
        self._call("cublasLtMatmulPreferenceDestroy", self._preference)
        self._call("cublasLtDestroy", self._handle)

    def ask(
        self, elements: Sequence[str], addresses: Sequence[int], numbers: Sequence[int], stream: int
    ) -> None:
        """Issues products in ``stream``; ``addresses`` are those of the operands, the result and
        the workspace, then of a bias and of an addend; ``numbers`` as
        :mod:`modelcc.targets.cuda.libraries` lists them."""
        matrices = [numbers[start : start + 4] for start in (6, 10, 14)]
        room = numbers[19]
        shapes = *numbers[:6], room, *(n for matrix in matrices for n in matrix[1:])
        firsts = *(matrix[0] for matrix in matrices), numbers[18], *numbers[20:]
        left, right, result, workspace, *others = (
            address + ELEMENT_BYTES[name] * first
            for address, name, first in zip(addresses, elements, firsts, strict=True)
        )
        biased = int(bool(numbers[1] & BIAS))
        bias, added = others[:biased], others[biased:]
        before = added[0] if added else result
        places = right, left, before, result
        plan = self._plans.of(
            (tuple(elements), shapes, tuple(map(_alignment, places))),
            lambda: self._plan(elements, shapes[:7], matrices, places, bias),
        )
        self._describe_bias(plan.description, bias)
        one, scale = ctypes.c_float(1), ctypes.c_float(1 if added else 0)
        first, second, third = plan.layouts
        self._call(
            "cublasLtMatmul", self._handle, plan.description, ctypes.addressof(one), right, first,
            left, second, ctypes.addressof(scale), before, third, result, third,
            ctypes.addressof(plan.found), workspace, room, stream,
        )  # fmt: skip

    def _plan(
        self,
        elements: Sequence[str],
        sizes: Sequence[int],
        matrices: Sequence[Sequence[int]],
        places: Sequence[int],
        bias: Sequence[int],
    ) -> _Plan:
        """The library is column-major, so it computes the transposed product, right times left."""
        compute, epilogue, rows, columns, steps, count, room = sizes
        left, right, result = matrices
        first, second, third = (TYPES[name] for name in elements[:3])
        description = self._call.made("cublasLtMatmulDescCreate", compute, 0)
        attributes = ((_TRANS_A, right[2]), (_TRANS_B, left[2]), (_EPILOGUE, epilogue))
        for attribute, number in attributes:
            self._describe(description, attribute, ctypes.c_int32(number))
        self._describe_bias(description, bias)
        extents = (
            (second, right, steps, columns),
            (first, left, rows, steps),
            (third, result, rows, columns),
        )
        layouts = tuple(self._layout(count, *extent) for extent in extents)
        set_ = "cublasLtMatmulPreferenceSetAttribute"
        self._set(set_, self._preference, _MAX_WORKSPACE, ctypes.c_size_t(room))
        for attribute, place in zip(_MIN_ALIGNMENTS, places, strict=True):
            self._set(set_, self._preference, attribute, ctypes.c_uint32(_alignment(place)))
        found, ways = HeuristicResult(), ctypes.c_int32()
        self._call(
            "cublasLtMatmulAlgoGetHeuristic", self._handle, description, *layouts, layouts[2],
            self._preference, 1, ctypes.addressof(found), ctypes.addressof(ways),
        )  # fmt: skip
        if not ways.value:
            raise RunError(f"cuBLASLt knows no way to multiply {rows} x {steps} x {columns}")
        return _Plan(description, layouts, found)

    def _forget(self, plan: _Plan) -> None:
        self._call("cublasLtMatmulDescDestroy", plan.description)
        for layout in plan.layouts:
            self._call("cublasLtMatrixLayoutDestroy", layout)

    def _describe_bias(self, description: ctypes.c_void_p, bias: Sequence[int]) -> None:
        for address in bias:
            self._describe(description, _BIAS_POINTER, ctypes.c_void_p(address))

    def _describe(self, description: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._set("cublasLtMatmulDescSetAttribute", description, attribute, value)

    def _layout(
        self, count: int, kind: int, matrix: Sequence[int], rows: int, columns: int
    ) -> ctypes.c_void_p:
        _, leading, transposed, apart = matrix
        shape = (rows, columns) if transposed else (columns, rows)
        layout = self._call.made("cublasLtMatrixLayoutCreate", kind, *shape, leading)
        if count > 1:
            set_ = "cublasLtMatrixLayoutSetAttribute"
            self._set(set_, layout, _BATCH_COUNT, ctypes.c_int32(count))
            self._set(set_, layout, _BATCH_STRIDE, ctypes.c_int64(apart))
        return layout

    def _set(self, name: str, handle: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._call(name, handle, attribute, ctypes.addressof(value), ctypes.sizeof(value))


def _alignment(address: int) -> int:
    """The alignment of an address in bytes, as far as it matters."""
    return min(address & -address, MOST_ALIGNED)
