"""TFLite files as plain data.  Only this module and `tables.py` depend on the schema's package."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import tflite

from modelcc.frontends.tflite.module import (
    Option,
    TfliteModel,
    TfliteOperator,
    TfliteQuantization,
    TfliteSignature,
    TfliteSubgraph,
    TfliteTensor,
)
from modelcc.frontends.tflite.sparsity import DimensionFormat, densified
from modelcc.ir.errors import ModelError
from modelcc.ir.types import (
    BF16,
    BOOL,
    C64,
    C128,
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
    U4,
    U8,
    U16,
    U32,
    U64,
    Array,
    DType,
)  # fmt: skip

IDENTIFIER = b"TFL3"
"""File identifier of schema version 3, at bytes 4 to 8."""

VERSION = 3
SCHEMA: Any = tflite

DTYPES: Mapping[str, DType] = MappingProxyType(
    {
        "FLOAT32": F32, "FLOAT16": F16, "FLOAT64": F64, "BFLOAT16": BF16, "INT2": I2, "INT4": I4,
        "INT8": I8, "INT16": I16, "INT32": I32, "INT64": I64, "UINT4": U4, "UINT8": U8,
        "UINT16": U16, "UINT32": U32, "UINT64": U64, "BOOL": BOOL, "COMPLEX64": C64,
        "COMPLEX128": C128, "STRING": STRING,
    }
)  # fmt: skip

_MALFORMED = (
    ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError, struct.error,
)  # fmt: skip
ENUMERATIONS = {
    "fused_activation_function": "ActivationFunctionType",
    "padding": "Padding",
    "mode": "MirrorPadMode",
    **dict.fromkeys(("in_data_type", "out_data_type", "output_type", "type"), "TensorType"),
    **dict.fromkeys(("out_type", "idx_out_type"), "TensorType"),
    "weights_format": "FullyConnectedOptionsWeightsFormat",
    "kernel_type": "LSTMKernelType",
}


def read_model(data: bytes, name: str) -> TfliteModel:
    """The model in the bytes of a file; :class:`ModelError` if invalid."""
    if data[4:8] != IDENTIFIER:
        found = data[4:8].decode("ascii", "replace")
        message = f"this is no TFLite model of schema version {VERSION}"
        hint = f"such files have {IDENTIFIER.decode()} at byte 4; this one has {found!r}"
        raise ModelError(message, (name,), hint)
    try:
        return _SchemaReader(data, name).model()
    except _MALFORMED as error:
        message = f"the file is damaged: {error or type(error).__name__}"
        raise ModelError(message, (name,), "copy or export it again") from error


class _SchemaReader:
    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._root = SCHEMA.Model.GetRootAs(data, 0)

    def model(self) -> TfliteModel:
        version = self._root.Version()
        if version != VERSION:
            message = f"schema version {version}, where modelcc reads {VERSION}"
            raise ModelError(message, (self._name,), "convert the model with a current TensorFlow")
        codes = [self._operator_code(code) for code in self._items(self._root, "OperatorCodes")]
        subgraphs = tuple(self._subgraph(s, codes) for s in self._items(self._root, "Subgraphs"))
        if not subgraphs:
            raise ValueError("it has no subgraph")
        signatures = tuple(map(self._signature, self._items(self._root, "SignatureDefs")))
        return TfliteModel(self._name, subgraphs, signatures)

    def _items(self, table: Any, field: str) -> Iterator[Any]:
        """The tables of a vector; each takes at least four bytes."""
        count = getattr(table, f"{field}Length")()
        if 4 * count > len(self._data):
            raise ValueError(f"{count:,} {field} in {len(self._data):,} bytes")
        get: Callable[[int], Any] = getattr(table, field)
        return map(get, range(count))

    def _operator_code(self, code: Any) -> tuple[str, int]:
        """Name and version; old files have the operator code in a separate byte."""
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = _named("BuiltinOperator", number)
        return (_text(code.CustomCode()) if name == "CUSTOM" else name), int(code.Version())

    def _subgraph(self, table: Any, codes: Sequence[tuple[str, int]]) -> TfliteSubgraph:
        tensors = tuple(map(self._tensor, self._items(table, "Tensors")))
        inputs, outputs = _numbers(table, "Inputs"), _numbers(table, "Outputs")
        operators = tuple(
            self._operator(n, op, codes) for n, op in enumerate(self._items(table, "Operators"))
        )
        given = (*inputs, *outputs, *(i for op in operators for i in op.outputs))
        used = (
            *given,
            *(i for op in operators for i in (*op.inputs, *op.intermediates) if i != -1),
        )
        if any(not 0 <= i < len(tensors) for i in used):
            raise ValueError(f"a tensor is numbered that the {len(tensors)} ones do not include")
        if len(set(inputs)) < len(inputs):
            raise ValueError("a tensor is given twice")
        return TfliteSubgraph(_text(table.Name()), tensors, inputs, outputs, operators)

    def _operator(self, index: int, op: Any, codes: Sequence[tuple[str, int]]) -> TfliteOperator:
        number: int = op.OpcodeIndex()
        if number >= len(codes):
            raise ValueError(f"operator {index} is of kind {number} of {len(codes)}")
        name, version = codes[number]
        options = {**_options(op, "BuiltinOptions"), **_options(op, "BuiltinOptions2")}
        known = name in _names("BuiltinOperator").values()
        custom = None if known else _bytes(op, "CustomOptions")
        ends = _numbers(op, "Inputs"), _numbers(op, "Outputs")
        inside = _numbers(op, "Intermediates")
        frozen = MappingProxyType(options)
        return TfliteOperator(index, name, version, *ends, frozen, custom, inside)

    def _tensor(self, table: Any) -> TfliteTensor:
        name, type = _text(table.Name()), _named("TensorType", table.Type())
        sizes, open_ = _numbers(table, "Shape"), _numbers(table, "ShapeSignature")
        known = table.HasRank() or bool(sizes) or not table.ShapeIsNone()
        if any(size < 0 for size in sizes):
            raise ValueError(f"tensor {name!r} has the shape {sizes}")
        if len(open_) == len(sizes):
            sizes = tuple(-1 if o == -1 else s for o, s in zip(open_, sizes, strict=True))
        dtype = DTYPES.get(type)
        data = None if dtype is None else self._data_of(table, name, dtype, sizes)
        quantization = _quantization(table.Quantization(), name, sizes)
        shape = sizes if known else None
        return TfliteTensor(name, shape, type, dtype, quantization, data, table.IsVariable())

    def _data_of(self, table: Any, name: str, dtype: DType, shape: tuple[int, ...]) -> Array | None:
        """The contents of a constant; None for other tensors."""
        contents = self._buffer(table.Buffer(), name)
        if contents is None or dtype == STRING:
            return None
        if -1 in shape:
            raise ValueError(f"constant {name!r} has the shape {shape}")
        values = _elements(contents, dtype)
        sparsity = table.Sparsity()
        if sparsity is not None:
            return densified(values, shape, *_sparse_format(sparsity), name)
        count = int(np.prod(shape, dtype=object))
        packed = dtype.bits < 8 and 0 <= values.size - count < 8 // dtype.bits
        if values.size != count and not packed:
            text = f"{values.size} elements for the shape {shape} of constant {name!r}"
            raise ValueError(text)
        return values[:count].reshape(shape)

    def _buffer(self, number: int, name: str) -> Array | None:
        """The bytes of a buffer; those of large models are stored after the flatbuffer."""
        if number >= self._root.BuffersLength():
            raise ValueError(f"tensor {name!r} is in buffer {number}, which there is not")
        buffer = self._root.Buffers(number)
        start, size = buffer.Offset(), buffer.Size()
        if start > 1:
            if start + size > len(self._data):
                raise ValueError(f"tensor {name!r} lies beyond the end of the file")
            return np.frombuffer(self._data, np.uint8, size, start) if size else None
        return buffer.DataAsNumpy() if buffer.DataLength() else None

    def _signature(self, table: Any) -> TfliteSignature:
        ends = [
            {m.TensorIndex(): _text(m.Name()) for m in self._items(table, side)}
            for side in ("Inputs", "Outputs")
        ]
        return TfliteSignature(table.SubgraphIndex(), *map(MappingProxyType, ends))


# --- parts of tables


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("utf-8", "replace")


def _bytes(table: Any, field: str) -> bytes:
    found = getattr(table, f"{field}AsNumpy")()
    return found.tobytes() if isinstance(found, np.ndarray) else b""


def _numbers(table: Any, field: str) -> tuple[Any, ...]:
    """A vector of numbers, empty if absent."""
    found = getattr(table, f"{field}AsNumpy")()
    return tuple(found.tolist()) if isinstance(found, np.ndarray) else ()


@cache
def _names(enumeration: str) -> Mapping[int, str]:
    """Names of an enumeration's values in the schema."""
    members = _members(enumeration).items()
    return MappingProxyType({v: k for k, v in members if isinstance(v, int)})


