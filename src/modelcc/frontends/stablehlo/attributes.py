"""Types and attributes of MLIR's Python bindings as plain data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from modelcc.frontends.stablehlo.module import Attribute, ValueType
from modelcc.ir.mlir_syntax import ELEMENT_TYPES
from modelcc.ir.types import I64, DType, NumpyType


def value_type(type: Any) -> ValueType:
    """The type of an MLIR value."""
    if not isinstance(type, ir.RankedTensorType):
        return ValueType((), None, str(type))
    extents = [None if type.is_dynamic_dim(n) else type.get_dim_size(n) for n in range(type.rank)]
    dtype = element_type(str(type.element_type))
    return ValueType(tuple(extents), dtype, "" if dtype else str(type))


def element_type(name: str) -> DType | None:
    """The element type that MLIR calls ``name``; None if modelcc has none."""
    return I64 if name == "index" else ELEMENT_TYPES.get(name)


def attribute_of(op: Any, name: str) -> Attribute:
    try:
        return plain_attribute(op.attributes[name])
    except TypeError:  # the bindings have no class for arrays of complex numbers
        text = op.get_asm(large_elements_limit=None)
        return _spelled(text[text.index("dense<") :], value_type(op.results[0].type))


def plain_attribute(attribute: Any) -> Attribute:
    """The contents of an attribute as plain data."""
    for kind, read in _READERS:
        if isinstance(attribute, kind):
            return read(attribute)
    for kind, read in _NUMBERINGS:
        if kind.isinstance(attribute):
            return read(kind(attribute))
    word = re.fullmatch(r"#\w+<\w+ (\w+)>", str(attribute))
    return word[1] if word else str(attribute)


def _fields(*names: str) -> Callable[[Any], Mapping[str, Attribute]]:
    def read(attribute: Any) -> Mapping[str, Attribute]:
        found = {name: getattr(attribute, name) for name in names}
        return {n: v if isinstance(v, int) else tuple(v) for n, v in found.items()}

    return read


def elements(attribute: Any) -> Attribute:
    """A dense array."""
    type = value_type(attribute.type)
    if type.dtype is None:
        return str(attribute)
    try:
        return np.array(attribute).astype(type.dtype.numpy)
    except (TypeError, ValueError):
        return _spelled(str(attribute), type)


_SHOWN = re.compile(r"0x[0-9A-Fa-f]+|[-+]?[0-9][-+.0-9eE]*|true|false")


def _spelled(text: str, type: ValueType) -> Attribute:
    """Elements of a type without buffer support in the bindings, parsed from the attribute's text.

    Bytes are spelled ``dense<"0x…">``; ``0x…`` without quotes is one element's bits.
    """
    assert type.dtype is not None
    dtype, shape = type.dtype.numpy, tuple(e or 0 for e in type.shape)
    real = np.dtype(f"f{dtype.itemsize // 2}") if type.dtype.kind == "complex" else dtype
    body = text[text.index("<") + 1 : text.rindex(">", 0, text.rindex(" : "))]
    if body.startswith('"0x'):
        found = np.frombuffer(bytes.fromhex(body[3:-1]), dtype)
    else:
        found = np.array([_element(word, real) for word in _SHOWN.findall(body)], real).view(dtype)
    return np.broadcast_to(found.reshape(shape if found.size != 1 else ()), shape).copy()


def _element(word: str, dtype: NumpyType) -> Any:
    if word.startswith("0x"):
        return np.frombuffer(int(word, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
    return dtype.type(float({"true": 1, "false": 0}.get(word, word)))


def dictionary(attribute: Any) -> Mapping[str, Attribute]:
    return (
        {}
        if attribute is None
        else {named.name: plain_attribute(named.attr) for named in attribute}
    )


_READERS: tuple[tuple[Any, Callable[[Any], Attribute]], ...] = (
    (ir.BoolAttr, lambda a: bool(a.value)),
    (ir.IntegerAttr, lambda a: int(a.value)),
    (ir.FloatAttr, lambda a: float(a.value)),
    (ir.StringAttr, lambda a: str(a.value)),
    (ir.FlatSymbolRefAttr, lambda a: str(a.value)),
    (ir.DenseI64ArrayAttr, tuple),
    (ir.DenseI32ArrayAttr, tuple),
    (ir.DenseBoolArrayAttr, tuple),
    (ir.DenseElementsAttr, elements),
    (ir.DictAttr, dictionary),
    (ir.ArrayAttr, lambda a: tuple(map(plain_attribute, a))),
)
_NUMBERINGS: tuple[tuple[Any, Callable[[Any], Attribute]], ...] = (
    (
        stablehlo.DotDimensionNumbers,
        _fields(*(f"{side}_{kind}_dimensions" for side in ("lhs", "rhs")
                  for kind in ("batching", "contracting"))),
    ),
    (
        stablehlo.GatherDimensionNumbers,
        _fields("offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                "start_indices_batching_dims", "start_index_map", "index_vector_dim"),
    ),
    (
        stablehlo.ScatterDimensionNumbers,
        _fields("update_window_dims", "inserted_window_dims", "input_batching_dims",
                "scatter_indices_batching_dims", "scattered_dims_to_operand_dims",
                "index_vector_dim"),
    ),
    (
        stablehlo.ConvDimensionNumbers,
        _fields("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions",
                "kernel_input_feature_dimension", "kernel_output_feature_dimension",
                "kernel_spatial_dimensions", "output_batch_dimension",
                "output_feature_dimension", "output_spatial_dimensions"),
    ),
)  # fmt: skip
