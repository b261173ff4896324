"""Conversion of PyTorch's dtypes and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from modelcc.frontends.kit.complex_values import C32
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.types import (
    BF16,
    BOOL,
    C64,
    C128,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
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

DTYPES: Mapping[torch.dtype, DType] = MappingProxyType(
    {
        torch.float64: F64,
        torch.float32: F32,
        torch.float16: F16,
        torch.bfloat16: BF16,
        torch.float8_e4m3fn: F8E4M3FN,
        torch.float8_e4m3fnuz: F8E4M3FNUZ,
        torch.float8_e5m2: F8E5M2,
        torch.float8_e5m2fnuz: F8E5M2FNUZ,
        torch.int64: I64,
        torch.int32: I32,
        torch.int16: I16,
        torch.int8: I8,
        torch.uint64: U64,
        torch.uint32: U32,
        torch.uint16: U16,
        torch.uint8: U8,
        torch.bool: BOOL,
        torch.complex32: C32,
        torch.complex64: C64,
        torch.complex128: C128,
    }
)

_AS_INTEGERS = MappingProxyType({1: torch.uint8, 2: torch.int16})
"""By element size in bytes: NumPy types for dtypes that NumPy lacks."""

_UNKNOWN_TO_NUMPY = (
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
)


def dtype_of(dtype: torch.dtype) -> DType:
    """The dtype; not supported if there is none."""
    found = DTYPES.get(dtype)
    if found is None:
        unsupported(f"tensors of {dtype}")
    return found


def array_of(tensor: torch.Tensor) -> Array:
    """The elements of ``tensor``, without a copy if it is contiguous and on the host.

    Complex numbers have real and imaginary parts in a last axis of extent 2.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    dtype = dtype_of(tensor.dtype)
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype in _UNKNOWN_TO_NUMPY:
        bits = plain.view(_AS_INTEGERS[plain.element_size()])
        return bits.numpy().view(dtype.numpy)
    return plain.numpy()
