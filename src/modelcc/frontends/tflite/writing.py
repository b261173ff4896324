"""Writes TFLite files with some of their operators and tensors changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from modelcc.frontends.tflite.module import (
    TfliteModel,
    TfliteOperator,
    TfliteQuantization,
    TfliteSubgraph,
    TfliteTensor,
)
from modelcc.frontends.tflite.reading import ENUMERATIONS, option_fields
from modelcc.frontends.tflite.tables import SCHEMA, Table, read_tables, write_tables

_CUSTOM_CODE, _LAST_OLD_CODE = 32, 127
_OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "CONCATENATION": "ConcatenationOptions",
    "MEAN": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "ADD": "AddOptions",
    "MUL": "MulOptions",
    "SUB": "SubOptions",
}
"""Option tables of the operators that can be written; others are written without options."""


def edited(data: bytes, before: TfliteModel, after: TfliteModel) -> bytes:
    """The file ``data``, with contents ``before``, rewritten to the contents ``after``.

    Tensors and operators that are the same objects in both are copied from the file, including what
    plain data omits; so is everything outside subgraphs.
    """
    return write_tables(_Edit(read_tables(data)).model(before, after))


class _Edit:
    def __init__(self, tree: Table) -> None:
        self._tree = tree
        self._buffers: list[Table] = list(tree.fields.get("Buffers", ()))
        self._codes: list[Table] = list(tree.fields.get("OperatorCodes", ()))

    def model(self, before: TfliteModel, after: TfliteModel) -> Table:
        """The tree of the rewritten file."""
        pairs = zip(before.subgraphs, after.subgraphs, self._tree.fields["Subgraphs"], strict=True)
        subgraphs = [self._subgraph(*pair) for pair in pairs]
        return self._tree.with_fields(
            Subgraphs=subgraphs, OperatorCodes=self._codes or None, Buffers=self._buffers
        )

    def _subgraph(self, before: TfliteSubgraph, after: TfliteSubgraph, table: Table) -> Table:
        if after is before:
            return table
        old = dict(zip(map(id, before.operators), table.fields.get("Operators", ()), strict=True))
        operators = [old.get(id(op)) or self._operator(op) for op in after.operators]
        tensors = [
            self._tensor(t, before.tensors[n : n + 1], table.fields["Tensors"][n : n + 1])
            for n, t in enumerate(after.tensors)
        ]
        return table.with_fields(Tensors=tensors, Operators=operators)

    def _tensor(
        self, own: TfliteTensor, before: Sequence[TfliteTensor], table: Sequence[Table]
    ) -> Table:
        if before and own is before[0]:
            return table[0]
        kept = table[0] if table else Table("Tensor", {})
        shape = own.shape or ()
        signature = _numbers(shape, np.int32) if -1 in shape else None
        fields = {
            "Name": own.name.encode(),
            "Shape": _numbers([abs(size) for size in shape], np.int32),
            "ShapeSignature": signature,
            "Type": getattr(SCHEMA.TensorType, own.type),
        }
        if not before or own.quantization is not before[0].quantization:
            fields["Quantization"] = _quantization(own.quantization)
        if not before or own.data is not before[0].data:
            fields |= {"Buffer": self._buffer(own), "Sparsity": None}
        return kept.with_fields(**fields)

    def _buffer(self, own: TfliteTensor) -> int:
        """The number of a buffer with a constant's bytes; 0, the empty one, for other tensors."""
        if own.data is None:
            return 0
        contents = np.frombuffer(np.ascontiguousarray(own.data).tobytes(), np.uint8)
        self._buffers.append(Table("Buffer", {"Data": contents}))
        return len(self._buffers) - 1

    def _operator(self, own: TfliteOperator) -> Table:
        fields: dict[str, Any] = {
            "OpcodeIndex": self._code(own.name, own.version),
            "Inputs": _numbers(own.inputs, np.int32),
            "Outputs": _numbers(own.outputs, np.int32),
        }
        kind = _OPTIONS.get(own.name)
        if kind is not None:
            fields["BuiltinOptionsType"] = getattr(SCHEMA.BuiltinOptions, kind)
            fields["BuiltinOptions"] = Table(kind, _options(kind, own.options))
        return Table("Operator", fields)

    def _code(self, name: str, version: int) -> int:
        number = getattr(SCHEMA.BuiltinOperator, name)
        for place, code in enumerate(self._codes):
            told = code.fields.get("BuiltinCode", 0), code.fields.get("DeprecatedBuiltinCode", 0)
            if max(told) == number and code.fields.get("Version", 1) == version:
                return place
        old = min(number, _LAST_OLD_CODE)
        fields = {"BuiltinCode": number, "DeprecatedBuiltinCode": old, "Version": version}
        self._codes.append(Table("OperatorCode", fields))
        return len(self._codes) - 1


def _options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an options table, from their names in snake case."""
    fields: dict[str, Any] = {}
    for method, label in option_fields(kind):
        value = options.get(label)
        if isinstance(value, tuple):
            value = _numbers(cast("tuple[int, ...]", value), np.int32)
        elif isinstance(value, str) and label in ENUMERATIONS:
            value = getattr(getattr(SCHEMA, ENUMERATIONS[label]), value)
        if value is not None:
            fields[method.removesuffix("AsNumpy")] = value
    return fields


def _quantization(own: TfliteQuantization | None) -> Table | None:
    if own is None:
        return None
    fields = {
        "Scale": own.scales.astype(np.float32),
        "ZeroPoint": own.zeros.astype(np.int64),
        "QuantizedDimension": own.axis,
    }
    return Table("QuantizationParameters", fields)


def _numbers(values: Sequence[int], dtype: Any) -> Any:
    return np.asarray(values, dtype)
