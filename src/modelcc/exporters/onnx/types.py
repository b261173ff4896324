"""ONNX's notation of element types and value types."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.types import Array, DType, TensorType

_SPELLED: Mapping[str, str] = MappingProxyType(
    {
        "f64": "double",
        "f32": "float",
        "f16": "float16",
        "bf16": "bfloat16",
        **{f"i{bits}": f"int{bits}" for bits in (64, 32, 16, 8, 4)},
        **{f"u{bits}": f"uint{bits}" for bits in (64, 32, 16, 8, 4)},
        "f8e4m3fn": "float8e4m3fn",
        "f8e4m3fnuz": "float8e4m3fnuz",
        "f8e5m2": "float8e5m2",
        "f8e5m2fnuz": "float8e5m2fnuz",
        "f4e2m1": "float4e2m1",
        "bool": "bool",
        "c64": "complex64",
        "c128": "complex128",
    }
)


def element_name(dtype: DType) -> str:
    """The element type in schema notation; not supported if the opset has no equivalent."""
    name = _SPELLED.get(dtype.name)
    return unsupported(f"ONNX has no elements of {dtype}") if name is None else name


def element_type(dtype: DType) -> int:
    """The code of the element type (``TensorProto.DataType``)."""
    return TensorProto.DataType.Value(element_name(dtype).upper())


def value_info(name: str, type: TensorType) -> ValueInfoProto:
    """A value with its type: symbolic extents are ``dim_param``, expressions of them as text."""
    shape = [e if isinstance(e, int) else str(e) for e in type.shape]
    return helper.make_tensor_value_info(name, element_type(type.dtype), shape)


def tensor_proto(name: str, data: Array) -> TensorProto:
    """A constant with its elements as raw bytes."""
    return numpy_helper.from_array(np.ascontiguousarray(data).reshape(data.shape), name)