def _members(kind: str) -> dict[str, Any]:
    """Attributes of a schema class by their names."""
    return dict(cast("dict[str, Any]", vars(getattr(SCHEMA, kind))))


def _named(enumeration: str, number: int) -> str:
    return _names(enumeration).get(number, f"{enumeration} {number}")


def _options(op: Any, field: str) -> dict[str, Option]:
    """Fields of the options by their names in the schema."""
    kind, table = getattr(op, f"{field}Type")(), getattr(op, field)()
    name = _names(field).get(kind, "NONE")
    if table is None or name == "NONE":
        return {}
    options = getattr(SCHEMA, name)()
    options.Init(table.Bytes, table.Pos)
    return {label: _field(options, method, label) for method, label in option_fields(name)}


@cache
def option_fields(kind: str) -> tuple[tuple[str, str], ...]:
    """Accessor methods of an options table, and the fields' names in snake case."""
    members = _members(kind)
    vectors = [name.removesuffix("AsNumpy") for name in members if name.endswith("AsNumpy")]
    plain = [
        name
        for name, member in members.items()
        if hasattr(member, "__code__") and member.__code__.co_argcount == 1
        if not name.startswith("_") and name.removesuffix("AsNumpy") not in vectors
        if not any(name in (f"{v}Length", f"{v}IsNone") for v in vectors)
    ]
    snake = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
    return tuple((name, snake.sub("_", name).lower()) for name in (*plain, *vectors))


