"""Products of matrices by cuBLASLt, NVIDIA's library (its C interface is cublasLt.h's)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from modelcc.runtime.errors import RunError

COMPUTE_F32, COMPUTE_TF32 = 68, 77
"""``cublasComputeType_t``: sums of f32, of products whose operands are as they are or rounded."""

TYPES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"f32": (0, 4), "f16": (2, 2), "bf16": (14, 2)}
)
"""``cudaDataType`` of elements, and their bytes."""

WORKSPACE = 32 << 20
"""Bytes of memory that the library may work in; what it is recommended to have on sm_90."""

NO_EPILOGUE, RELU, BIAS = 1, 2, 4
"""``cublasLtEpilogue_t``; the last two are bits, which may come together."""

_TRANS_A, _TRANS_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MAX_WORKSPACE = 1
_MIN_ALIGNMENTS = 5, 6, 7, 8
"""Of both operands, what is added, and the result, where the library takes 256 for granted."""

MOST_ALIGNED = 256
"""Bytes; no algorithm wants more."""

MOST_PLANS = 256
"""Descriptions that are kept, of products with other sizes or places."""

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
"""What the functions that are called take; all return a status."""


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
    """What a product is described by: a description, layouts of its operands and result, and how
    it is computed."""

    description: Any
    layouts: tuple[Any, ...]
    found: HeuristicResult


class CublasLt:
    """The library on one GPU, whose context is current when it is made and used; ``function`` gives
    the addresses of its functions."""

    def __init__(self, function: Callable[[str], int]) -> None:
        self._functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_int32, *types)(function(name))
            for name, types in SIGNATURES.items()
        }
        self._handle = self._made("cublasLtCreate")
        self._preference = self._made("cublasLtMatmulPreferenceCreate")
        set_ = "cublasLtMatmulPreferenceSetAttribute"
        self._set(set_, self._preference, _MAX_WORKSPACE, ctypes.c_size_t(WORKSPACE))
        self._plans: dict[Hashable, _Plan] = {}

    def close(self) -> None:
        """Give back what the library holds."""
        for plan in self._plans.values():
            self._forget(plan)
        self._call("cublasLtMatmulPreferenceDestroy", self._preference)
        self._call("cublasLtDestroy", self._handle)

    def multiply(
        self,
        elements: Sequence[str],
        addresses: Sequence[int],
        numbers: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        """Ask for products in ``stream``; ``addresses`` are those of the operands' and the result's
        tensors, ``numbers`` as :mod:`modelcc.targets.cuda.libraries` lists them."""
        matrices = [numbers[start : start + 4] for start in (6, 10, 14)]
        shapes = *numbers[:6], *(n for matrix in matrices for n in matrix[1:])
        firsts = *(matrix[0] for matrix in matrices), *numbers[18:]
        sizes = (TYPES[name][1] for name in elements)
        left, right, result, *bias = (
            address + size * first
            for address, size, first in zip(addresses, sizes, firsts, strict=True)
        )
        key = tuple(elements), shapes, tuple(map(_alignment, (right, left, result)))
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._forget(self._plans.pop(next(iter(self._plans))))
            plan = self._plan(elements, numbers[:6], matrices, (right, left, result), bias)
            self._plans[key] = plan
        self._describe_bias(plan.description, bias)
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        first, second, third = plan.layouts
        self._call(
            "cublasLtMatmul", self._handle, plan.description, ctypes.addressof(one), right, first,
            left, second, ctypes.addressof(zero), result, third, result, third,
            ctypes.addressof(plan.found), workspace, WORKSPACE, stream,
        )  # fmt: skip

    def _plan(
        self,
        elements: Sequence[str],
        sizes: Sequence[int],
        matrices: Sequence[Sequence[int]],
        places: Sequence[int],
        bias: Sequence[int],
    ) -> _Plan:
        """Rows are columns to the library, so it computes the transposed product, right times
        left."""
        compute, epilogue, rows, columns, steps, count = sizes
        left, right, result = matrices
        first, second, third, *_ = (TYPES[name][0] for name in elements)
        description = self._made("cublasLtMatmulDescCreate", compute, 0)
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
        for attribute, place in zip(_MIN_ALIGNMENTS, (*places, places[-1]), strict=True):
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
        layout = self._made("cublasLtMatrixLayoutCreate", kind, *shape, leading)
        if count > 1:
            set_ = "cublasLtMatrixLayoutSetAttribute"
            self._set(set_, layout, _BATCH_COUNT, ctypes.c_int32(count))
            self._set(set_, layout, _BATCH_STRIDE, ctypes.c_int64(apart))
        return layout

    def _made(self, name: str, *given: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call(name, ctypes.addressof(handle), *given)
        return handle

    def _set(self, name: str, handle: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._call(name, handle, attribute, ctypes.addressof(value), ctypes.sizeof(value))

    def _call(self, name: str, *given: Any) -> None:
        status = self._functions[name](*given)
        if status:
            raise RunError(f"{name} of cuBLASLt failed with status {status}")


def _alignment(address: int) -> int:
    """The power of two of bytes that an address is a multiple of, as far as it matters."""
    return min(address & -address, MOST_ALIGNED)
