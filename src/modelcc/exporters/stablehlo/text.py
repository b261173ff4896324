"""StableHLO syntax of types, constants and names."""

from __future__ import annotations

import json
import re

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.index import Index
from modelcc.ir.mlir_syntax import ELEMENT_TEXT
from modelcc.ir.types import BOOL, F32, I8, STRING, U8, Array, DType, TensorType, dtype_of

LISTED = 8
"""Maximum elements of a constant that is written as numbers, not as bytes."""


def type_text(type: TensorType) -> str:
    """``tensor<?x4xf32>``; not supported for element types that StableHLO lacks."""
    if type.dtype == STRING:
        unsupported(f"StableHLO has no tensors of {type.dtype}")
    extents = "".join(f"{extent_text(e)}x" for e in type.shape)
    return f"tensor<{extents}{ELEMENT_TEXT[type.dtype]}>"


def extent_text(extent: Index) -> str:
    """A number, or ``?`` if dynamic."""
    return str(extent) if isinstance(extent, int) else "?"


def carrier(dtype: DType) -> DType:
    """The element type that constants of ``dtype`` are written in, to be converted from: MLIR packs
    the bytes of narrow types in its own ways."""
    if dtype == BOOL:
        return U8
    if dtype.bits >= 8:
        return dtype
    return F32 if dtype.is_float else I8 if dtype.kind == "int" else U8


def constant_text(array: Array, type: TensorType) -> str:
    """``dense<[1.0, 2.0]> : tensor<2xf32>``; hexadecimal bytes for large ones."""
    if array.size and _is_one(array[(slice(2),) * array.ndim]) and _is_one(array):
        array = array.reshape(-1)[:1].reshape(())  # a splat
    is_listed = array.size <= LISTED and type.dtype.kind != "complex"
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    contents = _nested(array) if is_listed else f'"0x{little.tobytes().hex()}"'
    return f"dense<{contents}> : {type_text(type)}"


def _is_one(array: Array) -> bool:
    """Whether all elements have the same bits."""
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.itemsize)
    return bool(np.all(bits == bits[:1]))


def _nested(array: Array) -> str:
    if array.ndim == 0:
        return _number(array)
    return "[" + ", ".join(map(_nested, array)) + "]" if array.size else ""


def _number(value: Array) -> str:
    if value.dtype == np.bool_:
        return "true" if value else "false"
    if dtype_of(np.asarray(value)).is_integer:
        return str(int(value))
    wide = float(value)
    if value.dtype == np.float64:
        text = np.format_float_scientific(wide, trim="0")
    else:
        text = np.format_float_scientific(np.float32(wide), trim="0")
    if np.isfinite(wide) and value.dtype.type(float(text)) == value:
        return text
    return f"0x{value.tobytes()[::-1].hex().upper()}"


def identifier(name: str) -> str:
    """``name`` as an MLIR identifier: invalid characters become ``_``."""
    plain = re.sub(r"[^\w$.-]", "_", name, flags=re.ASCII)
    return plain if re.match(r"[a-zA-Z_$.-]", plain) else f"_{plain}"


def quoted(text: str) -> str:
    """A quoted MLIR string."""
    return json.dumps(text)