def _field(options: Any, method: str, label: str) -> Option:
    if hasattr(options, f"{method}AsNumpy"):
        return _numbers(options, method)
    value = getattr(options, method)()
    if isinstance(value, bytes):
        return _text(value)
    enumeration = ENUMERATIONS.get(label)
    return _named(enumeration, value) if enumeration and isinstance(value, int) else value


# --- tensors


def _elements(contents: Array, dtype: DType) -> Array:
    """The elements in these bytes; narrow ones are packed, the first in the low bits."""
    if dtype.bits >= 8:
        return contents.view(dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False)
    per_byte, mask = 8 // dtype.bits, (1 << dtype.bits) - 1
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    fields = (contents[:, None] >> shifts & np.uint8(mask)).reshape(-1)
    if dtype.kind == "int":
        sign = np.uint8(1 << (dtype.bits - 1))
        fields = (fields ^ sign).view(np.int8) - sign.view(np.int8)
    return fields.astype(dtype.numpy)


def _quantization(table: Any, name: str, shape: tuple[int, ...]) -> TfliteQuantization | None:
    """The parameters of a tensor; :class:`ValueError` for invalid ones."""
    if table is None:
        return None
    scales = _numbers(table, "Scale")
    if not scales:
        return None
    zeros, axis = _numbers(table, "ZeroPoint") or (0,) * len(scales), table.QuantizedDimension()
    if len(zeros) == 1:
        zeros *= len(scales)
    if len(shape) == 1:  # old converters give a bias the axis of its weights
        axis = 0
    fits = len(scales) == 1 or (0 <= axis < len(shape) and shape[axis] in (-1, len(scales)))
    if len(zeros) != len(scales) or not fits:
        text = f"{len(scales)} scales and {len(zeros)} zero points along axis {axis}"
        raise ValueError(f"tensor {name!r} of the shape {shape} has {text}")
    values = np.asarray(scales, np.float32)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(f"tensor {name!r} has the scale {values.min()}")
    return TfliteQuantization(values, np.asarray(zeros, np.int64), axis)


def _sparse_format(
    table: Any,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[DimensionFormat, ...]]:
    order, blocks = _numbers(table, "TraversalOrder"), _numbers(table, "BlockMap")
    dimensions = [table.DimMetadata(n) for n in range(min(table.DimMetadataLength(), 64))]
    return order, blocks, tuple(map(_dimension_format, dimensions))


def _dimension_format(table: Any) -> DimensionFormat:
    if _named("DimensionType", table.Format()) == "DENSE":
        return DimensionFormat(table.DenseSize())
    return DimensionFormat(None, _indices(table, "ArraySegments"), _indices(table, "ArrayIndices"))


def _indices(table: Any, field: str) -> tuple[int, ...]:
    """A vector of indices, in one of three widths."""
    kind, values = getattr(table, f"{field}Type")(), getattr(table, field)()
    if values is None:
        return ()
    vector = getattr(SCHEMA, _names("SparseIndexVector")[kind])()
    vector.Init(values.Bytes, values.Pos)
    return _numbers(vector, "Values")
